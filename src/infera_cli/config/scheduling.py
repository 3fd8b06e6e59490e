"""Settings of cost routing and of the scheduler file, and what such a file means for other settings.

(Source: replica-router §2.2, §2.7; rulings 4, 20, 21.)
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from infera_cli.config.catalogue import setting
from infera_cli.config.kinds import Integer, Many, Number, Seconds, Text
from infera_cli.errors import ConfigError

if TYPE_CHECKING:
    from infera_cli.protocol.scheduler_file import SchedulerFile

GROUP = "Routing by cost"
ADMIN_KEY = "INFERACT_ADMIN_KEY"
POLICY_OF = {"lru": "cost", "prefix-aware": "prefix-aware", "adaptive": "adaptive"}
"""`kv_cache.policy` → routing policy: lru has no prefix term (rulings 20)."""
_LEVELS = {"warn": "warning"}


def config() -> Any:
    """The scheduler file."""
    return setting(
        None, Text("FILE"), "Who is behind it",
        "YAML file of the scheduler: nodes, their hardware, batching; SIGHUP reads it again.")


def queue_limit() -> Any:
    """rulings 20."""
    return setting(
        1024, Integer(low=1), GROUP, "Most requests that wait for one model; more get 429.")


def max_kv_usage() -> Any:
    """Load in tokens."""
    return setting(
        1.0, Number("SHARE"), GROUP,
        "A node is full when its requests would hold more than this share of its KV cache; 0 = never.")


def stall_timeout() -> Any:
    """Stalled nodes."""
    return setting(
        120.0, Seconds(zero=True), GROUP,
        "A worker with open requests where nothing moves for so long gets no new ones; 0 = never.")


def prefix_ignore() -> Any:
    """Lines that clients change on every call."""
    return setting(
        (), Many(Text("REGEX")), GROUP,
        "Lines of a prompt that match do not count when prefixes are compared, e.g. a date; repeat for more.")


def read_scheduler_file(path: str) -> SchedulerFile:
    """The file, checked. Raises ConfigError."""
    from infera_cli.protocol.scheduler_file import parse  # noqa: PLC0415 - only where there is such a file

    try:
        text = Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise ConfigError(f"{path!a}: cannot be read: {error}") from None
    return parse(text, path=path)


def defaults_of(file: SchedulerFile) -> Mapping[str, Any]:
    """Settings that the file gives where nobody else does, by field name."""
    server = file.server
    found: dict[str, Any] = {
        "port": server.port,
        "host": server.host,
        "log_level": _LEVELS.get(server.log_level, server.log_level),
        "router_policy": POLICY_OF[file.cache.policy],
    }
    if server.request_timeout is not None:
        found["request_timeout"] = server.request_timeout
    if file.cache.prefix_ignore:
        found["prefix_ignore"] = file.cache.prefix_ignore
    return found


def admin_key_file(file: SchedulerFile) -> str | None:
    """The key file that it names, beside it unless it is absolute."""
    named = file.server.admin_key_file
    return None if named is None else str(Path(file.path).parent / Path(named).expanduser())
