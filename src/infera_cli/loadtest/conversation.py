"""One conversation being played: its turns in order, answers fed back, a sample of each."""

from __future__ import annotations

from array import array
from time import perf_counter
from typing import TYPE_CHECKING

import gevent

from infera_cli.loadtest.http import Exchange, RunOver
from infera_cli.workload import timing
from infera_cli.workload.answer import Answer
from infera_cli.workload.arrivals import Replay
from infera_cli.workload.items import Item, Turn
from infera_cli.workload.requests import History, body
from infera_cli.workload.sample import INCOMPLETE, NOT_SENT, OK, UNSENT, Sample

if TYPE_CHECKING:
    from infera_cli.loadtest.driver import Driver

_NOTHING = Item(turns=())
UNDECIDED = frozenset({"truncated", "reset"})


class Conversation:
    """Item `index`: due `scheduled` s from the start, or at `due` (`perf_counter`) without a plan."""

    def __init__(
        self, driver: Driver, index: int, *, scheduled: float | None, due: float | None = None
    ) -> None:
        self._driver, self._job, self._index = driver, driver.job, index
        self._scheduled, self._begins = scheduled, scheduled or 0.0
        self._due = perf_counter() if due is None else due
        if scheduled is not None:
            self._due = driver.start + scheduled
        self._client, self._name = driver.client_for(index)
        self._item = _NOTHING
        self._history = History(_NOTHING)
        self._ready: bytes | None = None

    def prepare(self) -> Item:
        """Make the first request ahead of time."""
        if self._item is _NOTHING:
            self._item = self._driver.dataset.item(self._index)
            spare = bool(self._job.salt) and not self._driver.measured and not self._job.warm
            self._history = History(self._item, f"warm-up {self._job.salt}" if spare else self._job.salt)
            self._ready = self._request(self._item, self._item.turns[0])
        return self._item

    def play(self) -> float:
        """Send all turns; returns the instant the last answer ended. A failure ends the conversation."""
        item = self.prepare()
        end = self._due
        for number, turn in enumerate(item.turns):
            if number and not self._wait_for(turn, end):
                break
            content = self._ready if self._ready is not None else self._request(item, turn)
            self._ready = None
            sample, answer = self._send(number, turn, content)
            self._driver.keep(sample)
            end = self._driver.start + sample.end
            if not sample.ok:
                break
            self._history.answer(answer.text if self._job.feed_back else turn.recorded or answer.text)
        return end

    def _wait_for(self, turn: Turn, end: float) -> bool:
        """Wait until a later turn is due, the one before having ended at `end`: after its pause, and in a replay at its
        own time if that is later (bench-and-cli §B5). False when the replay is over before. A warm-up never waits."""
        plan, self._scheduled = self._job.arrivals, None
        self._due = end + (turn.think if self._driver.measured else 0.0)
        if isinstance(plan, Replay) and self._driver.measured:
            self._due = end + turn.think / plan.speed
            self._scheduled = self._begins + turn.after / plan.speed
            if plan.duration is not None and self._scheduled > plan.duration:
                return False
            self._due = max(self._due, self._driver.start + self._scheduled)
        gevent.sleep(max(0.0, self._due - perf_counter()))
        return True

    def not_sent(self) -> Sample:
        """The sample of a request that was due and could not be sent."""
        return self._sample(0, Turn(""), Exchange(), Answer(self._job.shape.dialect), NOT_SENT)

    # ── one turn ─────────────────────────────────────────────────────────────────────────────────────
    def _request(self, item: Item, turn: Turn) -> bytes:
        self._history.ask(turn)
        return body(self._job.shape, item, turn, self._history)

    def _send(self, number: int, turn: Turn, content: bytes) -> tuple[Sample, Answer]:
        shape = self._job.shape
        keep = self._job.keep_text or self._driver.count is not None or len(self._item.turns) > 1
        answer = Answer(shape.dialect, stream=shape.stream, keep_text=keep)
        place = self._driver.place()
        if place is not None and not place.acquire(blocking=False):
            try:
                place.acquire()
            except RunOver:
                self._driver.keep(self._sample(number, turn, Exchange(), answer, UNSENT))
                raise
            self._due = self._driver.freed      # and not when we were woken: that is the generator's own time
        try:
            exchange = self._driver.exchange(self._client, content, self._session(), answer)
        finally:
            if place is not None:
                self._driver.freed = perf_counter()
                place.release()
        return self._sample(number, turn, exchange, answer, _outcome(exchange, answer)), answer

    def _session(self) -> str | None:
        if not self._job.sessions:
            return None
        name = self._item.session
        if name is None and not self._job.always_session:
            return None
        return f"{name or f'bench-{self._index}'}-{self._job.run}"

    def _sample(self, number: int, turn: Turn, exchange: Exchange, answer: Answer, outcome: str) -> Sample:
        start = self._driver.start

        def since(instant: float | None) -> float | None:
            return None if instant is None else instant - start

        count = self._driver.count
        counted, weights = None, answer.known_weights()
        if count is not None and outcome == OK:
            counted = count(answer.text)
            weights = weights or answer.counted_weights(count, counted if answer.output is None else answer.output)
        return Sample(
            index=self._index, turn=number, outcome=outcome, measured=self._driver.measured,
            direct=bool(self._name), worker=self._name or exchange.worker,
            scheduled=self._scheduled, due=self._due - start, sent=exchange.sent - start,
            connected=since(exchange.connected), head=since(exchange.head), first=since(answer.first),
            first_content=since(answer.first_content), last=since(answer.last), end=exchange.end - start,
            events=answer.events, asked=None if number else self._item.asked,
            wanted=turn.output if self._job.shape.ignore_eos else None,
            input=answer.input, output=answer.output, cached=answer.cached, counted=counted,
            status=exchange.status, finish=answer.finish,
            error=answer.error or exchange.error or answer.reason(outcome),
            timing=timing.parse(exchange.timing) if exchange.timing else {},
            gaps=array("I", answer.gaps).tobytes(), weights=weights,
            text=answer.text if self._job.keep_text else None, resent=exchange.resent, odd_usage=answer.odd_usage(),
        )


def _outcome(exchange: Exchange, answer: Answer) -> str:
    """What the request came to: the transport's failure, else what the body says of itself.

    A connection that closes without its last chunk or breaks, after the answer itself ended properly, lost nothing. An
    error that was told before the run ended is one.
    """
    if exchange.outcome == INCOMPLETE and answer.error:
        return "error_event"
    if exchange.outcome and exchange.outcome not in UNDECIDED:
        return exchange.outcome
    told = answer.verdict()
    return told if told in (OK, "error_event", "engine_abort") else exchange.outcome or told
