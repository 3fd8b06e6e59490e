"""Lets the pure engine live in real time: one timer, and a listener for each sequence."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from infera_cli.simengine.kv_events import KvEvents
from infera_cli.simulator.engine import EngineModel, Happening

Listener = Callable[[Happening], None]


class Driver:
    """Submits and aborts at the loop's time, and hands happenings to whoever asked."""

    def __init__(self, engine: EngineModel, events: KvEvents | None = None) -> None:
        self.engine = engine
        self.events = events
        self._loop = asyncio.get_running_loop()
        self._listeners: dict[str, Listener] = {}
        self._timer: asyncio.Handle | None = None
        self._due = 0.0

    @property
    def active(self) -> int:
        """Sequences that somebody listens to."""
        return len(self._listeners)

    def submit(self, sequence: str, prompt: int, output: int, chain: Sequence[int], listener: Listener, *,
               watched: bool, ids: Sequence[int] = (), salt: str = "") -> None:
        """As EngineModel.submit, now; `listener` hears of everything until "finished". `ids` and `salt` are for
        those who listen to KV events."""
        if self.events is not None:
            self.events.submitted(sequence, ids, salt)
        self.engine.submit(sequence, prompt, output, chain, self._loop.time(), watched=watched)
        self._listeners[sequence] = listener
        self._wake_at(self._loop.time())

    def abort(self, sequence: str) -> None:
        """Drop a sequence; its listener hears nothing more."""
        if self._listeners.pop(sequence, None) is not None:
            self.engine.abort(sequence, self._loop.time())
            if self.events is not None:
                self.events.ended(sequence)
                self.publish()

    def publish(self) -> None:
        """Tell what the cache did since the last time."""
        if self.events is not None:
            self.events.publish(self.engine.cache.events())

    def _turn(self) -> None:
        self._timer = None
        for happening in self.engine.advance(self._loop.time()):
            listener = self._listeners.get(happening.id)
            if happening.kind == "finished":
                self._listeners.pop(happening.id, None)
                if self.events is not None:
                    self.events.ended(happening.id)
            if listener is not None:
                listener(happening)
        self.publish()
        due = self.engine.next_event_time()
        if due is not None:
            self._wake_at(due)

    def _wake_at(self, due: float) -> None:
        if self._timer is not None:
            if self._due <= due:
                return
            self._timer.cancel()
        self._due = due
        wait = due - self._loop.time()
        loop = self._loop
        self._timer = loop.call_later(wait, self._turn) if wait > 0 else loop.call_soon(self._turn)
