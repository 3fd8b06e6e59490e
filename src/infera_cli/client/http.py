"""Calls to a running server: JSON in, JSON out, and every failure a sentence with the next thing to try.

The standard library's client, because a command should be done before a client library is imported, and
because proxies of the environment have no business between a person and their own server.
"""

from __future__ import annotations

import http.client
import json
import socket
import ssl
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple
from urllib.parse import urlencode, urlsplit

from infera_cli.errors import ConfigError, Conflict, InferaError, NotFound, ServerUnreachable, Unauthorized

NEXT = "is `infera serve` running there? --server or INFERA_SERVER names another"
TOKEN = "give the admin token with INFERA_ADMIN_TOKEN or --admin-token-file"  # noqa: S105 - a hint, not a secret


class Answer(NamedTuple):
    """What came back; names of headers are lower case."""

    status: int
    body: bytes
    headers: Mapping[str, str]


class Server:
    """A running server at `url`; `token` is its admin token, `timeout` (s) bounds each step of a call."""

    def __init__(self, url: str, *, token: str | None = None, timeout: float = 10.0) -> None:
        self.url = url.rstrip("/")
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError(f"the server address must look like http://HOST:PORT, not {url!r}")
        self._prefix = parts.path
        self._token = token
        self._secure, self._host, self._timeout = parts.scheme == "https", parts.hostname, timeout
        try:
            self._port = parts.port
        except ValueError:
            raise ConfigError(f"the server address {url!r} has no usable port") from None

    def get(self, path: str, **query: Any) -> Any:
        """The JSON answer of `GET path`; query members that are None are left out.

        Raises ServerUnreachable, Unauthorized, NotFound, InferaError.
        """
        given = {name: value for name, value in query.items() if value is not None}
        return self._call("GET", path + ("?" + urlencode(given) if given else ""), None)

    def post(self, path: str, body: Any = None) -> Any:
        """The JSON answer of `POST path`. Raises as `get`, and Conflict."""
        return self._call("POST", path, None if body is None else json.dumps(body).encode())

    def delete(self, path: str, **query: Any) -> Any:
        """The JSON answer of `DELETE path`. Raises as `post`."""
        given = {name: value for name, value in query.items() if value is not None}
        return self._call("DELETE", path + ("?" + urlencode(given) if given else ""), None)

    def send(self, method: str, path: str, body: bytes | None = None) -> Answer:
        """An answer, whatever it is. Raises ServerUnreachable."""
        connection = self._connection()
        try:
            connection.request(method, self._prefix + path, body, self._headers(body))
            answer = connection.getresponse()
            return Answer(answer.status, answer.read(), {key.lower(): value for key, value in answer.getheaders()})
        except (OSError, http.client.HTTPException) as fault:
            raise ServerUnreachable(f"cannot reach {self.url} ({_reason(fault)}); {NEXT}") from None
        finally:
            connection.close()

    def lines(self, path: str, **query: Any) -> Iterator[bytes]:
        """The lines of a stream as they come, empty ones too; it ends with the stream. Raises as `get`."""
        connection = self._connection()
        try:
            connection.request("GET", f"{self._prefix}{path}?{urlencode(query)}", None, self._headers(None))
            answer = connection.getresponse()
            if answer.status != 200:
                self.read(Answer(answer.status, answer.read(), {}))
            yield from answer
        except (OSError, http.client.HTTPException) as fault:
            raise ServerUnreachable(f"lost {self.url} ({_reason(fault)}); {NEXT}") from None
        finally:
            connection.close()

    def _call(self, method: str, path: str, body: bytes | None) -> Any:
        return self.read(self.send(method, path, body))

    def _connection(self) -> http.client.HTTPConnection:
        if self._secure:
            context = ssl.create_default_context()
            return http.client.HTTPSConnection(self._host, self._port, timeout=self._timeout, context=context)
        return http.client.HTTPConnection(self._host, self._port, timeout=self._timeout)

    def _headers(self, body: bytes | None) -> Mapping[str, str]:
        headers = {"Accept": "application/json"}
        if body is not None:
            headers["Content-Type"] = "application/json"
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        return headers

    def read(self, answer: Answer) -> Any:
        """The JSON of an answer that went well. Raises as `post` otherwise."""
        status = answer.status
        try:
            document = json.loads(answer.body)
        except ValueError:
            document = None
        if status < 300 and document is not None:
            return document
        raise self._failure(status, _message(document))

    def _failure(self, status: int, message: str | None) -> InferaError:
        if message is None:
            return ServerUnreachable(f"{self.url} answered {status} and no more; is it an infera server?")
        if status in (401, 403):  # 403: a token would not help, the server says what does
            hint = f"; {TOKEN}" if status == 401 else ""
            return Unauthorized(f"{self.url} refused: {message.rstrip('.')}{hint}")
        kinds: dict[int, type[InferaError]] = {404: NotFound, 409: Conflict}
        return kinds.get(status, InferaError)(f"{self.url} answered {status}: {message}")


def _reason(fault: Exception) -> str:
    if isinstance(fault, TimeoutError):
        return "no answer in time"
    if isinstance(fault, socket.gaierror):
        return "unknown host"
    if isinstance(fault, ssl.SSLError):
        return f"TLS: {fault.reason}"
    return str(getattr(fault, "strerror", None) or fault or type(fault).__name__).lower()


def _message(document: Any) -> str | None:
    """The sentence of an error answer, in any of the shapes the server has."""
    if not isinstance(document, dict):
        return None
    error = document.get("error")
    inside = error if isinstance(error, dict) else document
    found = inside.get("message", inside.get("detail"))
    return found if isinstance(found, str) else None
