"""The `Server-Timing` header, in which a router of ours says where the time went (W3C Server Timing)."""

from __future__ import annotations

import math

MOST = 1e9      # milliseconds, eleven days: what is above is no duration, and its square no number


def parse(header: str) -> dict[str, float]:
    """Durations in seconds by name, from `queue;dur=1.5, pick;dur=0.02`; what is none (`nan`, `-1`, `1e400`, a word) is
    passed over."""
    found: dict[str, float] = {}
    for entry in header.split(","):
        name, *parameters = entry.strip().split(";")
        for parameter in parameters:
            key, _, value = parameter.strip().partition("=")
            if name and key.strip().lower() == "dur":
                duration = _number(value.strip().strip('"'))
                if 0 <= duration <= MOST:
                    found[name.strip()] = duration / 1000
    return found


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan
