"""The names a request goes by: its session and its model (rulings 9 and 10)."""

from __future__ import annotations

import logging
from collections.abc import Callable

from infera_cli.protocol.headers import RequestHead, is_sound_id, session_length
from infera_cli.protocol.peek import NOTHING, Peek, peek, peek_form
from infera_cli.routing.sessions import MINTED

RandomBytes = Callable[[int], bytes]
_log = logging.getLogger("infera.gateway")


def identify(
    head: RequestHead, body: bytes | bytearray, random_bytes: RandomBytes
) -> tuple[str | None, str, str]:
    """(model, session id shown to the client, namespaced key that routing pins).

    A header names the session before the body does; an unsound name gives a fresh one.
    """
    return name(head, (peek_form(body) if head.is_form else peek(body)) if body else NOTHING, random_bytes)


def name(head: RequestHead, seen: Peek, random_bytes: RandomBytes) -> tuple[str | None, str, str]:
    """The same of a body that was read already."""
    named = head.session or _in_body(seen)
    value = named[1] if named is not None else None
    if named is not None and value is None:
        length = session_length(head.fields) if head.session else len(seen.session[1]) if seen.session else 0
        _log.warning("a session id of %d bytes cannot be used (1 to 128 printable characters without blanks)", length)
    if named is None or value is None:
        fresh = random_bytes(16).hex()
        return seen.model, fresh, MINTED + fresh
    if named[0] == "session":
        return seen.model, value, "session:" + value
    return seen.model, random_bytes(16).hex(), f"{named[0]}:{value}"


def ids(head: RequestHead, random_bytes: RandomBytes) -> tuple[str, str]:
    """(request id, session id shown to the client) of a request that is refused without its body."""
    return head.request_id or random_bytes(16).hex(), name(head, NOTHING, random_bytes)[1]


def _in_body(seen: Peek) -> tuple[str, str | None] | None:
    if seen.session is None:
        return None
    kind, text = seen.session
    sound = text if is_sound_id(text.encode("utf-8", "replace")) else None
    return "session" if kind == "session_id" else kind, sound
