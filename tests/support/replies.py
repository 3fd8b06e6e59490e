"""Building the bytes that a stub worker says."""

from __future__ import annotations

import http
import json
from collections.abc import Iterable, Sequence
from typing import Any

Fields = Sequence[tuple[str, str]]
JSON: Fields = (("Content-Type", "application/json"),)
SSE: Fields = (("Content-Type", "text/event-stream; charset=utf-8"),)
DONE = b"data: [DONE]\n\n"


def head(status: int, fields: Fields = ()) -> bytes:
    """A response head, with its empty line."""
    first = f"HTTP/1.1 {status} {http.HTTPStatus(status).phrase}"
    lines = [first, *(f"{name}: {value}" for name, value in fields)]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def answer(status: int, body: bytes, fields: Fields = JSON) -> list[bytes]:
    """A whole response with a Content-Length, in one write."""
    return [head(status, [*fields, ("Content-Length", str(len(body)))]) + body]


def unary(value: Any, fields: Fields = JSON) -> list[bytes]:
    """200 with `value` as JSON."""
    return answer(200, json.dumps(value).encode(), fields)


def error(status: int, value: Any, fields: Fields = JSON) -> list[bytes]:
    """An engine's refusal."""
    return answer(status, json.dumps(value).encode(), fields)


def chunk(data: bytes) -> bytes:
    """One chunk of a chunked body."""
    return b"%x\r\n%b\r\n" % (len(data), data)


LAST = b"0\r\n\r\n"


def chunked(pieces: Iterable[bytes], *, gap: float = 0.0, fields: Fields = SSE, end: bool = True,
            status: int = 200) -> list[bytes | float]:
    """A chunked response, a write for each piece with `gap` seconds before all but the first."""
    steps: list[bytes | float] = [head(status, [*fields, ("Transfer-Encoding", "chunked")])]
    for number, piece in enumerate(pieces):
        if gap and number:
            steps.append(gap)
        steps.append(chunk(piece))
    if end:
        steps.append(LAST)
    return steps


def event(value: Any) -> bytes:
    """One SSE event: JSON for a dict, text as it is."""
    return f"data: {value if isinstance(value, str) else json.dumps(value)}\n\n".encode()


def word(text: str, finish: str | None = None) -> dict[str, Any]:
    """A chat completion chunk."""
    return {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m",
            "choices": [{"index": 0, "delta": {"content": text}, "finish_reason": finish}]}


def words(count: int, finish: str | None = "stop") -> list[bytes]:
    """`count` content events, numbered, the last with `finish`, and `[DONE]`."""
    last = count - 1
    return [*(event(word(f"w{n}", finish if n == last else None)) for n in range(count)), DONE]


def sse(events: Iterable[Any], *, gap: float = 0.0, fields: Fields = SSE, done: bool = True,
        end: bool = True) -> list[bytes | float]:
    """A streamed answer of `events` (values as in `event`, or bytes as they are)."""
    pieces = [one if isinstance(one, bytes) else event(one) for one in events]
    return chunked([*pieces, *([DONE] if done else [])], gap=gap, fields=fields, end=end)
