"""A worker's record in discovery: a key and a JSON value, both ways (infera-wire §1.2).

The key's suffix is the worker's name, whatever the value says (§1.4: the other way round, a worker could never be
removed). Members nobody knows are ignored, so that newer workers may say more.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal, NamedTuple, NoReturn, cast
from urllib.parse import urlsplit

from infera_cli.protocol.address import bare_host, path_prefix

Status = Literal["active", "draining", "dead"]
DisaggMode = Literal["mixed", "prefill", "decode"]

DEFAULT_PREFIX = "/infera/workers/"
ENGINES = ("sglang", "vllm", "atom")
"""What other routers accept as `engine`; anything else gets a record refused there (rulings 22)."""
_MOST_RANKS = 1024
"""Each is an event port and a target of every decision; the widest deployments known have some hundred."""
_MOST_TOKENS = 1 << 24
_MOST_BYTES = 1 << 16
_MOST_TEXT = 1024
_MOST_CANARY = 4096
_DEEPEST = 16
_BEYOND = 1 << 64


class BadRecord(ValueError):
    """A key or a value that cannot be used; the message is half a sentence that says what is wrong."""


class BaseUrl(NamedTuple):
    """Where a worker answers. `prefix` is the path in front of every route, without a slash at its end."""

    scheme: Literal["http", "https"]
    host: str
    port: int
    prefix: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerRecord:
    """What a worker says about itself.

    `kv_events_endpoint` and `kv_replay_endpoint` are those of rank 0, or of this very rank where `dp_rank` is set;
    `kv_block_size` is in tokens, and only a claim: the size in the worker's events counts, whether they bear it out or
    it is None. `dp_size` counts ranks behind this address. `infera_engine` is the engine's own name where `engine` may
    not say it (rulings 22).
    """

    worker_id: str
    url: str
    model_name: str
    engine: str = "sglang"
    status: Status = "active"
    disagg_mode: DisaggMode = "mixed"
    disagg_meta: Mapping[str, Any] = field(default_factory=dict)
    kv_events_endpoint: str | None = None
    kv_block_size: int | None = None
    dp_rank: int | None = None
    dp_size: int | None = None
    request_transport: str = "http"
    kv: Mapping[str, Any] | None = None
    infera_engine: str | None = None
    kv_replay_endpoint: str | None = None

    @property
    def engine_name(self) -> str:
        """What runs there."""
        return self.infera_engine or self.engine

    @property
    def base(self) -> BaseUrl:
        """`url`, taken apart. Raises BadRecord; never for a record that was parsed."""
        return split_url(self.url)


# ── keys ─────────────────────────────────────────────────────────────────────────────────────────────
def prefix_of(text: str) -> str:
    """`text` as a key prefix: a missing final slash is added."""
    return text if text.endswith("/") else text + "/"


def range_end(prefix: str) -> bytes:
    """The first key after all that begin with `prefix` (UTF-8): its last byte plus one."""
    raw = prefix.encode().rstrip(b"\xff")
    return raw[:-1] + bytes([raw[-1] + 1]) if raw else b"\0"


def worker_id_of(key: bytes, prefix: str) -> str:
    """The name that a key gives its worker. Raises BadRecord with half a sentence."""
    try:
        name = key.decode().removeprefix(prefix)
    except UnicodeDecodeError:
        raise BadRecord("has a key that is not UTF-8") from None
    if not name or len(name) > 512 or not name.isprintable() or " " in name:
        raise BadRecord("has a key without a usable name of a worker")
    return name


# ── values ───────────────────────────────────────────────────────────────────────────────────────────
def parse_record(worker_id: str, value: bytes) -> WorkerRecord:
    """The record that `value` holds, for the worker that its key names.

    Raises BadRecord with half a sentence that says what is wrong; nothing else, whatever `value` is.
    """
    document = _document(value)
    known: dict[str, Any] = {}
    for name, check in _CHECKS.items():
        if name in document:
            found = check(name, document[name])
            if found is not None:
                known[name] = found
    for name in ("worker_id", "url", "model_name"):
        if name not in known:
            raise BadRecord(f'has no "{name}"')
    record = WorkerRecord(**{**known, "worker_id": worker_id})
    split_url(record.url)
    return record


def encode_record(record: WorkerRecord) -> bytes:
    """The value of a record, the same bytes for the same record.

    `status` is written only where it is not active, as other workers do; ours only where they say something.
    """
    document = {name.name: getattr(record, name.name) for name in fields(record)}
    if record.status == "active":
        del document["status"]
    for name in ("kv", "infera_engine", "kv_replay_endpoint"):
        if document[name] is None:
            del document[name]
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()


def split_url(url: str) -> BaseUrl:
    """A base URL, taken apart; the port defaults to the scheme's. Raises BadRecord with half a sentence."""
    if not url.isprintable() or " " in url or "?" in url or "#" in url or "@" in url:
        raise BadRecord('has a "url" that is no base URL')
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as reason:
        raise BadRecord(f'has a "url" that cannot be read: {reason}') from None
    if parts.scheme not in ("http", "https") or port == 0:
        raise BadRecord('has a "url" that is neither http://host:port nor https://host:port')
    try:
        host, prefix = bare_host(parts.hostname or ""), path_prefix(parts.path)
    except ValueError as reason:
        raise BadRecord(f'has a "url" whose host or path {reason}') from None
    scheme = cast('Literal["http", "https"]', parts.scheme)
    return BaseUrl(scheme, host, port or (443 if scheme == "https" else 80), prefix)


