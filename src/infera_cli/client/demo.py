"""The traffic of `infera demo`: a few conversations through a running server, measured as a client sees them.

Says nothing to anybody; `converse` yields what happened, `summarize` adds it up (design §1).
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from statistics import quantiles
from typing import Any

import httpx
import msgspec

SYSTEM = (
    "You are the friendly assistant of a small bookshop by the harbour. Opening hours are nine to six on "
    "weekdays and ten to four on Saturdays; the shop is closed on Sundays. Orders placed before noon can "
    "be collected the next morning, books from abroad take eight to twelve days. Members pay no postage "
    "and may return any book within thirty days. Gift wrapping is free, cards cost one euro. Be brief, be "
    "kind, name at most three titles in an answer, and never invent a price. When you do not know "
    "something, say so and offer to ask a colleague at the counter."
)
QUESTIONS = (
    "Do you have a good sea story for a long train journey?",
    "Which of them would you give to somebody who rarely reads?",
    "Could I collect it tomorrow morning if I order now?",
    "And what would it cost to have it wrapped with a card?",
    "Is there a second book by the same author that you like?",
    "Thank you! May I bring it back if my aunt has it already?",
)


@dataclass(frozen=True, slots=True)
class Asked:
    """A turn began."""

    conversation: int
    turn: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """A turn is over. Times in seconds since it was sent; `cached` are prompt tokens the worker had already,
    None where it does not say. With `error` the conversation ends."""

    conversation: int
    turn: int
    worker: str
    prompt: int = 0
    cached: int | None = None
    completion: int = 0
    ttft: float = 0.0
    latency: float = 0.0
    text: str = ""
    error: str | None = None


Progress = Asked | Answered


@dataclass(frozen=True, slots=True)
class Share:
    """What one worker did: `part` of all turns, 0…1."""

    worker: str
    turns: int
    part: float
    conversations: int


@dataclass(frozen=True, slots=True)
class Summary:
    """All turns together. `reuse` is the share of prompt tokens that were cached, None when no worker tells;
    percentiles are None when nothing was answered. Seconds."""

    turns: int
    errors: int
    shares: tuple[Share, ...]
    reuse: float | None
    latency_p50: float | None
    latency_p90: float | None
    ttft_p50: float | None
    ttft_p90: float | None


@dataclass(slots=True)
class _Conversation:
    number: int
    messages: list[dict[str, str]]
    session: str | None = None


async def converse(
    base_url: str, *, conversations: int = 6, turns: int = 4, max_tokens: int = 48, model: str | None = None,
    transport: httpx.AsyncBaseTransport | None = None,
) -> AsyncIterator[Progress]:
    """Hold `conversations` at once, `turns` each, against the server at `base_url`, and yield progress as
    it comes.

    Answers are fed back, and the session id that the server gives is kept. Closing the iterator stops all.
    Failures are values (`Answered.error`), nothing is raised for them.
    """
    news: asyncio.Queue[Progress | None] = asyncio.Queue()
    timeout = httpx.Timeout(60.0, connect=5.0)
    async with httpx.AsyncClient(
        base_url=base_url, timeout=timeout, transport=transport, trust_env=False
    ) as client:
        extra = {"max_tokens": max_tokens} | ({"model": model} if model else {})
        tasks = [asyncio.create_task(_hold(client, number, turns, extra, news))
                 for number in range(1, conversations + 1)]
        everyone = asyncio.gather(*tasks)
        everyone.add_done_callback(lambda _: news.put_nowait(None))
        try:
            while (step := await news.get()) is not None:
                yield step
            await everyone
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def _hold(
    client: httpx.AsyncClient, number: int, turns: int, extra: dict[str, Any],
    news: asyncio.Queue[Progress | None],
) -> None:
    # The reader's name differs, so each conversation has a prefix of its own after the shared instructions.
    talk = _Conversation(number, [{"role": "system", "content": SYSTEM},
                                  {"role": "user", "content": f"Good day, this is reader number {number}."}])
    for turn in range(1, turns + 1):
        question = QUESTIONS[(number + turn) % len(QUESTIONS)]
        if turn == 1:
            talk.messages[-1]["content"] += f" {question}"
        else:
            talk.messages.append({"role": "user", "content": question})
        news.put_nowait(Asked(number, turn))
        answered = await _ask(client, talk, turn, extra)
        news.put_nowait(answered)
        if answered.error is not None:
            return
        talk.messages.append({"role": "assistant", "content": answered.text})


async def _ask(client: httpx.AsyncClient, talk: _Conversation, turn: int, extra: dict[str, Any]) -> Answered:
    body = {"messages": talk.messages, "stream": True, "stream_options": {"include_usage": True}, **extra}
    headers = {"X-Session-Id": talk.session} if talk.session else {}
    reading = _Reading()
    worker = ""
    try:
        async with client.stream("POST", "/v1/chat/completions", json=body, headers=headers) as answer:
            worker = answer.headers.get("X-Infera-Worker", "")
            talk.session = answer.headers.get("X-Session-Id") or talk.session
            if answer.status_code != httpx.codes.OK:
                await answer.aread()
                reading.error = f"HTTP {answer.status_code}: {answer.text[:200]}"
            else:
                async for line in answer.aiter_lines():
                    reading.line(line)
                reading.end()
    except httpx.HTTPError as broken:
        reading.error = str(broken) or type(broken).__name__
    return reading.answered(talk.number, turn, worker)


class _Reading:
    """Reads one SSE stream, line by line."""

    def __init__(self) -> None:
        self._sent = time.perf_counter()
        self._first: float | None = None
        self._text: list[str] = []
        self._usage: dict[str, Any] = {}
        self._done = False
        self.error: str | None = None

    def line(self, line: str) -> None:
        """One line of the stream; comments and other fields are skipped."""
        if not line.startswith("data:"):
            return
        data = line[5:].strip()
        if data == "[DONE]":
            self._done = True
            return
        try:
            chunk = msgspec.json.decode(data)
        except msgspec.DecodeError:
            self.error = "the stream holds something that is not JSON"
            return
        if "error" in chunk:
            said = chunk["error"]
            self.error = str(said.get("message", "error")) if isinstance(said, dict) else str(said)
        self._usage = chunk.get("usage") or self._usage
        for choice in chunk.get("choices") or ():
            text = (choice.get("delta") or {}).get("content")
            if text:
                self._first = self._first if self._first is not None else time.perf_counter()
                self._text.append(text)

    def end(self) -> None:
        """The stream is over; without [DONE] it was cut."""
        if not self._done and self.error is None:
            self.error = "the stream ended early"

    def answered(self, conversation: int, turn: int, worker: str) -> Answered:
        """What was read, as a value."""
        now = time.perf_counter()
        details = self._usage.get("prompt_tokens_details") or {}
        return Answered(
            conversation=conversation, turn=turn, worker=worker, prompt=self._usage.get("prompt_tokens", 0),
            cached=details.get("cached_tokens"), completion=self._usage.get("completion_tokens", 0),
            ttft=(self._first or now) - self._sent, latency=now - self._sent, text="".join(self._text),
            error=self.error,
        )


def summarize(answered: Sequence[Answered]) -> Summary:
    """Who served what, how much prefix was reused, how long it took."""
    good = [turn for turn in answered if turn.error is None]
    count = Counter(turn.worker for turn in good)
    held = {worker: len({turn.conversation for turn in good if turn.worker == worker}) for worker in count}
    told = [turn for turn in good if turn.cached is not None]
    prompt = sum(turn.prompt for turn in told)
    latencies, firsts = [turn.latency for turn in good], [turn.ttft for turn in good]
    return Summary(
        turns=len(good), errors=len(answered) - len(good),
        shares=tuple(Share(worker, turns, turns / len(good), held[worker])
                     for worker, turns in sorted(count.items())),
        reuse=sum(turn.cached or 0 for turn in told) / prompt if prompt else None,
        latency_p50=_percentile(latencies, 50), latency_p90=_percentile(latencies, 90),
        ttft_p50=_percentile(firsts, 50), ttft_p90=_percentile(firsts, 90),
    )


def _percentile(values: Sequence[float], percent: int) -> float | None:
    if len(values) < 2:
        return values[0] if values else None
    return quantiles(values, n=100, method="inclusive")[percent - 1]
