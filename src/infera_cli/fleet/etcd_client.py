"""etcd v3 over its JSON gateway: the few calls that discovery needs (infera-wire §1.1; decision 3).

A call goes to the endpoint that answered last, and once to each of the others when that one cannot be reached.
"""

from __future__ import annotations

import json
import socket
from base64 import b64decode, b64encode
from collections.abc import AsyncGenerator, Mapping
from typing import Any, NamedTuple

import httpx

from infera_cli.errors import DiscoveryError, DiscoveryRefused
from infera_cli.fleet.etcd_access import EtcdAccess
from infera_cli.protocol.worker_record import range_end

_ELSEWHERE = {2, 4, 8, 13, 14}
"""gRPC codes that another member, or a later time, may not answer: unknown, deadline, exhausted, internal,
unavailable."""
_NOT_FOUND, _NO_AUTH = 5, 9
_STALE_TOKEN = ("invalid auth token", "user name is empty", "revision of auth store is old", "PermissionDenied")
_KEEPALIVE = [
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    *(
        (socket.IPPROTO_TCP, getattr(socket, name), value)
        for name, value in (("TCP_KEEPIDLE", 10), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3))
        if hasattr(socket, name)
    ),
]


class Pair(NamedTuple):
    """A key with its value and the revision that wrote it; the value is None where the key was deleted."""

    key: bytes
    value: bytes | None
    revision: int


class Snapshot(NamedTuple):
    """All keys below a prefix at one revision. `total` may exceed the pairs where a limit was asked for."""

    cluster: int
    revision: int
    total: int
    pairs: list[Pair]


class Held(NamedTuple):
    """What became of a try to hold a key: `other` is the lease of somebody else that it is on, None where it is on
    ours; `written` says that it was not there before."""

    other: int | None = None
    written: bool = False


