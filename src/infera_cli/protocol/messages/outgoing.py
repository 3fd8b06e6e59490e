"""The blocks of a message on their way out: one is open at a time, and each is opened and closed once.

Engines may mix pieces of several tool calls. The first call streams; another waits until the arguments of the one
before are a whole JSON object, or the answer ends (R044, R059). Text ends where a call begins, and the other way.
"""

from __future__ import annotations

from collections import deque

import msgspec

from infera_cli.protocol.messages.answer import tool_id

_json = msgspec.json.encode
_DELTA = b'event: content_block_delta\ndata: {"type":"content_block_delta","index":%d,"delta":{"type":'
_DELTAS = {
    "text": _DELTA + b'"text_delta","text":%b}}\n\n',
    "thinking": _DELTA + b'"thinking_delta","thinking":%b}}\n\n',
    "tool": _DELTA + b'"input_json_delta","partial_json":%b}}\n\n',
}
_START = b'event: content_block_start\ndata: {"type":"content_block_start","index":%d,"content_block":%b}\n\n'
_STOP = b'event: content_block_stop\ndata: {"type":"content_block_stop","index":%d}\n\n'


class _Block:
    """One block; `pieces` are all of its text so far, or its arguments."""

    __slots__ = ("id", "is_open", "kind", "name", "pieces")

    def __init__(self, kind: str, id: str | None = None, name: str | None = None) -> None:  # noqa: A002 - the API's word
        self.kind = kind
        self.id = id
        self.name = name
        self.pieces: list[str] = []
        self.is_open = False

    @property
    def may_open(self) -> bool:
        """A call cannot be shown before its tool has a name."""
        return self.kind != "tool" or bool(self.name)

    @property
    def may_close(self) -> bool:
        """Nothing more can belong to it."""
        return self.is_open and (self.kind != "tool" or _is_object("".join(self.pieces)))


def _is_object(text: str) -> bool:
    if not text.rstrip().endswith("}"):
        return False
    try:
        return isinstance(msgspec.json.decode(text), dict)
    except (msgspec.DecodeError, RecursionError):
        return False


class Outgoing:
    """Gathers the events of one step; `take` hands them over."""

    __slots__ = ("_blocks", "_calls", "_name", "_next", "_out", "_tools")

    def __init__(self, name: str) -> None:
        self._name = name
        self._out: list[bytes] = []
        self._blocks: deque[_Block] = deque()  # the first may be open, the others wait
        self._calls: dict[int, _Block] = {}
        self._next = 0                         # index of the next block
        self._tools = 0                        # calls shown so far

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

    def text(self, kind: str, piece: str) -> None:
        """More of the text or the thinking."""
        blocks = self._blocks
        if blocks and blocks[-1].kind == kind:
            self._extend(blocks[-1], piece)
            return
        block = _Block(kind)
        block.pieces.append(piece)
        self._append(block)

    def call(self, index: int, name_of_call: str | None, tool: str | None, piece: str) -> None:
        """A piece of the tool call number `index`."""
        block = self._calls.get(index)
        if block is None or (name_of_call and block.id and name_of_call != block.id):
            block = self._calls[index] = _Block("tool", name_of_call, tool)
            if piece:
                block.pieces.append(piece)
            self._append(block)
            return
        block.id = block.id or name_of_call
        block.name = block.name or tool
        if block in self._blocks:
            self._extend(block, piece)
            self._advance()

    def close(self) -> None:
        """The answer is complete: what waits goes out; a message without anything has one empty text."""
        while self._blocks:
            block = self._blocks[0]
            if not block.is_open and block.may_open:
                self._open(block)
            self._pop()
        if not self._next:
            self._blocks.append(_Block("text"))
            self._open(self._blocks[0])
            self._pop()

    # ── within ───────────────────────────────────────────────────────────────────────────────────────
    def _append(self, block: _Block) -> None:
        self._blocks.append(block)
        self._advance()

    def _extend(self, block: _Block, piece: str) -> None:
        if not piece:
            return
        if block.kind == "tool" or not block.is_open:
            block.pieces.append(piece)
        if block.is_open:
            self._out.append(_DELTAS[block.kind] % (self._next - 1, _json(piece)))

    def _advance(self) -> None:
        """Open the first; close it when another waits and nothing more can belong to it."""
        blocks = self._blocks
        while True:
            first = blocks[0]
            if not first.is_open and first.may_open:
                self._open(first)
            if len(blocks) < 2 or not first.may_close:
                return
            self._pop()

    def _open(self, block: _Block) -> None:
        start: dict[str, object] = {"type": block.kind}
        if block.kind == "tool":
            given = tool_id(block.id, self._name, self._tools)
            self._tools += 1
            start = {"type": "tool_use", "id": given, "name": block.name, "input": {}}
        elif block.kind == "thinking":
            start |= {"thinking": "", "signature": ""}
        else:
            start["text"] = ""
        self._out.append(_START % (self._next, _json(start)))
        block.is_open = True
        self._next += 1
        waiting = "".join(block.pieces)
        if waiting:
            self._out.append(_DELTAS[block.kind] % (self._next - 1, _json(waiting)))

    def _pop(self) -> None:
        if self._blocks.popleft().is_open:
            self._out.append(_STOP % (self._next - 1))
