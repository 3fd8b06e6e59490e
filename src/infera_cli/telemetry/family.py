"""What a metric is called and means."""

from __future__ import annotations

from typing import Literal, NamedTuple

Kind = Literal["counter", "gauge", "histogram"]


class Family(NamedTuple):
    """One metric. A counter's `name` ends in `_total`."""

    name: str
    kind: Kind
    labels: tuple[str, ...]
    help: str
