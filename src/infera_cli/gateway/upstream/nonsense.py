"""What is said of an answer that could not be read, and whose fault that is."""

from __future__ import annotations

import logging

_log = logging.getLogger("infera.gateway")


def words_of(error: Exception) -> str:
    """Why reading stopped: a callback's own words, where it raised. They are about what the worker sent if it was a
    ValueError, which stands for that; anything else is a fault in this program, and is logged with its traceback.
    """
    inner = error.__context__
    if inner is None or isinstance(inner, ValueError):
        return f"not HTTP: {inner or error}"
    _log.error("an answer could not be handled", exc_info=inner)
    return f"a fault in infera: {type(inner).__name__}: {inner}"
