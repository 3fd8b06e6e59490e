"""A chat stream as a Messages stream: feed what arrived, send what comes out (infera-wire §7.3; R040–R062).

An event leaves in the step in which its source arrived; only the reason and the usage, which close the message,
wait for each other, and of interleaved tool calls all but one wait (see `ordering`).
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from infera_cli.protocol.chat import BROKEN_OFF, NO_USAGE, Call, ChunkChoice, Function, read_chunk
from infera_cli.protocol.messages.ending import message, stop_reason, usage_of
from infera_cli.protocol.messages.errors import engine_error_event
from infera_cli.protocol.messages.outgoing import Outgoing
from infera_cli.protocol.messages.request import ChatAsk
from infera_cli.protocol.ordering import Ordering
from infera_cli.protocol.sse_data import DataReader

PING = b'event: ping\ndata: {"type": "ping"}\n\n'
_NO_FUNCTION = Function()
State = Literal["open", "done", "aborted", "cut"]
"""done: the message is whole; aborted: the engine said that it failed, and so did we; cut: it ended too early."""


def event(name: str, data: dict[str, Any]) -> bytes:
    """One event; its name is also its type."""
    return b"event: %b\ndata: %b\n\n" % (name.encode(), msgspec.json.encode({"type": name, **data}))


class MessageStream:
    """Translates the stream of one answer. `name` is the message's id."""

    __slots__ = ("_ask", "_finish", "_order", "_out", "_reader", "_started", "_stopped_by", "_usage", "name", "state")

    def __init__(self, ask: ChatAsk, name: str) -> None:
        self.name = name
        self.state: State = "open"
        self._ask = ask
        self._reader = DataReader()
        self._out = Outgoing(name)
        self._order = Ordering(self._out)
        self._started = False
        self._finish: str | None = None
        self._stopped_by: Any = None
        self._usage = NO_USAGE

    def feed(self, data: bytes) -> bytes:
        """The events that follow from `data`."""
        for payload in self._reader.feed(data):
            self._take(payload)
        return self._out.take()

    def flush(self) -> bytes:
        """The engine ended its stream properly; `state` then says whether the message is whole."""
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
            self._done()
            return
        chunk = read_chunk(payload)
        if chunk is None:
            return
        if chunk.error is not None or chunk.object == "error":
            self._abort(engine_error_event(payload))
            return
        if chunk.usage is not None:
            self._usage = chunk.usage
        if chunk.choices:
            self._choice(chunk.choices[0])
        elif chunk.usage is not None and self._finish is not None:
            self._conclude()

    def _choice(self, choice: ChunkChoice) -> None:
        if choice.index:  # one message has one choice
            return
        order = self._order
        if not self._started:
            self._started = True
            begun = message(self.name, self._ask, [], (None, None), self._usage)
            self._out.write(event("message_start", {"message": begun}))
        said = choice.delta
        thought = said.reasoning_content or said.reasoning
        if thought and self._ask.thinking:
            order.text("thinking", thought)
        if said.content:
            order.text("text", said.content)
        elif said.refusal:
            order.text("text", said.refusal)
        if said.tool_calls:
            self._calls(said.tool_calls)
        if choice.finish_reason is not None:
            self._finished(choice)

    def _calls(self, calls: list[Call]) -> None:
        for call in calls:
            function = call.function or _NO_FUNCTION
            self._order.call(call.index, call.id, function.name, function.arguments or "")

    def _finished(self, choice: ChunkChoice) -> None:
        if choice.finish_reason in BROKEN_OFF:
            self._abort(event("error", _broken_off(choice.finish_reason)))
            return
        self._finish, self._stopped_by = choice.finish_reason, choice.stop_reason

    # ── endings ──────────────────────────────────────────────────────────────────────────────────────
    def _done(self) -> None:
        if self._finish is None and self._started:
            self._finish = "stop"
        if self._finish is not None:
            self._conclude()

    def _conclude(self) -> None:
        self.state = "done"
        self._order.close()
        reason, sequence = stop_reason(self._finish, self._stopped_by, self._ask, tools=self._out.has_tools)
        delta = {"delta": {"stop_reason": reason, "stop_sequence": sequence}, "usage": usage_of(self._usage)}
        self._out.write(event("message_delta", delta) + event("message_stop", {}))

    def _abort(self, last: bytes) -> None:
        self.state = "aborted"
        self._out.write(last)


def _broken_off(reason: str | None) -> dict[str, Any]:
    return {"error": {"type": "api_error", "message": f"The engine ended its answer early ({reason})."}}
