"""Between a request's admission and its first attempt: whom the caller insists on, and what the prompt is.

What was seen before is known in microseconds and goes on at once; the rest is worked out in a thread, so that
nobody else waits (R098, C31). The client may leave meanwhile.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from infera_cli.errors import InferaError, NoRoutableWorker
from infera_cli.gateway.identity import RandomBytes, identify
from infera_cli.gateway.kv.hints import HintedTrip, takes_hints
from infera_cli.gateway.kv.reader import PromptReader, Reading
from infera_cli.gateway.kv.sessions import Sessions
from infera_cli.gateway.kv.threads import TokenThreads
from infera_cli.protocol.headers import RequestHead
from infera_cli.protocol.prompt_body import read
from infera_cli.protocol.retention import Hint
from infera_cli.routing.prompt import Prompt
from infera_cli.routing.sessions import MINTED
from infera_cli.routing.types import Ask

if TYPE_CHECKING:
    from infera_cli.gateway.relay import Relay

AT_ONCE = 2048
"""Characters that are tokenized on the spot."""
THREADS = 2
WAITING_MOST = 256
PATIENCE_SECONDS = 5.0
"""After so long a request goes on without its tokens."""

_WORKER = b"x-worker-instance-id"


class KvPlan:
    """A gateway.plan.Plan. `reader` None: prompts are of no interest; `direct`: the caller may choose; with `hint`
    engines are told how long each prompt should stay, so long where it does not say itself."""

    def __init__(
        self, reader: PromptReader | None, *, direct: bool, random_bytes: RandomBytes,
        clock: Callable[[], float] = time.monotonic, sessions: Sessions | None = None, hint: Hint | None = None,
    ) -> None:  # fmt: skip
        self._clock = clock
        self._sessions = sessions
        self._hint: Hint | None = hint
        self._reader = reader
        self._direct = direct
        self._random_bytes = random_bytes
        self._threads = TokenThreads(THREADS)

    def begin(self, relay: Relay) -> None:
        """See Plan. Raises NoRoutableWorker where the caller names nobody clearly."""
        body = relay.body if relay.body is not None else b""
        model, relay.session, pin = identify(relay.head, body, self._random_bytes)
        only = insisted_on(relay.head) if self._direct else None
        relay.ask = Ask(model, pin, only=only)
        if self._reader is None:
            if self._hint is not None and takes_hints(relay.target):
                found = read(body)
                relay.trip = HintedTrip(relay, (found.retention if found is not None else None) or self._hint)
            relay.attempt(self._clock())
            return
        reading = self._reader.look(relay.target, body)
        if reading.cost <= AT_ONCE:
            self._go_on(relay, reading.finish())
        elif self._threads.waiting >= WAITING_MOST:
            self._reader.counters.fallback("busy")
            self._go_on(relay, reading.bare())
        else:
            self._in_thread(relay, reading, self._reader)

    async def work_out(self, reading: Reading) -> Prompt:
        """A prompt that no request waits for, in the way of those that one does."""
        if reading.cost <= AT_ONCE:
            return reading.finish()
        if self._threads.waiting >= WAITING_MOST:
            return reading.bare()
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                return await self._threads.run(reading.finish)
        except TimeoutError:
            return reading.bare()

    def close(self) -> None:
        """No more; what is being worked out is not waited for."""
        self._threads.close()

    def _go_on(self, relay: Relay, prompt: Prompt) -> None:
        ask = relay.ask
        if self._sessions is not None and prompt.chains and _is_named(relay):
            self._sessions.saw(ask.session or "", prompt)
        relay.ask = Ask(ask.model, ask.session, ask.tried, prompt, ask.only)
        if self._hint is not None and takes_hints(relay.target):
            relay.trip = HintedTrip(relay, prompt.retention or self._hint)
        relay.attempt(self._clock())

    def _go_on_later(self, relay: Relay, prompt: Prompt) -> None:
        if relay.response_complete:  # the client left, or its time was up
            return
        try:
            self._go_on(relay, prompt)
        except InferaError as error:
            relay.refuse(error)

    def _in_thread(self, relay: Relay, reading: Reading, reader: PromptReader) -> None:
        reader.counters.threaded += 1
        work = self._threads.run(reading.finish)
        patience = work.get_loop().call_later(PATIENCE_SECONDS, self._too_late, relay, reading, work, reader)

        def done(work: asyncio.Future[Prompt]) -> None:
            patience.cancel()
            if not work.cancelled():
                self._go_on_later(relay, work.result())

        work.add_done_callback(done)

    def _too_late(
        self, relay: Relay, reading: Reading, work: asyncio.Future[Prompt], reader: PromptReader
    ) -> None:
        if work.cancel():
            reader.counters.fallback("timeout")
            self._go_on_later(relay, reading.bare())


def _is_named(relay: Relay) -> bool:
    """Whether the client gave its session a name, rather than us."""
    return relay.ask.session is not None and not relay.ask.session.startswith(MINTED)



def insisted_on(head: RequestHead) -> str | None:
    """The worker that the caller names (infera-wire §4.1); None where it names none.

    Raises NoRoutableWorker for two names, or one that is none (R184).
    """
    named = [value for name, value in head.headers if name == _WORKER]
    if not named:
        return None
    if len(set(named)) > 1 or not named[0].strip().isascii():
        raise NoRoutableWorker("X-Worker-Instance-Id must name one worker.", code="no_such_worker")
    return named[0].strip().decode("ascii")
