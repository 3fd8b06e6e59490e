"""Server-sent events, decoded from bytes however they were cut.

Line ends may be LF, CRLF or CR; `data` may span lines; comments are passed over (WHATWG, §9.2.6).
"""

from __future__ import annotations

Event = tuple[bytes, bytes]
"""(event name or b"", data)."""


class EventDecoder:
    """Feed bytes, get whole events. An event that the end of the stream cuts off comes out of `flush`."""

    def __init__(self) -> None:
        self._partial: list[bytes] = []
        self._name = b""
        self._data: list[bytes] = []

    def feed(self, chunk: bytes) -> list[Event]:
        """The events that `chunk` completes."""
        if b"\n" not in chunk and b"\r" not in chunk:
            self._partial.append(chunk)
            return []
        text = b"".join((*self._partial, chunk))
        if b"\r" in text:
            text = self._one_line_end(text)
        *lines, rest = text.split(b"\n")
        self._partial = [rest] if rest else []
        return self._take(lines)

    def flush(self) -> list[Event]:
        """The event left open at the end of the stream, if any."""
        rest = b"".join(self._partial).replace(b"\r", b"\n")
        self._partial = []
        return self._take([*rest.split(b"\n"), b""])

    @staticmethod
    def _one_line_end(text: bytes) -> bytes:
        held = text.endswith(b"\r")     # its LF may come with the next read
        text = (text[:-1] if held else text).replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        return text + b"\r" if held else text

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
