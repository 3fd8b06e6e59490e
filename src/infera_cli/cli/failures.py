"""Why a command ends: a sentence on stderr; JSON as well where JSON was asked for (bench-and-cli §C1)."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from itertools import pairwise

from infera_cli.cli.console import console
from infera_cli.errors import InferaError, UsageError

_FORMAT, _JSON = ("-o", "--output"), ("--json", "-ojson", "-o=json", "--output=json")


def tell(fault: InferaError, argv: Sequence[str]) -> int:
    """Say what is wrong with the command line `argv` or its work; the exit code."""
    if _wants_json(argv):
        console.say(json.dumps({"error": _told(fault)}, ensure_ascii=False))
    else:
        console.error(fault.message)
    return fault.exit_code


def refuse(sentence: str, code: int, argv: Sequence[str]) -> int:
    """The same for what Typer found wrong, before a command knows its options."""
    tell(UsageError(sentence), argv)
    return code


def _wants_json(argv: Sequence[str]) -> bool:
    """Read off the words themselves, since they may not parse; those after `--` are another program's."""
    ours = argv[: argv.index("--")] if "--" in argv else argv
    return any(word in _JSON for word in ours) or any(
        flag in _FORMAT and value == "json" for flag, value in pairwise(ours)
    )


def _told(fault: InferaError) -> dict[str, object]:
    """The sentence holds what to try, so there is no hint besides."""
    kind = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", type(fault).__name__).lower()
    details = {"param": fault.param} if fault.param else {}
    return {"code": fault.code or kind, "message": fault.message, "hint": None, "details": details}
