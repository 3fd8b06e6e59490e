"""The scheduler's YAML file: unlike nodes, cache policy, batching (replica-router §2.2, §2.3).

Beyond the sheet's keys: `scheduler.admin_key_file`, a node's `role` and `bf16_tflops`, `batching.static_flush_ms`,
`kv_cache.prefix_ignore` (regular expressions; lines that match do not count when prefixes are compared).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, cast
from urllib.parse import urlsplit

from infera_cli.protocol import yaml_text
from infera_cli.protocol.address import bare_host, path_prefix
from infera_cli.protocol.hardware import CUSTOM, HARDWARE, NAMES, TFLOPS_PER_GBPS, Hardware
from infera_cli.protocol.keys import Keys
from infera_cli.protocol.place import Place, shown

BACKENDS = ("vllm", "tgi", "custom")
POLICIES = ("lru", "prefix-aware", "adaptive")
STRATEGIES = ("continuous", "static")
ROLES = ("prefill", "decode", "both")
LEVELS = ("debug", "info", "warn", "error")

STATIC_BATCH = 8
"""Requests in a static batch where `max_batch_size` is absent; the start says so (replica-router §2.8)."""

Scheme = Literal["http", "https"]
Role = Literal["prefill", "decode", "both"]
Strategy = Literal["continuous", "static"]

_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeEntry:
    """One engine: where it is, what it runs on, what it serves. `weight` 0: only by `node_affinity`."""

    id: str
    hardware: str
    profile: Hardware
    backend: str
    scheme: Scheme
    host: str
    port: int
    path_prefix: str
    models: tuple[str, ...]
    weight: float = 1.0
    role: Role = "both"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerBlock:
    """`scheduler:`; None where the file is silent and a default of the command applies."""

    port: int = 9000
    host: str = "0.0.0.0"
    log_level: str = "info"
    request_timeout: float | None = None
    admin_key_file: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheBlock:
    """`kv_cache:`. `threshold` is a share, 0…1."""

    policy: str = "lru"
    pin_system_prompts: bool = True
    threshold: float = 0.9
    prefix_ignore: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchBlock:
    """`batching:`. `cap` is `max_batch_size`, None where the engine decides; `flush` is in seconds."""

    strategy: Strategy = "continuous"
    cap: int | None = None
    flush: float = 2.0
    split: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerFile:
    """A file that passed every check. `warnings` are sentences for its author."""

    path: str
    server: ServerBlock
    nodes: tuple[NodeEntry, ...]
    cache: CacheBlock
    batching: BatchBlock
    warnings: tuple[str, ...] = ()


def parse(text: bytes, *, path: str) -> SchedulerFile:
    """`text` as a scheduler file; `path` is for messages.

    Raises ConfigError: the file, the dotted path of the key, and what it accepts.
    """
    file = Place(path)
    top = Keys(file, "", yaml_text.load(text, file), ("scheduler", "nodes", "kv_cache", "batching"))
    server, cache, batching = _server(top), _cache(top), _batching(top)
    nodes = _nodes(file, top)
    warnings = []
    if batching.strategy == "static" and batching.cap is None:
        warnings.append(f"batching.strategy is static without max_batch_size: batches of {STATIC_BATCH}")
    if batching.split:
        _check_split(top, nodes)
    return SchedulerFile(
        path=path, server=server, nodes=nodes, cache=cache, batching=batching, warnings=tuple(warnings)
    )


def _server(top: Keys) -> ServerBlock:
    keys = top.block("scheduler", ("port", "host", "log_level", "request_timeout_ms", "admin_key_file"))
    timeout = keys.integer("request_timeout_ms", 0, 1) if keys.has("request_timeout_ms") else None
    return ServerBlock(
        port=keys.integer("port", 9000, 1, 65535),
        host=keys.text("host", "0.0.0.0"),
        log_level=keys.choice("log_level", LEVELS, "info"),
        request_timeout=None if timeout is None else timeout / 1000,
        admin_key_file=keys.text("admin_key_file") if keys.has("admin_key_file") else None,
    )


def _cache(top: Keys) -> CacheBlock:
    keys = top.block("kv_cache", ("policy", "pin_system_prompts", "eviction_threshold_pct", "prefix_ignore"))
    rules = keys.texts("prefix_ignore")
    for rule in rules:
        try:
            re.compile(rule)
        except re.error as error:
            raise keys.refuse("prefix_ignore", f"holds {shown(rule)}, no regular expression: {error}") from None
    return CacheBlock(
        policy=keys.choice("policy", POLICIES, "lru"),
        pin_system_prompts=keys.flag("pin_system_prompts", True),
        threshold=keys.integer("eviction_threshold_pct", 90, 0, 100) / 100,
        prefix_ignore=rules,
    )


def _batching(top: Keys) -> BatchBlock:
    keys = top.block("batching", ("strategy", "max_batch_size", "static_flush_ms", "prefill_decode_split"))
    return BatchBlock(
        strategy=cast("Strategy", keys.choice("strategy", STRATEGIES, "continuous")),
        cap=keys.integer("max_batch_size", 1, 1) if keys.has("max_batch_size") else None,
        flush=keys.integer("static_flush_ms", 2000, 1) / 1000,
        split=keys.flag("prefill_decode_split", False),
    )


# ── nodes ────────────────────────────────────────────────────────────────────────────────────────────
_NODE = ("id", "hardware", "hardware_profile", "backend", "endpoint", "models", "weight", "role")


def _nodes(file: Place, top: Keys) -> tuple[NodeEntry, ...]:
    listed = top.raw("nodes")
    if not isinstance(listed, list) or not listed:
        raise top.refuse("nodes", "must be a list with at least one node")
    nodes: list[NodeEntry] = []
    ids: dict[str, int] = {}
    places: dict[tuple[str, int, str], int] = {}
    for index, value in enumerate(listed):
        keys = Keys(file, f"nodes[{index}]", value, _NODE)
        node = _node(keys)
        if node.id in ids:
            raise keys.refuse("id", f"{shown(node.id)} is taken by nodes[{ids[node.id]}]; ids are unique")
        ids[node.id] = index
        place = node.host.lower(), node.port, node.path_prefix
        if place in places:
            raise keys.refuse("endpoint", f"is that of nodes[{places[place]}]; a node is one endpoint")
        places[place] = index
        nodes.append(node)
    return tuple(nodes)


def _node(keys: Keys) -> NodeEntry:
    name = keys.text("id")
    if not _ID.fullmatch(name):
        raise keys.refuse("id", f"must be 1 to 64 of A-Z a-z 0-9 . _ -, not {shown(name)}")
    hardware = keys.choice("hardware", NAMES)
    scheme, host, port, prefix = _endpoint(keys)
    return NodeEntry(
        id=name, hardware=hardware, profile=_profile(keys, hardware), backend=keys.choice("backend", BACKENDS),
        scheme=scheme, host=host, port=port, path_prefix=prefix, models=keys.texts("models", needed=True),
        weight=keys.number("weight", 1.0, 0, 1), role=cast("Role", keys.choice("role", ROLES, "both")),
    )  # fmt: skip


def _profile(keys: Keys, hardware: str) -> Hardware:
    if hardware != CUSTOM:
        if keys.has("hardware_profile"):
            raise keys.refuse("hardware_profile", f"goes with hardware: custom only, not with {hardware}")
        return HARDWARE[hardware]
    if not keys.has("hardware_profile"):
        raise keys.refuse("hardware_profile", "is missing; hardware: custom needs memory_bandwidth_gbps and vram_gb")
    block = keys.block("hardware_profile", ("memory_bandwidth_gbps", "vram_gb", "nvlink", "bf16_tflops"))
    for key in ("memory_bandwidth_gbps", "vram_gb"):
        if not block.has(key):
            raise block.refuse(key, "is missing; it is a number above 0")
    bandwidth = block.number("memory_bandwidth_gbps", 0, 0, above=True)
    return Hardware(
        vram_gb=block.number("vram_gb", 0, 0, above=True), bandwidth_gbps=bandwidth,
        tflops=block.number("bf16_tflops", TFLOPS_PER_GBPS * bandwidth, 0, above=True),
        nvlink=block.flag("nvlink", False),
    )  # fmt: skip


def _endpoint(keys: Keys) -> tuple[Scheme, str, int, str]:
    url = keys.text("endpoint")
    if "@" in url:  # the URL is not repeated: what stands before the @ is a secret
        raise keys.refuse("endpoint", "holds credentials; give the key by --worker-api-key-file instead")
    try:
        return _read_url(url)
    except ValueError as reason:
        asked = "must be a URL like http://10.0.0.2:8000"
        raise keys.refuse("endpoint", f"{asked}, and {shown(url)} is not: {reason}") from None


def _read_url(url: str) -> tuple[Scheme, str, int, str]:
    parts = urlsplit(url)
    port = parts.port
    if parts.scheme not in {"http", "https"} or not parts.netloc:
        raise ValueError("it begins with neither http:// nor https://")
    if "?" in url or "#" in url or not url.isprintable() or " " in url:
        raise ValueError("it has a query, a fragment or a blank")
    if port == 0 or parts.netloc.endswith(":"):
        raise ValueError("its port is missing or 0")
    host = bare_host(parts.hostname or "")
    prefix = path_prefix(parts.path.rstrip("/").removesuffix("/v1"))
    scheme = cast("Scheme", parts.scheme)
    return scheme, host, port or (443 if scheme == "https" else 80), prefix


def _check_split(top: Keys, nodes: tuple[NodeEntry, ...]) -> None:
    batching = top.block("batching", ("strategy", "max_batch_size", "static_flush_ms", "prefill_decode_split"))
    for model in dict.fromkeys(model for node in nodes for model in node.models):
        roles = {node.role for node in nodes if model in node.models}
        for need in ("prefill", "decode"):
            if not roles & {need, "both"}:
                raise batching.refuse(
                    "prefill_decode_split", f"is true, but no node of {shown(model)} has role {need} or both")
