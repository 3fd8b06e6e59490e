"""Items of a response as events: a pen for `ordering` that numbers them and remembers what was said."""

from __future__ import annotations

from typing import Any

import msgspec

from infera_cli.protocol.ordering import Block
from infera_cli.protocol.responses.items import Item, call_item, item_id, message_item, reasoning_item, text_part

_json = msgspec.json.encode
_PREFIX = {"text": "msg_", "thinking": "rs_", "tool": "fc_"}
_EVENT = {"text": "response.output_text", "thinking": "response.reasoning_text",
          "tool": "response.function_call_arguments"}  # fmt: skip


class Outgoing:
    """Gathers the events of one step; `output` are the items that are whole. `name` is the response's id."""

    __slots__ = ("_call", "_item", "_name", "_number", "_out", "_said", "output", "status")

    def __init__(self, name: str) -> None:
        self.output: list[Item] = []
        self.status = "completed"  # of a message that closes now
        self._name = name
        self._out: list[bytes] = []
        self._number = 0           # of the next event
        self._item = ""            # id of the open item
        self._call = ""            # and of its call
        self._said: list[str] = []

    def take(self) -> bytes:
        """What was written since the last time."""
        out, self._out = self._out, []
        return b"".join(out)

    def event(self, kind: str, members: dict[str, Any]) -> None:
        """One event; its name is also its type."""
        data = _json({"type": kind, "sequence_number": self._number, **members})
        self._number += 1
        self._out.append(b"event: %b\ndata: %b\n\n" % (kind.encode(), data))

    # ── ordering.Pen ─────────────────────────────────────────────────────────────────────────────────
    def open(self, block: Block) -> None:
        """output_item.added, and the part that the text goes to."""
        place = len(self.output)
        self._said = []
        self._item = item_id(_PREFIX[block.kind], self._name, place)
        self._call = block.call or item_id("call_", self._name, place)
        item = self._made(block, None, "in_progress")
        self.event("response.output_item.added", {"output_index": place, "item": item})
        if block.kind != "tool":
            self.event("response.content_part.added", {**self._place(block), "part": self._part(block, "")})

    def more(self, block: Block, piece: str) -> None:
        """A delta."""
        self._said.append(piece)
        extra: dict[str, Any] = {"logprobs": []} if block.kind == "text" else {}
        self.event(_EVENT[block.kind] + ".delta", {**self._place(block), "delta": piece, **extra})

    def close(self, block: Block) -> None:
        """What was said as a whole, the part, the item."""
        text = "".join(self._said)
        status = self.status if block.kind == "text" else "completed"
        if block.kind == "tool":
            self.event(_EVENT["tool"] + ".done", {**self._place(block), "name": block.tool, "arguments": text})
        else:
            extra: dict[str, Any] = {"logprobs": []} if block.kind == "text" else {}
            self.event(_EVENT[block.kind] + ".done", {**self._place(block), "text": text, **extra})
            self.event("response.content_part.done", {**self._place(block), "part": self._part(block, text)})
        item = self._made(block, text, status)
        self.event("response.output_item.done", {"output_index": len(self.output), "item": item})
        self.output.append(item)

    def _place(self, block: Block) -> dict[str, Any]:
        place: dict[str, Any] = {"item_id": self._item, "output_index": len(self.output)}
        return place if block.kind == "tool" else {**place, "content_index": 0}

    def _part(self, block: Block, text: str) -> Item:
        return text_part(text) if block.kind == "text" else {"type": "reasoning_text", "text": text}

    def _made(self, block: Block, text: str | None, status: str) -> Item:
        if block.kind == "tool":
            return call_item(self._item, self._call, block.tool or "", text or "", status)
        make = message_item if block.kind == "text" else reasoning_item
        return make(self._item, text, status)
