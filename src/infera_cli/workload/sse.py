"""Server-sent events, decoded from bytes however they were cut.

Line ends may be LF, CRLF or CR; `data` may span lines; comments are passed over, as is a byte order mark at
the start (WHATWG, §9.2.6).
"""

from __future__ import annotations

Event = tuple[bytes, bytes]
"""(event name or b"", data)."""

MARK = b"\xef\xbb\xbf"


class EventDecoder:
    """Feed bytes, get whole events. An event that the end of the stream cuts off is none, and never comes out."""

    def __init__(self) -> None:
        self._careful = True        # the next read may begin with what is to be dropped
        self._begun = False
        self._mark = b""            # first bytes of what may be a byte order mark
        self._partial: list[bytes] = []
        self._name = b""
        self._data: list[bytes] = []

    def feed(self, chunk: bytes) -> list[Event]:
        """The events that `chunk` completes."""
        if self._careful:
            chunk = self._trimmed(chunk)
        if b"\r" in chunk:
            chunk = self._one_line_end(chunk)
        if b"\n" not in chunk:
            self._partial.append(chunk)
            return []
        if self._partial:
            chunk = b"".join((*self._partial, chunk))
        *lines, rest = chunk.split(b"\n")
        self._partial = [rest] if rest else []
        return self._take(lines)

    def _trimmed(self, chunk: bytes) -> bytes:
        """`chunk` without the LF of a CRLF that two reads share; the first bytes without a byte order mark."""
        if self._begun:
            self._careful = not chunk
            return chunk.removeprefix(b"\n")
        head = self._mark + chunk
        if len(head) < len(MARK) and MARK.startswith(head):
            self._mark = head
            return b""
        self._begun, self._careful = True, False
        return head.removeprefix(MARK)

    def _one_line_end(self, chunk: bytes) -> bytes:
        """LF for every line end. A CR at the very end is one already: who waited for its LF would hold back an event
        whose line ends are CR, until the next read."""
        self._careful = chunk.endswith(b"\r")
        return chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def _take(self, lines: list[bytes]) -> list[Event]:
        events: list[Event] = []
        for line in lines:
            if not line:
                if self._data:
                    events.append((self._name, b"\n".join(self._data)))
                self._name, self._data = b"", []
            elif line.startswith(b"data:"):
                self._data.append(line[6:] if line[5:6] == b" " else line[5:])
            elif line.startswith(b"event:"):
                self._name = line[6:].strip()
        return events
