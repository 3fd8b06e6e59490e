"""Events of a stream as their data, however the bytes were cut (WHATWG, §9.2.6)."""

from __future__ import annotations


class DataReader:
    """Feed bytes, get the data of each event they complete. Comments and names are passed over."""

    __slots__ = ("_held", "_parts")

    def __init__(self) -> None:
        self._parts: list[bytes] = []   # of the event that is not complete
        self._held = False              # a CR was last: an LF may belong to it

    def feed(self, data: bytes) -> list[bytes]:
        """The data of the events that end in `data`."""
        if self._held or b"\r" in data:
            data = self._one_line_end(data)
        if b"\n" not in data:
            if data:
                self._parts.append(data)
            return []
        if self._parts:
            data = b"".join((*self._parts, data))
        *events, rest = data.split(b"\n\n")
        self._parts = [rest] if rest else []
        return [_data_of(event) for event in events if _speaks(event)]

    def flush(self) -> list[bytes]:
        """The data of the event that the end of the stream cut off, if it has a whole line."""
        rest = b"".join(self._parts)
        self._parts = []
        return [_data_of(rest)] if _speaks(rest) else []

    def _one_line_end(self, data: bytes) -> bytes:
        if self._held:
            data = b"\r" + data
        self._held = data.endswith(b"\r")
        if self._held:
            data = data[:-1]
        return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")


def _speaks(event: bytes) -> bool:
    return event.startswith(b"data:") or b"\ndata:" in event


def _data_of(event: bytes) -> bytes:
    if event.startswith(b"data: ") and b"\n" not in event:
        return event[6:]
    lines = [line[5:].removeprefix(b" ") for line in event.split(b"\n") if line.startswith(b"data:")]
    return b"\n".join(lines)
