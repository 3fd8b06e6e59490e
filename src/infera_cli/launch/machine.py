"""What the supervisor needs of a machine: run a shell text there, and say how it went."""

from __future__ import annotations

from typing import NamedTuple, Protocol

MOST_OUTPUT = 1 << 20
"""Bytes kept of what a text prints; of more, this much from the beginning and a last piece are kept."""
_LAST_PIECE = 4096

NOT_SENT = "not_sent"
"""The `code` of a HostUnreachable that was raised before the text could have reached the machine."""


class Output(NamedTuple):
    """How a text ended: its status, and what it printed, both streams together."""

    status: int
    text: str

    @property
    def ending(self) -> str:
        """The last 800 characters, result lines left out: what an error message quotes."""
        lines = [line for line in self.text.splitlines() if not line.startswith("infera ")]
        return "\n".join(lines).strip()[-800:]


class Machine(Protocol):
    """A machine that replicas are launched on."""

    async def run(self, text: str, *, within: float) -> Output:
        """Give `text` to `/bin/sh -s` there, and wait for it at most `within` seconds.

        Raises HostUnreachable (no connection, no answer in time), HostRefused (host key, authentication).
        """

    async def close(self) -> None:
        """Let go of what is held; running texts are cut off, detached processes live on."""


class Capture:
    """Keeps what is worth keeping of an output of any length."""

    def __init__(self, most: int = MOST_OUTPUT) -> None:
        self._most = most
        self._head = bytearray()
        self._tail = b""
        self._dropped = 0

    def add(self, piece: bytes) -> None:
        """Take in the next bytes."""
        room = self._most - len(self._head)
        self._head += piece[:room]
        if len(piece) > room:
            rest = self._tail + piece[room:]
            self._dropped += max(0, len(rest) - _LAST_PIECE)
            self._tail = rest[-_LAST_PIECE:]

    def text(self) -> str:
        """What was kept, with a remark where something is missing."""
        head = self._head.decode(errors="replace")
        if not self._tail:
            return head
        return f"{head}\n[{self._dropped} bytes left out]\n{self._tail.decode(errors='replace')}"
