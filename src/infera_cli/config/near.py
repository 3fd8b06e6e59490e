"""What somebody who mistyped a name may have meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

_LIKELY, _CERTAIN = 0.75, 0.9
_UNGUARDED = frozenset({"admin-open"})
"""Takes protection away: meant only by somebody who all but wrote it."""


def near(name: str, known: Iterable[str]) -> str | None:
    """The one of `known` that is close enough to `name` to be worth a suggestion; dashes in front do not count."""
    wanted = name.lstrip("-")
    rated = [(_likeness(wanted, one.lstrip("-")), one) for one in known]
    likely = [(rate, one) for rate, one in rated if rate >= (_CERTAIN if one.lstrip("-") in _UNGUARDED else _LIKELY)]
    return max(likely)[1] if likely else None


def _likeness(wanted: str, known: str) -> float:
    return difflib.SequenceMatcher(None, wanted, known).ratio()
