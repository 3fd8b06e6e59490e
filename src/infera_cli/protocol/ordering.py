"""The blocks of an answer on their way out: one is open at a time, and each is opened and closed once.

Engines may mix pieces of several tool calls. The first call streams; another waits until the arguments of the one
before are a whole JSON object, or the answer ends (R044, R059). Text ends where a call begins, and the other way.
How a block looks is the pen's business.
"""

from __future__ import annotations

from collections import deque
from typing import Literal, Protocol

import msgspec

Kind = Literal["text", "thinking", "tool"]


class Block:
    """One block. `call` and `tool` name a tool call; `pieces` are its arguments so far, or what waits to be shown."""

    __slots__ = ("call", "is_open", "kind", "pieces", "tool")

    def __init__(self, kind: Kind, call: str | None = None, tool: str | None = None) -> None:
        self.kind: Kind = kind
        self.call = call
        self.tool = tool
        self.pieces: list[str] = []
        self.is_open = False

    @property
    def may_open(self) -> bool:
        """A call cannot be shown before its tool has a name."""
        return self.kind != "tool" or bool(self.tool)

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


class Pen(Protocol):
    """Writes blocks in one API's words."""

    def open(self, block: Block) -> None:
        """The next block begins."""

    def more(self, block: Block, piece: str) -> None:
        """More of the open block; `piece` is not empty."""

    def close(self, block: Block) -> None:
        """The open block is whole."""


class Ordering:
    """Takes pieces as they come and tells `pen` what may be written."""

    __slots__ = ("_any", "_blocks", "_calls", "_pen")

    def __init__(self, pen: Pen) -> None:
        self._pen = pen
        self._blocks: deque[Block] = deque()  # the first may be open, the others wait
        self._calls: dict[int, Block] = {}
        self._any = False

    def text(self, kind: Kind, piece: str) -> None:
        """More of the text or the thinking."""
        blocks = self._blocks
        if blocks and blocks[-1].kind == kind:
            self._extend(blocks[-1], piece)
            return
        block = Block(kind)
        block.pieces.append(piece)
        self._append(block)

    def call(self, index: int, call: str | None, tool: str | None, piece: str) -> None:
        """A piece of the tool call number `index`; some engines number all of them alike, so a new id is a new one."""
        block = self._calls.get(index)
        if block is None or (call and block.call and call != block.call):
            block = self._calls[index] = Block("tool", call, tool)
            if piece:
                block.pieces.append(piece)
            self._append(block)
            return
        block.call = block.call or call
        block.tool = block.tool or tool
        if block in self._blocks:
            self._extend(block, piece)
            self._advance()

    def close(self) -> None:
        """The answer is complete: what waits goes out; an answer without anything has one empty text."""
        while self._blocks:
            block = self._blocks[0]
            if not block.is_open and block.may_open:
                self._open(block)
            self._pop()
        if not self._any:
            self._append(Block("text"))
            self._pop()

    # ── within ───────────────────────────────────────────────────────────────────────────────────────
    def _append(self, block: Block) -> None:
        self._blocks.append(block)
        self._advance()

    def _extend(self, block: Block, piece: str) -> None:
        if not piece:
            return
        if block.kind == "tool" or not block.is_open:
            block.pieces.append(piece)
        if block.is_open:
            self._pen.more(block, piece)

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

    def _open(self, block: Block) -> None:
        self._any = block.is_open = True
        self._pen.open(block)
        waiting = "".join(block.pieces)
        if waiting:
            self._pen.more(block, waiting)

    def _pop(self) -> None:
        block = self._blocks.popleft()
        if block.is_open:
            self._pen.close(block)