def _document(value: bytes) -> dict[str, Any]:
    if len(value) > _MOST_BYTES:
        raise BadRecord(f"is over {_MOST_BYTES} bytes")
    try:
        document = json.loads(value.decode(), parse_constant=_no_number)
    except (ValueError, RecursionError):
        raise BadRecord("is not JSON") from None
    if not isinstance(document, dict):
        raise BadRecord("is not a JSON object")
    return document


def _no_number(text: str) -> NoReturn:
    raise BadRecord(f"holds {text}")


# ── checks: each gives the value to keep, None to leave the default, or raises ───────────────────────
_Check = Callable[[str, Any], Any]


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise BadRecord(f'has a "{name}" that is not a string')
    if len(value) > _MOST_TEXT:
        raise BadRecord(f'has a "{name}" of over {_MOST_TEXT} characters')
    if not value.isprintable():  # nor are unpaired surrogates, which no answer of ours could hold
        raise BadRecord(f'has a "{name}" that cannot be printed')
    return value


def _optional_text(name: str, value: Any) -> str | None:
    return None if value is None else _text(name, value)


def _one_of(*allowed: str) -> _Check:
    def check(name: str, value: Any) -> str:
        if value not in allowed:
            raise BadRecord(f'has a "{name}" that is none of {", ".join(allowed)}')
        return str(value)

    return check


def _whole(low: int, high: int) -> _Check:
    def check(name: str, value: Any) -> int | None:
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise BadRecord(f'has a "{name}" that is not a whole number from {low} to {high}')
        return value

    return check


def _table(name: str, value: Any) -> dict[str, Any] | None:
    if value is None:
        return None
    if not isinstance(value, dict):
        raise BadRecord(f'has a "{name}" that is not an object')
    _inner(name, value, _DEEPEST)
    return value


def _inner(name: str, value: Any, depth: int) -> None:
    """Raises BadRecord for what is somewhere within and could not be told on, e.g. by /v1/workers."""
    if isinstance(value, str):
        _text(name, value)
    elif isinstance(value, int | float) and not -_BEYOND < value < _BEYOND:
        raise BadRecord(f'has a "{name}" with a number that is out of range')
    elif isinstance(value, dict | list):
        if depth == 0:
            raise BadRecord(f'has a "{name}" of over {_DEEPEST} levels')
        for part in (*value, *value.values()) if isinstance(value, dict) else value:
            _inner(name, part, depth - 1)


def _count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= _MOST_TOKENS


def _canary(value: Any) -> bool:
    return isinstance(value, list) and len(value) <= _MOST_CANARY and all(type(token) is int for token in value)


_KV_REQUIRED: Mapping[str, Callable[[Any], bool]] = {
    "engine_block_size": _count, "index_block_size": _count, "tokenizer": lambda value: isinstance(value, str),
    "tokenizer_digest": lambda value: isinstance(value, str), "tokenizer_canary": _canary,
}  # fmt: skip


def _kv(name: str, value: Any) -> dict[str, Any] | None:
    table = _table(name, value)
    if table is not None:
        for member, usable in _KV_REQUIRED.items():
            if not usable(table.get(member)):
                raise BadRecord(f'has a "kv" without a usable "{member}"')
    return table


_CHECKS: Mapping[str, _Check] = {
    "worker_id": _text,
    "url": _text,
    "model_name": _text,
    "engine": _text,
    "status": _one_of("active", "draining", "dead"),
    "disagg_mode": _one_of("mixed", "prefill", "decode"),
    "disagg_meta": _table,
    "kv_events_endpoint": _optional_text,
    "kv_block_size": _whole(1, _MOST_TOKENS),
    "dp_rank": _whole(0, _MOST_RANKS - 1),
    "dp_size": _whole(1, _MOST_RANKS),
    "request_transport": _text,
    "kv": _kv,
    "infera_engine": _optional_text,
    "kv_replay_endpoint": _optional_text,
}
