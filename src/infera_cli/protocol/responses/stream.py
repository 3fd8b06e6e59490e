"""A chat stream as a Responses stream, in the public order of events:

`response.created`, `response.in_progress`; for each item `response.output_item.added`, for text and reasoning
`response.content_part.added`, the deltas, `….done`, `response.content_part.done`, then `response.output_item.done`;
last one of `response.completed`, `response.incomplete`, `response.failed`.
"""

from __future__ import annotations

from typing import Any, Literal

from infera_cli.protocol.chat import BROKEN_OFF, NO_USAGE, ChunkChoice, Function, read_chunk
from infera_cli.protocol.messages.errors import message_of
from infera_cli.protocol.ordering import Ordering
from infera_cli.protocol.responses.items import response, status_of
from infera_cli.protocol.responses.outgoing import Outgoing
from infera_cli.protocol.responses.request import ResponseAsk
from infera_cli.protocol.sse_data import DataReader

State = Literal["open", "done", "aborted", "cut"]
_NO_FUNCTION = Function()


class ResponseStream:
    """Translates the stream of one answer. `name` is the response's id; states as in `MessageStream`."""

    __slots__ = ("_ask", "_created", "_finish", "_order", "_out", "_reader", "_started", "_usage", "name", "state")

    def __init__(self, ask: ResponseAsk, name: str) -> None:
        self.name = name
        self.state: State = "open"
        self._ask = ask
        self._reader = DataReader()
        self._out = Outgoing(name)
        self._order = Ordering(self._out)
        self._started = False
        self._created: Any = 0
        self._finish: str | None = None
        self._usage = NO_USAGE

    def feed(self, data: bytes) -> bytes:
        """The events that follow from `data`."""
        for payload in self._reader.feed(data):
            self._take(payload)
        return self._out.take()

    def flush(self) -> bytes:
        """The engine ended its stream properly; `state` then says whether the response is whole."""
        for payload in self._reader.flush():
            self._take(payload)
        if self.state == "open":
            if self._finish is not None:
                self._conclude()
            else:
                self.state = "cut"
        return self._out.take()

    # ── one event ────────────────────────────────────────────────────────────────────────────────────
    def _take(self, payload: bytes) -> None:
        if self.state != "open":
            return
        if payload == b"[DONE]":
            if self._finish is None and self._started:
                self._finish = "stop"
            if self._finish is not None:
                self._conclude()
            return
        chunk = read_chunk(payload)
        if chunk is None:
            return
        if chunk.error is not None or chunk.object == "error":
            self._fail(message_of(payload) or "The engine failed.")
            return
        if chunk.usage is not None:
            self._usage = chunk.usage
        if chunk.choices:
            self._begin(chunk.created)
            self._choice(chunk.choices[0])
        elif chunk.usage is not None and self._finish is not None:
            self._conclude()

    def _begin(self, created: Any) -> None:
        if self._started:
            return
        self._started = True
        self._created = created
        begun = response(self.name, self._ask, created, "in_progress")
        self._out.event("response.created", {"response": begun})
        self._out.event("response.in_progress", {"response": begun})

    def _choice(self, choice: ChunkChoice) -> None:
        if choice.index:
            return
        said, order = choice.delta, self._order
        thought = said.reasoning_content or said.reasoning
        if thought:
            order.text("thinking", thought)
        text = said.content or said.refusal
        if text:
            order.text("text", text)
        for call in said.tool_calls or ():
            function = call.function or _NO_FUNCTION
            order.call(call.index, call.id, function.name, function.arguments or "")
        if choice.finish_reason in BROKEN_OFF:
            self._fail(f"The engine ended its answer early ({choice.finish_reason}).")
        elif choice.finish_reason is not None:
            self._finish = choice.finish_reason

    # ── endings ──────────────────────────────────────────────────────────────────────────────────────
    def _conclude(self) -> None:
        self.state = "done"
        status = self._out.status = status_of(self._finish)
        self._order.close()
        whole = response(self.name, self._ask, self._created, status, output=self._out.output, usage=self._usage)
        self._out.event(f"response.{status}", {"response": whole})

    def _fail(self, why: str) -> None:
        self._begin(0)
        self.state = "aborted"
        failed = response(
            self.name, self._ask, self._created, "failed", output=self._out.output, usage=self._usage, error=why
        )
        self._out.event("response.failed", {"response": failed})
