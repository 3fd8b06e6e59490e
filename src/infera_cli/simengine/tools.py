"""Answers that call a tool: what the engine says when `tool_choice` leaves it no other way.

The call's one argument, `text`, is the answer that would have been given without tools.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from infera_cli.simengine.ask import Choice
from infera_cli.simengine.styles import Chat, Messages, Usage, event

_json = msgspec.json.encode


def forced_tool(body: Mapping[str, Any]) -> str | None:
    """The tool that must be called, in a chat or a Messages body; None where the answer is text."""
    choice, tools = body.get("tool_choice"), body.get("tools")
    if not isinstance(tools, list) or not tools:
        return None
    if isinstance(choice, dict) and choice.get("type") in {"function", "tool"}:
        return str(choice.get("name") or choice.get("function", {}).get("name"))
    if choice == "required" or (isinstance(choice, dict) and choice.get("type") == "any"):
        first = tools[0]
        return str(first.get("name") or first.get("function", {}).get("name"))
    return None


def _inside(text: str) -> str:
    """`text` as it stands inside a JSON string."""
    return _json(text)[1:-1].decode()


class ChatCall(Chat):
    """A chat answer that is one call of `tool`."""

    def __init__(self, request: str, model: str, created: int, tool: str, **usage: bool) -> None:
        super().__init__(request, model, created, **usage)
        self._tool = tool
        self._begun = False

    def piece(self, choice: Choice, text: str) -> bytes:
        """Arguments as they grow; id and name come with the first."""
        self._told += 1
        return self._event([self._call(choice, self._grown(text), None)], **self._so_far())

    def last(self, choice: Choice, text: str, reason: str) -> bytes:
        """The end of the arguments, and why."""
        ended = "tool_calls" if reason == "stop" else reason
        self._told += 1
        call = self._call(choice, self._grown(text) + ('"}' if reason == "stop" else ""), ended)
        return self._event([call], **self._so_far())

    def _grown(self, text: str) -> str:
        return ("" if self._begun else '{"text":"') + _inside(text)

    def _call(self, choice: Choice, arguments: str, reason: str | None) -> dict[str, Any]:
        function: dict[str, Any] = {"arguments": arguments}
        call: dict[str, Any] = {"index": 0, "function": function}
        if not self._begun:
            self._begun = True
            call |= {"id": f"call_{self.id}", "type": "function"}
            function["name"] = self._tool
        return {"index": choice.index, "delta": {"tool_calls": [call]}, "logprobs": None, "finish_reason": reason}

    def whole(self, answers: Sequence[tuple[Choice, str, str]], usage: Usage) -> dict[str, Any]:
        """A `chat.completion` without text."""
        made = super().whole(answers, usage)
        for choice, (_, text, reason) in zip(made["choices"], answers, strict=True):
            arguments = _json({"text": text}).decode()
            function = {"name": self._tool, "arguments": arguments}
            call = {"id": f"call_{self.id}", "type": "function", "function": function}
            choice["message"] |= {"content": None, "tool_calls": [call]}
            choice["finish_reason"] = "tool_calls" if reason == "stop" else reason
        return made


class MessagesCall(Messages):
    """A message that is one use of `tool`."""

    def __init__(self, request: str, model: str, tool: str) -> None:
        super().__init__(request, model)
        self._tool = tool

    def opening(self, index: int, usage: Usage) -> bytes:
        """The message begins, and its one block with it."""
        message = self._message([], None, None, Usage(usage.prompt, 0, usage.cached))
        block = {"type": "content_block_start", "index": index, "content_block": {**self._use(), "input": {}}}
        start = event({"type": "message_start", "message": message}, "message_start")
        return start + event(block, "content_block_start") + self._delta('{"text":"')

    def piece(self, choice: Choice, text: str) -> bytes:
        """More of the input."""
        return self._delta(_inside(text))

    def last(self, choice: Choice, text: str, reason: str) -> bytes:
        """The end of the input and of the block."""
        self._ended = self._reason(choice, reason)
        end = _inside(text) + ('"}' if reason == "stop" else "")
        stop = {"type": "content_block_stop", "index": choice.index}
        return self._delta(end) + event(stop, "content_block_stop")

    def whole(self, answers: Sequence[tuple[Choice, str, str]], usage: Usage) -> dict[str, Any]:
        """A `message`."""
        choice, text, reason = answers[0]
        return self._message([{**self._use(), "input": {"text": text}}], *self._reason(choice, reason), usage)

    def _use(self) -> dict[str, Any]:
        return {"type": "tool_use", "id": f"toolu_{self.id}", "name": self._tool}

    def _delta(self, part: str) -> bytes:
        delta = {"type": "input_json_delta", "partial_json": part}
        return event({"type": "content_block_delta", "index": 0, "delta": delta}, "content_block_delta")

    def _reason(self, choice: Choice, reason: str) -> tuple[str, str | None]:
        return ("tool_use", None) if reason == "stop" else super()._reason(choice, reason)
