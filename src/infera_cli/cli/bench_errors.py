"""Expected failures of a command that was asked for JSON: JSON as well, on stderr (bench-and-cli §C1)."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

from infera_cli.cli.console import console
from infera_cli.errors import InferaError


def spoken(work: Callable[[], int], output: str) -> int:
    """The exit code of `work`; with `json` as `output` its failure is a document of one line."""
    if output != "json":
        return work()
    try:
        return work()
    except InferaError as fault:
        console.say(json.dumps({"error": _told(fault)}, ensure_ascii=False))
        return fault.exit_code


def _told(fault: InferaError) -> dict[str, object]:
    """The sentence holds what to try, so there is no hint besides."""
    kind = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", type(fault).__name__).lower()
    details = {"param": fault.param} if fault.param else {}
    return {"code": fault.code or kind, "message": fault.message, "hint": None, "details": details}
