"""Reads every engine's own `/metrics`, and notices engines that stand still (replica-router §2.11; R178).

A failed scrape never takes a worker out of rotation. What is read here lags by seconds, so it never says who is idle:
that is the ledger's to know.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Protocol

from infera_cli.fleet.member import Member
from infera_cli.fleet.probe import Fetch
from infera_cli.protocol.engine_metrics import EngineLoad, parse_load

log = logging.getLogger("infera.fleet")

SCRAPE_SECONDS = 5.0
SCRAPE_TIMEOUT = 2.0
_TICKS = 10


class Table(Protocol):
    """What is needed of the registry."""

    def members(self) -> Sequence[Member]:
        """All workers, in table order."""

    def stall(self, member: Member, stalled: bool, detail: str = "") -> None:
        """Its open requests stand still, or move again."""


class _Seen:
    """What is remembered of one member between two scrapes."""

    __slots__ = ("busy_since", "due", "most_tokens", "moved", "stalled_at", "started", "task", "work")

    def __init__(self, due: float) -> None:
        self.due = due
        self.task: asyncio.Task[None] | None = None
        self.work: int | None = None
        self.started: float | None = None
        self.moved = -1.0
        self.busy_since: float | None = None
        self.stalled_at: float | None = None
        self.most_tokens: int | None = None


class Scraper:
    """Asks each member every `interval` seconds, spread evenly over that time.

    `heard(member, load, now, restarted)` gets what was read; `restarted` says that the engine's counters went back or
    its process is another one. A member with open requests, no bytes and no counters that moved for `stall` seconds is
    stalled (0: never); bytes or counters that move end that, and so does as long a rest without requests.
    """

    def __init__(
        self, table: Table, fetch: Fetch, heard: Callable[[Member, EngineLoad, float, bool], None], *,
        interval: float = SCRAPE_SECONDS, timeout: float = SCRAPE_TIMEOUT, stall: float = 0.0,
        clock: Callable[[], float] = time.monotonic, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:  # fmt: skip
        self._table = table
        self._fetch = fetch
        self._heard = heard
        self._interval = interval
        self._timeout = timeout
        self._stall = stall
        self._clock = clock
        self._sleep = sleep
        self._seen: dict[Member, _Seen] = {}
        self._begun = 0

    async def run(self) -> None:
        """Scrape until cancelled."""
        try:
            while True:
                self.tick(self._clock())
                await self._sleep(self._interval / _TICKS)
        finally:
            tasks = [seen.task for seen in self._seen.values() if seen.task is not None]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def tick(self, now: float) -> None:
        """Begin the scrapes that are due, and see who stands still."""
        members = dict.fromkeys(self._table.members())
        for gone in [member for member in self._seen if member not in members]:
            task = self._seen.pop(gone).task
            if task is not None:
                task.cancel()
        for member in members:
            seen = self._seen.get(member)
            if seen is None:
                seen = self._seen[member] = _Seen(now + self._interval * self._phase())
            if now >= seen.due and (seen.task is None or seen.task.done()):
                seen.due = now + self._interval
                seen.task = asyncio.get_running_loop().create_task(self._scrape(member, seen))
            if self._stall:
                self._look(member, seen, now)

    def _phase(self) -> float:
        self._begun += 1
        return (self._begun - 1) * 0.6180339887498949 % 1.0  # spread evenly, whatever their number

    # ── one scrape ───────────────────────────────────────────────────────────────────────────────────
    async def _scrape(self, member: Member, seen: _Seen) -> None:
        try:
            reply = await self._fetch(member.spec, "/metrics", timeout=self._timeout)
            if reply.status != 200:
                return
            load = parse_load(reply.body)
            if member.spec.engine == "tgi" and load.kv_usage is None and load.batch_tokens is not None:
                load = replace(load, kv_usage_max=await self._tgi_usage(member, seen, load.batch_tokens))
        except OSError as error:
            log.debug("%s: its metrics could not be read: %s", member.id, error)
            return
        self._note(member, seen, load, self._clock())

    async def _tgi_usage(self, member: Member, seen: _Seen, batch_tokens: int) -> float | None:
        """What the batch may hold ÷ what fits, where this version of TGI says that."""
        if seen.most_tokens is None:
            seen.most_tokens = 0
            reply = await self._fetch(member.spec, "/info", timeout=self._timeout)
            if reply.status == 200:
                seen.most_tokens = _most_tokens(reply.body)
        return min(1.0, batch_tokens / seen.most_tokens) if seen.most_tokens else None

    def _note(self, member: Member, seen: _Seen, load: EngineLoad, now: float) -> None:
        back = load.work is not None and seen.work is not None and load.work < seen.work
        other = load.started is not None and seen.started is not None and load.started != seen.started
        restarted = back or other
        if load.work != seen.work or restarted:
            seen.moved = now
        seen.work = load.work if load.work is not None else seen.work
        seen.started = load.started if load.started is not None else seen.started
        if restarted:
            seen.most_tokens = None
        self._heard(member, load, now, restarted)

    # ── standing still ───────────────────────────────────────────────────────────────────────────────
    def _look(self, member: Member, seen: _Seen, now: float) -> None:
        if not member.outstanding:
            seen.busy_since = None
        elif seen.busy_since is None:
            seen.busy_since = now
        if seen.stalled_at is not None:
            self._look_stalled(member, seen, seen.stalled_at, now)
        elif seen.busy_since is not None and seen.work is not None:
            quiet = now - max(seen.busy_since, member.last_alive, seen.moved)
            if quiet >= self._stall:
                seen.stalled_at = now
                sentence = f"{member.outstanding} open, nothing moved for {quiet:.0f} s"
                self._table.stall(member, True, sentence)

    def _look_stalled(self, member: Member, seen: _Seen, since: float, now: float) -> None:
        moved = max(member.last_alive, seen.moved) > since
        if moved or (not member.outstanding and now - since >= self._stall):
            seen.stalled_at = None
            seen.busy_since = None
            self._table.stall(member, False, "it moves" if moved else "nothing is open there any more")


def _most_tokens(body: bytes) -> int:
    """`max_batch_total_tokens` of TGI's /info; 0 where it does not say."""
    try:
        info = json.loads(body)
    except (ValueError, RecursionError):
        return 0
    value = info.get("max_batch_total_tokens") if isinstance(info, dict) else None
    return value if type(value) is int and value > 0 else 0