class EtcdClient:
    """One client per process. Every failure is a DiscoveryError; DiscoveryRefused where etcd answered and waiting
    does not help. Raises ConfigError when certificates cannot be used."""

    def __init__(self, access: EtcdAccess) -> None:
        self._access = access
        self._turn = 0
        self._token: str | None = None
        context = access.tls()
        self._http = httpx.AsyncClient(
            transport=httpx.AsyncHTTPTransport(verify=context, socket_options=_KEEPALIVE),
            timeout=access.timeout, trust_env=False,
        )  # fmt: skip

    @property
    def endpoint(self) -> str:
        """The endpoint whose turn it is."""
        return self._access.endpoints[self._turn % len(self._access.endpoints)]

    async def aclose(self) -> None:
        """Close all connections."""
        await self._http.aclose()

    # ── reading ──────────────────────────────────────────────────────────────────────────────────────
    async def range(self, prefix: str) -> Snapshot:
        """All keys below `prefix`."""
        return _snapshot(await self._call("kv/range", _below(prefix)))

    async def newest(self, prefix: str) -> Snapshot:
        """How many keys there are below `prefix`, and the one written last, without its value."""
        asked = {"limit": 1, "sort_order": "DESCEND", "sort_target": "MOD", "keys_only": True}
        return _snapshot(await self._call("kv/range", {**_below(prefix), **asked}))

    async def watch(self, prefix: str, revision: int) -> AsyncGenerator[list[Pair], None]:
        """Batches of changes below `prefix` from `revision` on; an empty batch first, once the watch stands.

        Ends only by raising: the connection broke, or etcd cancelled the watch (compaction, permission).
        """
        body = json.dumps({"create_request": {**_below(prefix), "start_revision": str(revision)}}) + "\n"
        patient = httpx.Timeout(self._access.timeout, read=None)
        endpoint = self.endpoint
        try:
            async with self._http.stream(
                "POST", f"{endpoint}/v3/watch", content=body, headers=await self._headers(), timeout=patient
            ) as reply:
                if reply.status_code != 200:
                    raise _fault(reply.status_code, await reply.aread())
                async for line in reply.aiter_lines():
                    if line:
                        yield self._changes(line)
        except httpx.HTTPError as fault:
            self._turn += 1
            raise DiscoveryError(f"the watch on etcd at {endpoint} broke: {_words(fault)}") from None
        raise DiscoveryError("etcd ended the watch")

    def _changes(self, line: str) -> list[Pair]:
        message = _object(line.encode())
        result = message.get("result")
        if not isinstance(result, dict):
            raise DiscoveryError(f"etcd ended the watch: {_reason(message)}")
        if result.get("canceled"):
            raise self._cancelled(result)
        try:
            return [_pair(event["kv"], event.get("type") == "DELETE") for event in result.get("events", ())]
        except (KeyError, TypeError, ValueError, AttributeError):
            raise DiscoveryError("etcd's watch says something that cannot be read") from None

    def _cancelled(self, result: Mapping[str, Any]) -> DiscoveryError:
        if "compact_revision" in result:
            return DiscoveryError("etcd compacted its history, so the view is read anew")
        reason = str(result.get("cancel_reason") or "no reason given")
        if any(word in reason for word in _STALE_TOKEN):
            self._token = None
        return DiscoveryError(f"etcd cancelled the watch: {reason}")

    # ── writing ──────────────────────────────────────────────────────────────────────────────────────
    async def grant(self, ttl: int) -> int:
        """A new lease of `ttl` seconds."""
        return _number(await self._call("lease/grant", {"TTL": ttl}), "ID")

    async def hold(self, key: str, value: bytes, lease: int) -> Held:
        """Write `key`, to vanish with `lease`, unless it is there on this lease or on another one.

        One on no lease is overwritten: nobody keeps it alive. Raises DiscoveryRefused when there is no such lease.
        """
        name = _b64(key.encode())
        free = {
            "compare": [_on_lease(name, 0)],  # also true of a key that is not there
            "success": [{"request_put": {"key": name, "value": _b64(value), "lease": str(lease)}}],
            "failure": [{"request_range": {"key": name, "keys_only": True}}],
        }
        ours = {"compare": [_on_lease(name, lease)], "failure": [{"request_txn": free}]}
        return _held(await self._call("kv/txn", ours))

    async def time_left(self, lease: int) -> int:
        """Seconds until `lease` ends if nobody renews it; 0 when it is gone."""
        answer = await self._call("lease/timetolive", {"ID": str(lease)})
        return max(0, _number(answer, "TTL")) if "TTL" in answer else 0

    async def keep_alive(self, lease: int) -> int:
        """Renew `lease`; the seconds it has now, 0 when it is gone."""
        answer = await self._call("lease/keepalive", {"ID": str(lease)})
        result = answer.get("result")
        if not isinstance(result, dict):
            raise DiscoveryError(f"etcd did not renew the lease: {_reason(answer)}")
        return _number(result, "TTL") if "TTL" in result else 0

    async def revoke(self, lease: int) -> bool:
        """End `lease` and all keys on it; False when it was gone already."""
        reply = await self._answered("lease/revoke", {"ID": str(lease)})
        if reply.status_code == 404 and _object(reply.content).get("code") == _NOT_FOUND:
            return False
        _checked(reply)
        return True

    # ── calls ────────────────────────────────────────────────────────────────────────────────────────
    async def _call(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        return _checked(await self._answered(path, body))

    async def _answered(self, path: str, body: Mapping[str, Any]) -> httpx.Response:
        """The first answer that is worth having, of any endpoint."""
        fault: DiscoveryError | None = None
        for _ in self._access.endpoints:
            try:
                return await self._with_token(path, body)
            except DiscoveryRefused:
                raise
            except DiscoveryError as why:
                fault = fault or why
                self._turn += 1
        raise fault or DiscoveryError("no etcd endpoint is known")

    async def _with_token(self, path: str, body: Mapping[str, Any]) -> httpx.Response:
        reply = await self._post(path, body, await self._headers())
        if self._token and reply.status_code in (400, 401) and any(word in reply.text for word in _STALE_TOKEN):
            self._token = None
            reply = await self._post(path, body, await self._headers())
        return reply

    async def _headers(self) -> dict[str, str]:
        if self._access.user is None:
            return {}
        if self._token is None:
            self._token = await self._authenticate(self._access.user)
        return {"authorization": self._token} if self._token else {}

    async def _authenticate(self, user: str) -> str:
        body = {"name": user, "password": self._access.password or ""}
        reply = await self._post("auth/authenticate", body, {})
        if reply.status_code != 200 and _object(reply.content).get("code") == _NO_AUTH:
            return ""  # this etcd asks nobody who he is
        return str(_checked(reply).get("token", ""))

    async def _post(self, path: str, body: Mapping[str, Any], headers: Mapping[str, str]) -> httpx.Response:
        endpoint = self.endpoint
        try:
            reply = await self._http.post(f"{endpoint}/v3/{path}", json=body, headers=dict(headers))
        except (httpx.HTTPError, OSError) as fault:
            raise DiscoveryError(f"etcd at {endpoint} cannot be reached: {_words(fault)}") from None
        if reply.status_code >= 500 or (reply.status_code >= 400 and _code(reply.content) in _ELSEWHERE):
            raise _fault(reply.status_code, reply.content)
        return reply


def _below(prefix: str) -> dict[str, Any]:
    return {"key": _b64(prefix.encode()), "range_end": _b64(range_end(prefix))}


def _b64(raw: bytes) -> str:
    return b64encode(raw).decode()


def _on_lease(name: str, lease: int) -> dict[str, Any]:
    return {"key": name, "target": "LEASE", "result": "EQUAL", "lease": str(lease)}


def _held(answer: Mapping[str, Any]) -> Held:
    if answer.get("succeeded"):
        return Held()
    try:
        inner = answer["responses"][0]["response_txn"]
        if inner.get("succeeded"):
            return Held(written=True)
        return Held(other=int(inner["responses"][0]["response_range"]["kvs"][0]["lease"]))
    except (KeyError, IndexError, TypeError, ValueError, AttributeError):
        raise DiscoveryError("etcd answers with something that cannot be read") from None


def _snapshot(answer: Mapping[str, Any]) -> Snapshot:
    try:
        header = answer["header"]
        pairs = [_pair(kv, False) for kv in answer.get("kvs", ())]
        total = int(answer.get("count", 0))
        return Snapshot(int(header["cluster_id"]), int(header["revision"]), total, pairs)
    except (KeyError, TypeError, ValueError, AttributeError):
        raise DiscoveryError("etcd answers with something that cannot be read") from None


def _pair(kv: Mapping[str, Any], deleted: bool) -> Pair:
    value = None if deleted else b64decode(kv.get("value", ""), validate=True)
    return Pair(b64decode(kv["key"], validate=True), value, int(kv["mod_revision"]))


def _number(table: Mapping[str, Any], name: str) -> int:
    """64-bit integers come as decimal strings."""
    try:
        return int(table[name])
    except (KeyError, TypeError, ValueError):
        raise DiscoveryError(f'etcd\'s answer has no usable "{name}"') from None


def _checked(reply: httpx.Response) -> dict[str, Any]:
    if reply.status_code != 200:
        raise _fault(reply.status_code, reply.content)
    return _object(reply.content)


def _object(raw: bytes) -> dict[str, Any]:
    try:
        found = json.loads(raw)
    except (ValueError, RecursionError):
        raise DiscoveryError("etcd answers with something that is not JSON") from None
    if not isinstance(found, dict):
        raise DiscoveryError("etcd answers with something that is no JSON object")
    return found


def _code(raw: bytes) -> int | None:
    try:
        code = json.loads(raw)["code"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return code if isinstance(code, int) else None


def _fault(status: int, raw: bytes) -> DiscoveryError:
    code = _code(raw)
    sentence = f"etcd refuses: {_reason(_object(raw))}" if code is not None else f"etcd answers with status {status}"
    kind = DiscoveryError if status >= 500 or code is None or code in _ELSEWHERE else DiscoveryRefused
    return kind(sentence)


def _reason(message: Mapping[str, Any]) -> str:
    error = message.get("error")
    if isinstance(error, dict):
        return str(error.get("message", error))
    return str(error or message.get("message") or "no reason given")


def _words(fault: Exception) -> str:
    return str(fault) or type(fault).__name__
