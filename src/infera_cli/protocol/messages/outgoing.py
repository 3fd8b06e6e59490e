"""Blocks of a message as events (infera-wire §7.3)."""

from __future__ import annotations

import msgspec

from infera_cli.protocol.messages.answer import tool_id
from infera_cli.protocol.ordering import Block

_json = msgspec.json.encode
_DELTA = b'event: content_block_delta\ndata: {"type":"content_block_delta","index":%d,"delta":{"type":'
_DELTAS = {
    "text": _DELTA + b'"text_delta","text":%b}}\n\n',
    "thinking": _DELTA + b'"thinking_delta","thinking":%b}}\n\n',
    "tool": _DELTA + b'"input_json_delta","partial_json":%b}}\n\n',
}
_START = b'event: content_block_start\ndata: {"type":"content_block_start","index":%d,"content_block":%b}\n\n'
_STOP = b'event: content_block_stop\ndata: {"type":"content_block_stop","index":%d}\n\n'


class Outgoing:
    """Gathers the events of one step, `take` hands them over; a pen for `ordering`. `name` is the message's id."""

    __slots__ = ("_index", "_name", "_out", "_tools")

    def __init__(self, name: str) -> None:
        self._name = name
        self._out: list[bytes] = []
        self._index = -1  # of the block that was opened last
        self._tools = 0   # calls shown so far

    @property
    def has_tools(self) -> bool:
        """Whether a tool call was shown."""
        return self._tools > 0

    def take(self) -> bytes:
        """What was written since the last time."""
        if not self._out:
            return b""
        out = b"".join(self._out)
        self._out = []
        return out

    def write(self, data: bytes) -> None:
        """An event that belongs to no block."""
        self._out.append(data)

    # ── ordering.Pen ─────────────────────────────────────────────────────────────────────────────────
    def open(self, block: Block) -> None:
        """content_block_start."""
        self._index += 1
        self._out.append(_START % (self._index, _json(self._beginning(block))))

    def _beginning(self, block: Block) -> dict[str, object]:
        if block.kind == "tool":
            given = tool_id(block.call, self._name, self._tools)
            self._tools += 1
            return {"type": "tool_use", "id": given, "name": block.tool, "input": {}}
        if block.kind == "thinking":
            return {"type": "thinking", "thinking": "", "signature": ""}
        return {"type": "text", "text": ""}

    def more(self, block: Block, piece: str) -> None:
        """content_block_delta."""
        self._out.append(_DELTAS[block.kind] % (self._index, _json(piece)))

    def close(self, block: Block) -> None:
        """content_block_stop."""
        self._out.append(_STOP % self._index)
