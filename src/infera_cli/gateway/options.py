"""What the data plane is told once, at the start. Durations are seconds; None or 0 means no limit."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How much is taken in; beyond it the client gets 413, 431 or 429."""

    body_bytes: int = 64 << 20
    header_bytes: int = 64 << 10
    header_count: int = 256
    in_flight: int = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """rulings 4. `head` bounds how long a client may take for its request head, `keep_alive` an idle client
    connection; `worker_idle` stays under the 5 s after which vLLM drops idle connections (engines.md §1.3)."""

    connect: float = 5.0
    total: float | None = 3600.0
    first_byte: float | None = None
    idle: float | None = None
    head: float = 60.0
    keep_alive: float = 75.0
    worker_idle: float = 4.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RelayOptions:
    """Everything that shapes one relayed request."""

    limits: Limits = Limits()
    timeouts: Timeouts = Timeouts()
    max_retries: int = 1
    stream_keepalive: float | None = None
