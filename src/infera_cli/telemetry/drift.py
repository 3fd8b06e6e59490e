"""Compares what was expected of an engine's cache with what the engine says: silent misses are the commonest fault.

A worker drifts when over its last requests the two differ by more than half of the larger. The reason is
almost always another tokenizer, template or event stream than was thought (engines §6.3). vLLM leaves the figure out
where it is zero.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable

from infera_cli.events import RequestDone
from infera_cli.telemetry.recorder import Batch
from infera_cli.telemetry.usage import read_usage

WINDOW = 20
"""Requests that are looked at together; fewer say nothing."""
SILENT_AFTER = 40
"""Answers without a word on it, after which somebody should know."""
_CACHED = (b'"cached_tokens"', b'"cache_read_input_tokens"')
_SLIP = 64
"""Tokens a request that may differ without a cause: a block at the end."""

log = logging.getLogger("infera.kv")


class Watch:
    """One worker."""

    __slots__ = ("drifting", "expected", "recent", "reported", "silent", "telling")

    def __init__(self) -> None:
        self.telling: set[str] = set()
        """Routes on which it said what was cached; where it then says nothing, nothing was."""
        self.silent = 0
        """Answers in a row that did not say what was cached."""
        self.expected = 0
        self.reported = 0
        self.drifting = False
        self.recent: deque[tuple[int, int]] = deque(maxlen=WINDOW)

    def add(self, expected: int, reported: int) -> bool:
        """One request; True when it just began to drift."""
        self.expected += expected
        self.reported += reported
        self.recent.append((expected, reported))
        before = self.drifting
        if len(self.recent) == WINDOW:
            wanted, told = (sum(column) for column in zip(*self.recent, strict=True))
            apart = abs(wanted - told)
            self.drifting = apart > max(wanted, told) / 2 and apart > _SLIP * WINDOW
        return self.drifting and not before


class Drift:
    """All workers; a recorder's consumer."""

    def __init__(self, is_here: Callable[[str], bool]) -> None:
        self.workers: dict[str, Watch] = {}
        self._is_here = is_here

    def add(self, batch: Batch) -> None:
        """Count finished requests."""
        for done in batch:
            if done.expected_cached is not None and done.outcome == "ok" and done.worker is not None:
                self._add(done, done.worker, done.expected_cached)

    def _add(self, done: RequestDone, worker: str, expected: int) -> None:
        if not self._is_here(worker):
            return
        watch = self.workers.setdefault(worker, Watch())
        route = done.path.partition("?")[0]
        if any(name in done.tail for name in _CACHED):
            watch.telling.add(route)
        usage = read_usage(done.tail) if route in watch.telling else None
        if usage is None:
            if expected:
                self._silent(worker, watch)
            return
        watch.silent = 0
        if watch.add(expected, usage[2]):
            wanted, told = (sum(column) for column in zip(*watch.recent, strict=True))
            log.warning(
                "%s: of its last %d prompts %d tokens were expected to be cached, and it reports %d. "
                "Compare its tokenizer, chat template and KV events with ours (infera explain shows the blocks).",
                worker, WINDOW, wanted, told,
            )  # fmt: skip

    @staticmethod
    def _silent(worker: str, watch: Watch) -> None:
        """Streams without `usage` say nothing either, so a few in between are usual; many in a row are a setting."""
        watch.silent += 1
        if watch.silent == SILENT_AFTER and not watch.recent:
            log.info(
                "%s has not said in %d answers how much of a prompt it found cached: it found nothing, or does not say "
                "so. vLLM says it with --enable-prompt-tokens-details, SGLang with --enable-cache-report.",
                worker, SILENT_AFTER,
            )  # fmt: skip

    def forget(self, worker: str) -> None:
        """It left."""
        self.workers.pop(worker, None)
