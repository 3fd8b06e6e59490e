"""Header rules of the relay: what passes, what is dropped, which ids are sound (design.md §3; rulings 8, 10).

Header names are lower-case bytes throughout; a list keeps order and repeats.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

Headers = list[tuple[bytes, bytes]]

HOP_BY_HOP = frozenset(
    {
        b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-authorization", b"proxy-connection",
        b"te", b"trailer", b"trailers", b"transfer-encoding", b"upgrade",
    }
)  # fmt: skip
"""Belong to one connection (RFC 9110 §7.6.1; replica-router §1.11)."""

NOT_SENT_UP = HOP_BY_HOP | {
    b"host", b"content-length", b"expect", b"x-request-id", b"x-infera-request-id", b"x-worker-instance-id",
}  # fmt: skip
"""Of a client's request: rebuilt by the relay, or meant for it."""

NOT_SENT_DOWN = HOP_BY_HOP | {
    b"content-length", b"x-session-id", b"x-request-id", b"x-infera-request-id", b"x-infera-worker",
}  # fmt: skip
"""Of a worker's answer: rebuilt by the relay, or replaced by its own."""

CREDENTIALS = frozenset({b"authorization", b"x-api-key", b"x-inferact-admin-key"})

_ID = re.compile(rb"[A-Za-z0-9._:-]{1,128}")
_BAD_VALUE = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")


def is_sound_id(value: bytes) -> bool:
    """1 to 128 of A-Z a-z 0-9 . _ : - and nothing else, not even a trailing newline (replica-router §1.10)."""
    return _ID.fullmatch(value) is not None


def is_clean_value(value: bytes) -> bool:
    """No control byte but the tab (RFC 9110 §5.5)."""
    return _BAD_VALUE.search(value) is None


# ── session identity (rulings 10) ────────────────────────────────────────────────────────────────────
SESSION_HEADERS = {
    b"x-session-id": "session",
    b"x-claude-code-session-id": "claude-code",
    b"x-session-affinity": "affinity",
    b"x-opencode-session": "opencode",
    b"session-id": "session-id",
    b"thread-id": "thread-id",
}
"""Header to kind, in the order in which they are asked."""

_SESSION = b"x-session-id"
_CLAUDE_AGENT = b"x-claude-code-agent-id"


def session_from_headers(known: Mapping[bytes, bytes]) -> tuple[str, str | None] | None:
    """(kind, value) of the first session header in the order of rulings 10, None when there is none.

    The value is None where it is unsound: that gives a fresh id, and hides one in the body (replica-router §1.10).
    An empty header counts as absent.
    """
    if SESSION_HEADERS.keys().isdisjoint(known):
        return None
    for name, kind in SESSION_HEADERS.items():
        value = known.get(name)
        if value:
            if kind == "claude-code" and known.get(_CLAUDE_AGENT):
                value = value + b":" + known[_CLAUDE_AGENT]
            return kind, value.decode("ascii") if is_sound_id(value) else None
    return None


def session_length(known: Mapping[bytes, bytes]) -> int:
    """Bytes of the first session header, which is all that may be said of an unsound one."""
    return next((len(known[name]) for name in SESSION_HEADERS if known.get(name)), 0)


def _request_id(known: Mapping[bytes, bytes]) -> str | None:
    """The client's own id of the request, where it is sound."""
    given = known.get(b"x-request-id") or known.get(b"x-infera-request-id")
    return given.decode("ascii") if given and is_sound_id(given) else None


# ── heads on the wire ────────────────────────────────────────────────────────────────────────────────
_PLAIN = (b"keep-alive", b"close")


def less_connection(dropped: frozenset[bytes], connection: bytes | None) -> frozenset[bytes]:
    """`dropped`, and what a Connection header of that value declares hop-by-hop."""
    if connection is None or connection.lower() in _PLAIN:
        return dropped
    return dropped | {token.strip().lower() for token in connection.split(b",")}


def _joined(name: bytes, headers: Headers, fields: dict[bytes, bytes]) -> bytes | None:
    """All fields of that name as one; None without any. `fields` is `headers` as a dict."""
    if name not in fields or len(fields) == len(headers):
        return fields.get(name)
    return b",".join([value for key, value in headers if key == name])


def _ambiguity(headers: Headers, fields: dict[bytes, bytes]) -> str | None:
    coding = _joined(b"transfer-encoding", headers, fields)
    if coding is not None and coding.strip().lower() != b"chunked":
        return "No Transfer-Encoding but chunked is understood."
    if len(fields) != len(headers) and sum(name == b"host" for name, _ in headers) > 1:
        return "The request has more than one Host."
    return None


def lines(headers: Headers, dropped: frozenset[bytes]) -> bytes:
    """The header lines of `headers` less those named in `dropped`, each with its end."""
    return b"".join([b"%b: %b\r\n" % pair for pair in headers if pair[0] not in dropped])


