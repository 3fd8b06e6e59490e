"""What cost routing reads of a request's body: model, texts of the prompt, answer length, extensions.

Knows the members of chat, completion, Anthropic and Responses bodies; tokens are not counted here, only text.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import msgspec

from infera_cli.protocol import extensions
from infera_cli.protocol.extensions import Extensions
from infera_cli.protocol.long_texts import long_texts
from infera_cli.protocol.peek import NOTHING, Peek, peek_of
from infera_cli.protocol.prompt_members import SYSTEM, Body, Chat, Said, decode_any, decode_chat

Piece = tuple[bool, bytes, bytes]
"""One message: whether it is the operator's, its text, and what else it holds (images, calls) as JSON."""


class Asked:
    """A body as far as cost routing reads it. `output` is the most tokens the client wants, None if it is silent;
    `cut` says that the body holds `x-inferact`."""

    __slots__ = ("cut", "extensions", "output", "peek", "pieces", "stream")

    def __init__(
        self, peek: Peek = NOTHING, pieces: Sequence[Piece] = (), output: int | None = None, stream: bool = False,
        wishes: Extensions = extensions.NONE, cut: bool = False,
    ) -> None:  # fmt: skip
        self.peek = peek
        self.pieces = pieces
        self.output = output
        self.stream = stream
        self.extensions = wishes
        self.cut = cut


def read(body: bytes | bytearray) -> Asked:
    """Read a JSON body; what is not JSON, or no object, tells nothing and is the engine's to judge.

    Raises RequestError for a malformed `x-inferact`.
    """
    texts: list[bytes] = []
    try:
        chat = decode_chat(_less_long_texts(bytes(body), texts) if len(body) > _LARGE else body)
        pieces = [_said(message, texts) for message in chat.messages]
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError, IndexError):
        return _read_any(body)
    return _asked(chat, pieces, _first(chat.max_completion_tokens, chat.max_tokens))


_CUTS: Final = 256
_LARGE: Final = 4096
"""Bytes; below it, decoding a text costs no more than finding its end."""


def _less_long_texts(body: bytes, texts: list[bytes]) -> bytes:
    """`body` with numbers in place of long texts that are written as they are; `texts` gets these, by number.

    A client's own number there is nothing that an engine would take, so mistaking it for a text harms nobody.
    """
    ends = long_texts(body, _CUTS)
    kept: list[bytes] = []
    done = 0
    for place in range(0, len(ends), 2):
        start, end = ends[place], ends[place + 1]
        if body.find(b"\\", start, end) < 0:
            kept.append(body[done : start - 1])
            kept.append(str(len(texts)).encode())
            texts.append(body[start:end])
            done = end + 1
    if not kept:
        return body
    kept.append(body[done:])
    return b"".join(kept)


def _said(message: Said, texts: list[bytes]) -> Piece:
    text = message.text
    if isinstance(text, str):
        return message.role in SYSTEM, text.encode("utf-8", "surrogatepass"), b""
    return message.role in SYSTEM, texts[text], b""


def _read_any(body: bytes | bytearray) -> Asked:
    """Anything but plain messages of texts."""
    try:
        members = decode_any(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return Asked()
    wanted = _first(members.max_completion_tokens, members.max_tokens, members.max_output_tokens)
    return _asked(members, tuple(_pieces(members)), wanted)


def _asked(members: Chat | Body, pieces: Sequence[Piece], output: int | None) -> Asked:
    cut = members.x_inferact is not msgspec.UNSET
    return Asked(
        peek_of(members.model, members.session_id, members.prompt_cache_key, members.metadata), pieces, output,
        members.stream is True, extensions.read(members.x_inferact) if cut else extensions.NONE, cut,
    )  # fmt: skip


def _first(*wanted: object) -> int | None:
    for value in wanted:
        if type(value) is int and value > 0:
            return value
    return None


def _pieces(members: Body) -> Iterator[Piece]:
    for operator in (members.system, members.instructions):
        if operator is not None:
            yield _piece(True, operator)
    if isinstance(members.messages, list):
        yield from _messages(members.messages)
    elif isinstance(members.input, list):
        yield from _messages(members.input)
    else:
        for text in (members.prompt, members.input):
            if text is not None:
                yield _piece(False, text)


def _messages(messages: Iterable[object]) -> Iterator[Piece]:
    for message in messages:
        if isinstance(message, dict):
            content = message.get("content")
            more = {key: value for key, value in message.items() if key not in {"role", "content"}}
            system, text, rest = _piece(message.get("role") in SYSTEM, content)
            yield system, text, rest + msgspec.json.encode(more) if more else rest
        else:
            yield _piece(False, message)


def _piece(system: bool, content: object) -> Piece:
    if isinstance(content, str):
        return system, content.encode("utf-8", "surrogatepass"), b""
    if not isinstance(content, list):
        return system, b"", b"" if content is None else msgspec.json.encode(content)
    texts: list[str] = []
    rest: list[Any] = []
    for part in content:
        text = part if isinstance(part, str) else part.get("text") if isinstance(part, dict) else None
        if isinstance(text, str):
            texts.append(text)
        else:
            rest.append(part)
    return system, "\n".join(texts).encode("utf-8", "surrogatepass"), msgspec.json.encode(rest) if rest else b""
