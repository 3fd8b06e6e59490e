"""The names a request goes by: its id, its session, its model (rulings 9 and 10)."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from infera_cli.protocol.headers import is_sound_id, session_from_headers
from infera_cli.protocol.openai import NOTHING, Peek, peek, peek_form


class Identity(msgspec.Struct, frozen=True, gc=False):
    """`session` is the id shown to the client, `pin` the namespaced key that routing pins."""

    model: str | None
    session: str
    pin: str


def request_id(known: Mapping[bytes, bytes], bits: Callable[[int], int]) -> str:
    """The client's own id where it is sound, else a fresh one."""
    for name in (b"x-request-id", b"x-infera-request-id"):
        given = known.get(name)
        if given is not None and is_sound_id(given):
            return given.decode("ascii")
    return mint(bits)


def mint(bits: Callable[[int], int]) -> str:
    """A fresh id: 32 lower-case hex digits from `bits(128)`."""
    return f"{bits(128):032x}"


def identify(known: Mapping[bytes, bytes], body: bytes | bytearray, bits: Callable[[int], int]) -> Identity:
    """Read who asks for what. A header names the session before the body does; an unsound name gives a fresh one."""
    content_type = known.get(b"content-type", b"")
    seen = peek_form(body) if content_type.startswith(b"multipart/") else peek(body) if body else NOTHING
    kind, value = _session(known, seen)
    if kind == "session" and value:
        return Identity(seen.model, value, f"session:{value}")
    fresh = mint(bits)
    return Identity(seen.model, fresh, f"{kind}:{value}" if value else f"session:{fresh}")


def _session(known: Mapping[bytes, bytes], seen: Peek) -> tuple[str, str | None]:
    in_header = session_from_headers(known)
    if in_header is not None:
        kind, raw = in_header
        return kind, raw.decode("ascii") if is_sound_id(raw) else None
    if seen.session is not None:
        kind, text = seen.session
        sound = is_sound_id(text.encode("utf-8", "replace"))
        return "session" if kind == "session_id" else kind, text if sound else None
    return "session", None