class RequestHead:
    """The header fields of a request, less Content-Length, and what passes to a worker.

    A client says nearly the same head again and again on a connection; one that equals the last is not worked out
    anew, which is why the length, the part that changes, is kept apart.
    """

    __slots__ = (
        "_around", "_fields", "_headers", "_original", "ambiguity", "is_form", "passed_on", "request_id", "session",
    )  # fmt: skip

    session: tuple[str, str | None] | None
    request_id: str | None
    ambiguity: str | None
    is_form: bool
    passed_on: bytes

    def __init__(self, headers: Headers, original: RequestHead | None = None, session: bytes = b"") -> None:
        """With `original`, the same head but for its X-Session-Id; see `of_session`."""
        self._headers = headers
        self._original = original
        self._around: tuple[bytes, bytes] | None = None
        self._fields = fields = dict(headers)
        if original is None:
            self.session = session_from_headers(fields)
            self.request_id = _request_id(fields)
            self.is_form = fields.get(b"content-type", b"").startswith(b"multipart/")
            self.ambiguity = _ambiguity(headers, fields)
            given = fields.get(_SESSION)
            unsound = frozenset({_SESSION}) if given and not is_sound_id(given) else frozenset()
            self.passed_on = self.without(unsound)
        else:
            self.session = "session", session.decode("ascii")
            self.request_id = original.request_id
            self.is_form = original.is_form
            self.ambiguity = original.ambiguity
            self.passed_on = original.passed_on_in(session)

    @property
    def headers(self) -> Headers:
        """Name and value of each field, in order."""
        self._work_out()
        return self._headers

    @property
    def fields(self) -> dict[bytes, bytes]:
        """The last value of each field."""
        self._work_out()
        return self._fields

    def _work_out(self) -> None:
        """Of a head in another session the fields are made only where somebody asks for them."""
        if self._original is not None and self.session is not None:
            own = (self.session[1] or "").encode()
            self._headers = [(_SESSION, own) if pair[0] == _SESSION else pair for pair in self._original.headers]
            self._fields = dict(self._headers)
            self._original = None

    def of_session(self, session: bytes) -> RequestHead:
        """The same head in another session. Both this one's own and `session` are sound, and named once."""
        return RequestHead([], self, session)

    def passed_on_in(self, session: bytes) -> bytes:
        """`passed_on` of the same head in another session."""
        if self._around is None:
            line, passed = b"\nx-session-id: %b\r\n" % self.fields[_SESSION], b"\n" + self.passed_on
            at = passed.find(line)
            if at < 0:
                return self.passed_on
            self._around = passed[1 : at + len(b"\nx-session-id: ")], passed[at + len(line) - 2 :]
        before, after = self._around
        return before + session + after

    def without(self, names: frozenset[bytes]) -> bytes:
        """The lines that pass to a worker, less those of `names`."""
        headers = self.headers
        connection = _joined(b"connection", headers, self._fields)
        return lines(headers, less_connection(NOT_SENT_UP, connection) | names)

    def fault(self, version: str) -> str | None:
        """Why a request of that HTTP version with these fields must not be relayed; None where it may be.

        Others would read its end or its host differently, or its body has a coding that no worker would be told of
        (RFC 9112 §3.2, §6.1).
        """
        if version not in {"1.1", "1.0"}:
            return "Only HTTP/1.1 and HTTP/1.0 are spoken here."
        if self.ambiguity is not None:
            return self.ambiguity
        if version == "1.1" and b"host" not in self.fields:
            return "The request has no Host."
        if version == "1.0" and b"transfer-encoding" in self.fields:
            return "HTTP/1.0 has no Transfer-Encoding."
        return None


class AnswerHead:
    """The header fields of a worker's answer, less Content-Length, and what passes to the client."""

    __slots__ = ("chunked", "encoded", "headers", "passed_on", "streamed")

    def __init__(self, headers: Headers) -> None:
        fields = dict(headers)
        self.headers = headers
        self.chunked = _is_chunked(_joined(b"transfer-encoding", headers, fields))
        self.encoded = fields.get(b"content-encoding", b"identity") != b"identity"
        self.streamed = fields.get(b"content-type", b"").lower().startswith(EVENT_STREAM)
        connection = _joined(b"connection", headers, fields)
        self.passed_on = lines(headers, less_connection(NOT_SENT_DOWN, connection))
        if self.streamed:
            self.passed_on += lines([pair for pair in _ADDED_TO_STREAMS if pair[0] not in fields], frozenset())


EVENT_STREAM = b"text/event-stream"
_ADDED_TO_STREAMS = [(b"cache-control", b"no-cache"), (b"x-accel-buffering", b"no")]
"""Keeps proxies from gathering a stream (rulings 8; R014)."""


def _is_chunked(coding: bytes | None) -> bool:
    if coding is None:
        return False
    if coding.strip().lower() != b"chunked":
        raise ValueError("a transfer coding other than chunked")
    return True
