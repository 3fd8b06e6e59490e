"""Who may: client keys on relayed routes, the admin token on everything that looks at or changes the fleet.

Tokens are compared as bytes and in constant time, so that strange input is refused and never crashes, and a
wrong key takes as long as a right one (replica-router §1.12; rulings 6 and 8; A28, B29, R181).
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable, Sequence
from ipaddress import ip_address
from typing import NamedTuple

from infera_cli.errors import ConfigError, Forbidden, InferaError, Unauthorized
from infera_cli.protocol.headers import CREDENTIALS

RawHeaders = Sequence[tuple[bytes, bytes]]
"""Header lines as they came: lower-case name, value, in order."""

_FORWARDED_HEADERS = frozenset({b"forwarded", b"x-forwarded-for", b"x-real-ip"})


class Verdict(NamedTuple):
    """May the client in, and the names of the headers that carried a secret of ours: those stop here."""

    allowed: bool
    strip: frozenset[bytes]


_NOTHING: frozenset[bytes] = frozenset()
_OPEN = Verdict(True, _NOTHING)
_SHUT = Verdict(False, _NOTHING)


class Access:
    """The keys of this server. Immutable; shows none of them in its repr.

    `api_keys` guard relayed routes and `/v1/models`; without one they are open. `admin_token` guards admin
    routes; without one only peers on this machine may use them, unless `admin_open`, and only under a name of it:
    loopback, or one of `names`. A browser is led to any other name by whoever owns that name, and does not say so.
    Raises ConfigError for a key that is empty or cannot stand in a header.
    """

    __slots__ = ("_admin", "_keys", "_names", "admin_open")

    def __init__(
        self, *, api_keys: Iterable[str] = (), admin_token: str | None = None, admin_open: bool = False,
        names: Iterable[str] = (),
    ) -> None:  # fmt: skip
        self._keys = tuple(_secret(key, "--api-key") for key in api_keys)
        self._admin = None if admin_token is None else _secret(admin_token, "--admin-token")
        self._names = frozenset({"localhost", *(name.lower() for name in names if name)})
        self.admin_open = admin_open

    def __repr__(self) -> str:
        return f"Access(api_keys={len(self._keys)}, admin_token={'set' if self._admin else 'none'})"

    @property
    def guards_clients(self) -> bool:
        """Clients need a key."""
        return bool(self._keys)

    @property
    def has_admin_token(self) -> bool:
        """An admin token is configured."""
        return self._admin is not None

    @property
    def is_blind(self) -> bool:
        """No secret is configured at all: every request is `allowed` and nothing is stripped."""
        return not self._keys and self._admin is None

    def client(self, headers: RawHeaders) -> Verdict:
        """Judge a request of a relayed route; called once per request, so it is one walk over the headers.

        A header is stripped when it was our client key or equals the admin token; any other credential is the
        worker's business and passes.
        """
        if self.is_blind:
            return _OPEN
        found = [line for line in headers if line[0] in CREDENTIALS]
        if not found:
            return _SHUT if self._keys else _OPEN
        allowed = not self._keys
        strip = _NOTHING
        for name, value in found:
            token = _token(name, value)
            if name != b"x-inferact-admin-key" and _among(token, self._keys):
                allowed, strip = True, strip | {name}
            if self._is_admin(token) or self._is_admin(value.strip()):
                strip |= {name}
        return Verdict(allowed, strip)

    def key_shown(self, headers: RawHeaders) -> bytes | None:
        """The client key of an allowed request."""
        fields = CREDENTIALS - {b"x-inferact-admin-key"}
        shown = (_token(name, value) for name, value in headers if name in fields)
        return next((token for token in shown if _among(token, self._keys)), None)

    def require_client(self, headers: RawHeaders) -> None:
        """Raise Unauthorized unless `client` allows the request."""
        if not self.client(headers).allowed:
            raise client_refused()

    def require_admin(self, headers: RawHeaders, peer: str | None) -> None:
        """Raise Unauthorized (a token is configured, and was not shown) or Forbidden (none is, and the peer
        is not on this machine or sits behind a proxy).

        `peer` is the address of the connection, None when unknown.
        """
        if self._admin is not None:
            values = [value for name, value in headers if name == b"authorization"]
            if len(values) != 1 or not self._is_admin(_bearer(values[0])):
                raise Unauthorized("This route needs the admin token: send 'Authorization: Bearer <token>'.")
        elif not self.admin_open and (not _is_loopback(peer) or _came_through_a_proxy(headers)):
            raise Forbidden(
                "Without an admin token this route is open to this machine only: start the server with "
                "--admin-token-file, or with --admin-open to let everybody in."
            )
        elif _is_cross_site(headers):
            raise Forbidden("Another web site may not call this route from a browser.")
        elif not self.admin_open and not self._is_named(headers):
            raise Forbidden(
                "Without an admin token this route is open only under a name of this machine, such as localhost: any "
                "web site can give its own name this machine's address."
            )

    def require_node_key(self, headers: RawHeaders) -> None:
        """Raise Forbidden (no key is configured), or Unauthorized (it was not shown, as `X-Inferact-Admin-Key` or as a
        bearer token). Being on this machine is not enough here (rulings 6)."""
        if self._admin is None:
            raise Forbidden(
                "This route needs the admin key, and none is configured: start the server with --admin-token-file, "
                "INFERACT_ADMIN_KEY, or admin_key_file in the scheduler file."
            )
        shown = [
            _bearer(value) if name == b"authorization" else value.strip()
            for name, value in headers if name in {b"authorization", b"x-inferact-admin-key"}
        ]  # fmt: skip
        if sum([self._is_admin(key) for key in shown]) < 1:
            raise Unauthorized("This route needs the admin key: send 'X-Inferact-Admin-Key: <key>'.")

    def admin_allowed(self, headers: RawHeaders, peer: str | None) -> bool:
        """Whether `require_admin` lets the request pass."""
        try:
            self.require_admin(headers, peer)
        except InferaError:
            return False
        return True

    def _is_named(self, headers: RawHeaders) -> bool:
        """Whether every Host of the request is a name of this machine; a tool of old may send none."""
        hosts = [_without_port(value) for name, value in headers if name == b"host"]
        return all(host in self._names or _is_loopback(host) for host in hosts)

    def _is_admin(self, token: bytes) -> bool:
        return self._admin is not None and hmac.compare_digest(token, self._admin)


def client_refused() -> Unauthorized:
    """The error of a request without a valid client key."""
    return Unauthorized(
        "This server needs an API key: send 'Authorization: Bearer <key>' or 'x-api-key: <key>'.",
        code="invalid_api_key",
    )


def _secret(text: str, flag: str) -> bytes:
    if not text:
        raise ConfigError(f"{flag} is empty: an empty secret would let everybody in.")
    if not all("!" <= c <= "~" for c in text):
        raise ConfigError(f"{flag} may only hold printable ASCII characters without blanks.")
    return text.encode("ascii")


def _token(name: bytes, value: bytes) -> bytes:
    return _bearer(value) if name == b"authorization" else value.strip()


def _bearer(value: bytes) -> bytes:
    """What follows the scheme word; empty when the scheme is another or absent."""
    scheme, _, token = value.strip().partition(b" ")
    return token.strip() if scheme.lower() == b"bearer" else b""


def _among(token: bytes, keys: tuple[bytes, ...]) -> bool:
    """Compare with every key, so that the time does not tell which one was close."""
    found = False
    for key in keys:
        found |= hmac.compare_digest(token, key)
    return found


def _is_loopback(peer: str | None) -> bool:
    try:
        address = ip_address((peer or "").partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback


def _came_through_a_proxy(headers: RawHeaders) -> bool:
    """A reverse proxy on this machine makes every caller look local."""
    return any(name in _FORWARDED_HEADERS for name, _ in headers)


def _without_port(host: bytes) -> str:
    """The name or address in a Host field."""
    text = host.decode("latin-1").strip().lower()
    return text[1:].partition("]")[0] if text.startswith("[") else text.partition(":")[0]


def _is_cross_site(headers: RawHeaders) -> bool:
    """A browser sends Origin with writes, and says where a call comes from: another site's page must not act with this
    machine's rights."""
    origin = host = site = b""
    for name, value in headers:
        if name == b"origin":
            origin = value
        elif name == b"host":
            host = value
        elif name == b"sec-fetch-site":
            site = value.strip().lower()
    return (bool(origin) and origin.partition(b"://")[2] != host) or site not in {b"", b"none", b"same-origin"}
