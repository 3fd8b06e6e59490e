"""The names a request goes by: its id, its session, its model (rulings 9 and 10)."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from infera_cli.protocol.headers import is_sound_id, session_from_headers
from infera_cli.protocol.openai import NOTHING, Peek, peek, peek_form

RandomBytes = Callable[[int], bytes]


def request_id(known: Mapping[bytes, bytes], random_bytes: RandomBytes) -> str:
    """The client's own id where it is sound, else a fresh one of 32 hex digits."""
    given = known.get(b"x-request-id") or known.get(b"x-infera-request-id")
    if given is not None and is_sound_id(given):
        return given.decode("ascii")
    return random_bytes(16).hex()


def identify(
    known: Mapping[bytes, bytes], body: bytes | bytearray, random_bytes: RandomBytes
) -> tuple[str | None, str, str]:
    """(model, session id shown to the client, namespaced key that routing pins).

    A header names the session before the body does; an unsound name gives a fresh one.
    """
    seen = _peek(known, body)
    kind, value = _session(known, seen)
    if value is None:
        fresh = random_bytes(16).hex()
        return seen.model, fresh, "session:" + fresh
    if kind == "session":
        return seen.model, value, "session:" + value
    return seen.model, random_bytes(16).hex(), f"{kind}:{value}"


def _peek(known: Mapping[bytes, bytes], body: bytes | bytearray) -> Peek:
    if not body:
        return NOTHING
    if known.get(b"content-type", b"").startswith(b"multipart/"):
        return peek_form(body)
    return peek(body)


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
