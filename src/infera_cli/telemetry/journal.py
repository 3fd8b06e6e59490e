"""The last few thousand requests, for `infera requests`: newest first, filtered, never a body."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any

from infera_cli.events import RequestDone
from infera_cli.telemetry.recorder import Batch
from infera_cli.telemetry.usage import read_usage

CAPACITY = 4000


class Journal:
    """Keeps what `add` is given; `flush` is called before each look."""

    def __init__(self, capacity: int = CAPACITY, *, flush: Callable[[], None] = lambda: None) -> None:
        self._kept: deque[RequestDone] = deque(maxlen=capacity)
        self.flush = flush

    def add(self, batch: Batch) -> None:
        """Remember finished requests, forget the oldest."""
        self._kept.extend(batch)

    def query(
        self, *, slow: float | None = None, worker: str | None = None, session: str | None = None,
        status: str | None = None, limit: int = 100,
    ) -> Sequence[dict[str, Any]]:
        """The newest `limit` requests that pass every filter given.

        `slow` is a least total in seconds; `status` a code (`503`), a class (`5xx`) or an outcome (`broken`).
        """  # fmt: skip
        self.flush()
        found = (
            done for done in reversed(self._kept)
            if (slow is None or done.total >= slow)
            and (worker is None or done.worker == worker)
            and (session is None or done.session == session)
            and (status is None or _has_status(done, status))
        )  # fmt: skip
        return [row(done) for done in islice(found, limit)]


def _has_status(done: RequestDone, wanted: str) -> bool:
    code = str(done.status)
    return wanted in {code, f"{code[0]}xx", done.outcome}


def row(done: RequestDone) -> dict[str, Any]:
    """One request as JSON members; durations in seconds, None for a step that was not reached."""
    usage = read_usage(done.tail)
    return {
        "id": done.id,
        "started": done.started,
        "path": done.path,
        "model": done.model,
        "session": done.session,
        "worker": done.worker,
        "why": done.why,
        "status": done.status,
        "outcome": done.outcome,
        "retries": done.retries,
        "streamed": done.streamed,
        "queue": done.received,
        "pick": _between(done.received, done.picked),
        "connect": _between(done.picked, done.sent),
        "upstream": _between(done.sent, done.first_byte),
        "first_byte": done.first_byte,
        "total": done.total,
        "chunks": done.chunks,
        "bytes_in": done.bytes_in,
        "bytes_out": done.bytes_out,
        "tokens": dict(zip(("prompt", "completion", "cached"), usage, strict=True)) if usage else None,
        "peer": done.peer,
        "error": done.error,
    }


def _between(start: float | None, end: float | None) -> float | None:
    return None if start is None or end is None else max(0.0, end - start)
