"""The `Server-Timing` header, in which a router of ours says where the time went (W3C Server Timing)."""

from __future__ import annotations


def parse(header: str) -> dict[str, float]:
    """Durations in seconds by name, from `queue;dur=1.5, pick;dur=0.02`; the unreadable is passed over."""
    found: dict[str, float] = {}
    for entry in header.split(","):
        name, *parameters = entry.strip().split(";")
        for parameter in parameters:
            key, _, value = parameter.strip().partition("=")
            if name and key.strip().lower() == "dur":
                try:
                    found[name.strip()] = float(value.strip().strip('"')) / 1000
                except ValueError:
                    continue
    return found
