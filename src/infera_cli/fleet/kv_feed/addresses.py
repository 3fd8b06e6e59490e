"""Where an engine publishes: as registered, or as it says itself (engines §1.5, §2.3, §1.8.1)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import msgspec

from infera_cli.routing.types import WorkerSpec

_TCP = re.compile(r"tcp://(?P<host>\[[0-9A-Fa-f:.%]+\]|[^:/\s]+):(?P<port>\d{1,5})/?")
_EVERYWHERE = frozenset({"*", "0.0.0.0", "[::]", "::"})
MOST_RANKS = 1024
"""No worker has more; what says so is not believed beyond them."""
_BLOCK_SIZE = re.compile(rb'^vllm:cache_config_info\{[^}\n]*\bblock_size="(\d{1,6})"', re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Address:
    """One rank's publisher; `replay` is None where it keeps nothing."""

    endpoint: str
    replay: str | None = None


@dataclass(frozen=True, slots=True)
class Published:
    """What an engine publishes: an address per rank, and its page in tokens where it says so."""

    ranks: dict[int, Address]
    block_size: int | None = None


def shifted(endpoint: str, rank: int, host: str | None = None) -> str | None:
    """`endpoint` with `rank` added to its port, at `host` where it means every address. None: no such address."""
    found = _TCP.fullmatch(endpoint)
    if found is None:
        return None
    port = int(found["port"]) + rank
    where = found["host"]
    if host is not None and where in _EVERYWHERE:
        where = f"[{host}]" if ":" in host else host
    return f"tcp://{where}:{port}" if 0 < port < 65536 else None


def registered(spec: WorkerSpec) -> Published | None:
    """As the worker's own record or entry says; one port a rank (infera-wire §4.8)."""
    if spec.kv_events_endpoint is None:
        return None
    ranks = {}
    for rank in range(min(spec.ranks or 1, MOST_RANKS)):
        endpoint = shifted(spec.kv_events_endpoint, rank, spec.address or spec.host)
        if endpoint is not None:
            replay = shifted(spec.kv_replay_endpoint or "", rank, spec.address or spec.host)
            ranks[rank] = Address(endpoint, replay)
    return Published(ranks, spec.kv_block_size) if ranks else None


def from_vllm(body: bytes, host: str) -> Published | None:
    """The reply to GET /kv_event_sources; None where nothing is published. Ports carry the rank already."""
    sources = _object(body)
    ranks: dict[int, Address] = {}
    for key, source in sources.items():
        if len(ranks) == MOST_RANKS:
            break
        if not (key.isdecimal() and len(key) < 6) or not isinstance(source, dict) or source.get("publisher") != "zmq":
            continue
        endpoint = shifted(str(source.get("endpoint")), 0, host)
        if endpoint is not None:
            replay = source.get("replay_endpoint")
            ranks[int(key)] = Address(endpoint, shifted(replay, 0, host) if isinstance(replay, str) else None)
    return Published(dict(sorted(ranks.items()))) if ranks else None


def from_sglang(body: bytes, host: str) -> Published | None:
    """`kv_events` of the reply to GET /server_info."""
    events = _object(body).get("kv_events")
    if not isinstance(events, dict) or events.get("publisher") != "zmq":
        return None
    base, replay = events.get("endpoint_port_base"), events.get("replay_endpoint_port_base")
    count = _count(events.get("dp_size")) or 1
    where = str(events.get("endpoint_host") or "*")
    ranks: dict[int, Address] = {}
    for rank in range(min(count, MOST_RANKS)):
        endpoint = shifted(f"tcp://{where}:{base}", rank, host)
        if endpoint is not None:
            ranks[rank] = Address(endpoint, shifted(f"tcp://{where}:{replay}", rank, host) if replay else None)
    return Published(ranks, _count(events.get("block_size"))) if ranks else None


def joined(own: Published | None, asked: Published | None) -> Published | None:
    """What the record says, with what only the engine knows: where it can be asked again, and its page."""
    if own is None or asked is None:
        return own or asked
    ranks = {}
    for rank, address in own.ranks.items():
        if address.replay is not None:
            ranks[rank] = address
            continue
        there = asked.ranks.get(rank)
        host = _TCP.fullmatch(address.endpoint)
        replay = _TCP.fullmatch(there.replay) if there is not None and there.replay is not None else None
        ranks[rank] = Address(address.endpoint, f"tcp://{host['host']}:{replay['port']}" if host and replay else None)
    return Published(ranks, asked.block_size or own.block_size)


def block_size_in(metrics: bytes) -> int | None:
    """The page size that vLLM's /metrics tells."""
    found = _BLOCK_SIZE.search(metrics)
    return int(found[1]) or None if found else None


def _object(body: bytes) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None
