"""One generating request on its way through the engine: happenings in, bytes out, and faults where they
were asked for."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import xxhash

from infera_cli.blocks import FIRST_PARENT, chain
from infera_cli.simengine import faults
from infera_cli.simengine.ask import Ask, Choice
from infera_cli.simengine.driver import Driver
from infera_cli.simengine.faults import Fault
from infera_cli.simengine.http import Exchange
from infera_cli.simengine.metrics import Metrics
from infera_cli.simengine.options import Options
from infera_cli.simengine.styles import DONE, Style, Usage, event
from infera_cli.simulator.engine import Happening

_BYTES = 4   # of text per token, see simulator.text
_DEAD = "EngineCore encountered an issue. See stack trace (above) for the root cause."   # engines §1.4


class Part:
    """One choice while it grows: `told` tokens of it have been sent."""

    __slots__ = ("cached", "choice", "done", "seen", "told")

    def __init__(self, choice: Choice) -> None:
        self.choice = choice
        self.cached = 0
        self.seen = 0       # tokens generated
        self.told = 0
        self.done = False


@dataclass(frozen=True, slots=True)
class Context:
    """What all requests of an engine share."""

    driver: Driver
    metrics: Metrics
    options: Options


class Generation:
    """Runs the choices of an `Ask` and answers the exchange in `style`."""

    def __init__(
        self, name: str, exchange: Exchange, ask: Ask, style: Style, context: Context, *, fault: Fault
    ) -> None:
        self._exchange = exchange
        self._ask = ask
        self._style = style
        self._fault = fault
        self._driver = context.driver
        self._metrics = context.metrics
        self._options = context.options
        self._loop = asyncio.get_running_loop()
        self._began = self._loop.time()
        self._pieces = 0
        self._parts = {f"{name}-{choice.index}": Part(choice) for choice in ask.choices}

    def start(self) -> None:
        """Send the head of a stream and submit every choice."""
        self._exchange.on_gone = self.drop
        if self._ask.stream:
            self._exchange.head(200, "text/event-stream; charset=utf-8")
            if self._fault.comments:
                self._exchange.send(b": simulated engine\n\n")
        size = self._options.profile.block_size
        watched = self._ask.stream or bool(self._fault.ending)
        first = xxhash.xxh3_64_intdigest(self._ask.salt.encode()) if self._ask.salt else FIRST_PARENT
        for name, part in self._parts.items():
            choice = part.choice
            ids = [*choice.ids, *choice.answer_ids()]
            self._driver.submit(name, len(choice.ids), choice.tokens, chain(ids, size, first), self._hear,
                                watched=watched, ids=ids, salt=self._ask.salt)

    def drop(self, reason: str = "abort") -> None:
        """Give up what is not done: the client left, or a fault ended it."""
        for name, part in self._parts.items():
            if not part.done:
                self._driver.abort(name)
                self._metrics.finished[reason] += 1
                part.done = True

    def abort(self) -> None:
        """End now with finish_reason "abort" and the text so far, as vLLM does when it is stopped (engines
        §1.13)."""
        unfinished = [part for part in self._parts.values() if not part.done]
        self.drop()
        if not self._ask.stream:
            self._whole("abort", unfinished)
            return
        self._exchange.send(b"".join(self._style.last(part.choice, "", "abort") for part in unfinished))
        self._close()

    # ── happenings ───────────────────────────────────────────────────────────────────────────────────
    def _hear(self, happening: Happening) -> None:
        part = self._parts[happening.id]
        part.seen += happening.tokens
        if happening.kind == "first":
            part.cached = happening.cached
            self._metrics.ttft.observe(self._loop.time() - self._began)
            if self._ask.stream:
                self._exchange.send(self._style.opening(part.choice.index, self._usage()))
        if happening.kind == "finished":
            self._finished(part)
        elif self._ask.stream or self._fault.ending:
            self._tell(part, part.seen)

    def _finished(self, part: Part) -> None:
        part.seen = part.choice.tokens
        if self._ask.stream or self._fault.ending:
            self._tell(part, part.seen - 1)
            if part.done or not self._exchange.open:
                return                                           # a fault came in between
        part.done = True
        self._metrics.finished[part.choice.reason] += 1
        if self._ask.stream:
            rest = part.choice.answer[part.told * _BYTES :]
            self._exchange.send(self._style.last(part.choice, rest, part.choice.reason))
        if all(other.done for other in self._parts.values()):
            self._end()

    def _tell(self, part: Part, tokens: int) -> None:
        """Send what is new of a choice, an event a token; a fault may strike after any of them."""
        out: list[bytes] = []
        ending, after = self._fault.ending, self._fault.after
        for place in range(part.told, min(tokens, part.choice.tokens - 1)):
            if ending and self._pieces >= after:
                if self._ask.stream:
                    self._exchange.send(b"".join(out))
                self._strike(part)
                return
            self._pieces += 1
            part.told = place + 1
            text = part.choice.answer[place * _BYTES : (place + 1) * _BYTES]
            if self._ask.stream and text:
                out.append(self._style.piece(part.choice, text))
                if self._fault.comments:
                    out.append(b": still here\n\n")
        if self._ask.stream:
            self._exchange.send(b"".join(out))

    # ── endings ──────────────────────────────────────────────────────────────────────────────────────
    def _end(self) -> None:
        self._metrics.e2e.observe(self._loop.time() - self._began)
        tokens = sum(part.choice.tokens for part in self._parts.values())
        if tokens > len(self._parts):
            self._metrics.gap.observe((self._loop.time() - self._began) / tokens, tokens - len(self._parts))
        if self._ask.stream:
            self._close()
        else:
            self._whole("", [])

    def _close(self) -> None:
        self._exchange.send(self._style.closing(self._usage()))
        self._exchange.end()

    def _whole(self, reason: str, cut: list[Part]) -> None:
        answers = [
            (part.choice, part.choice.answer[: part.seen * _BYTES],
             reason if part in cut else part.choice.reason)
            for part in self._parts.values()
        ]
        self._exchange.json(200, self._style.whole(answers, self._usage()))

    def _strike(self, part: Part) -> None:
        """The fault that was asked for happens now."""
        ending = self._fault.ending
        if ending == "abort":
            part.seen = part.told
            self.abort()
        elif ending == "error":
            self.drop("error")
            body = faults.error_body(500, _DEAD)
            if not self._ask.stream:
                self._exchange.json(500, body)
                return
            self._exchange.send(event(body) + DONE)
            self._exchange.end()
        else:
            self.drop()
            self._break(ending, part)

    def _break(self, ending: str, part: Part) -> None:
        if ending == "stall":
            return                                               # the client waits until it loses patience
        if ending == "close":
            self._exchange.close()
            return
        if self._ask.stream:
            half = self._style.piece(part.choice, "half")
            self._exchange.raw(b"%x\r\n%b" % (len(half), half[: len(half) // 2]))
        else:
            self._exchange.head(200, "application/json", [("Content-Length", "1000")])
            self._exchange.raw(b'{"id":"half')
        self._exchange.reset()

    def _usage(self) -> Usage:
        parts = self._parts.values()
        prompts = {id(part.choice.ids): len(part.choice.ids) for part in parts}
        cached = max(part.cached for part in parts) if self._options.prompt_tokens_details else None
        return Usage(sum(prompts.values()), sum(part.seen for part in parts), cached)
