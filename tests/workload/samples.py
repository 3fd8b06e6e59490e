"""Samples as a load process would have written them."""

from __future__ import annotations

from array import array
from typing import Any

from infera_cli.workload.sample import Sample


def sample(sent: float = 0.0, ttft: float = 0.1, gaps: tuple[float, ...] = (), **more: Any) -> Sample:
    """A success sent at `sent`: first token after `ttft`, then one after each gap (seconds)."""
    first = sent + ttft
    last = first + sum(gaps)
    values: dict[str, Any] = {
        "index": 0, "turn": 0, "outcome": "ok", "measured": True, "direct": False, "worker": "",
        "scheduled": sent, "due": sent, "sent": sent, "connected": sent, "head": first, "first": first,
        "first_content": first, "last": last, "end": last, "events": len(gaps) + 1, "asked": None, "wanted": None,
        "input": 10, "output": len(gaps) + 1, "cached": None, "counted": None, "status": 200, "error": "",
        "finish": "stop", "gaps": array("I", [round(gap * 1e6) for gap in gaps]).tobytes(),
    }
    return Sample(**{**values, **more})


def failure(kind: str, sent: float = 0.0, end: float = 0.1, **more: Any) -> Sample:
    """A failed request."""
    empty = {"first": None, "first_content": None, "last": None, "head": None, "events": 0, "output": None}
    return sample(sent, outcome=kind, end=end, input=None, **{**empty, **more})
