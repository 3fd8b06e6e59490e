"""`infera config check`: what kind of file is this, and can it be used (rulings 21)."""

from __future__ import annotations

import re
from pathlib import Path

from infera_cli.config.files import parse_settings
from infera_cli.config.layers import check_table
from infera_cli.errors import ConfigError

_YAML = re.compile(rb"^(scheduler|nodes|kv_cache|batching):", re.MULTILINE)
"""How a scheduler file without a telling name begins a block."""


def check_file(path: Path) -> str:
    """What is in a good file, in a few words.

    Raises ConfigError: it cannot be used.
    """
    try:
        content = path.read_bytes()
    except OSError as fault:
        raise ConfigError(f"cannot read {path}: {fault.strerror}") from None
    kind = _kind(path, content)
    if kind == "yaml":
        return _scheduler(path, content)
    return _replicas(path, content) if kind == "json" else _settings(path, content)


def _kind(path: Path, content: bytes) -> str:
    suffixes = {".json": "json", ".toml": "toml", ".yaml": "yaml", ".yml": "yaml"}
    by_name = suffixes.get(path.suffix.lower())
    if by_name is not None:
        return by_name
    if content.lstrip().startswith((b"{", b"\xef\xbb\xbf{")):
        return "json"
    return "yaml" if _YAML.search(content) else "toml"


def _scheduler(path: Path, content: bytes) -> str:
    from infera_cli.protocol.scheduler_file import parse  # noqa: PLC0415 - only for this kind of file

    file = parse(content, path=str(path))
    models = len({model for node in file.nodes for model in node.models})
    told = f"scheduler file, {_count(len(file.nodes), 'node')}, {_count(models, 'model')}, {file.cache.policy}"
    return told + "".join(f"; mind: {warning}" for warning in file.warnings)


def _replicas(path: Path, content: bytes) -> str:
    from infera_cli.protocol.replica_file import parse  # noqa: PLC0415 - only for this kind of file

    file = parse(content, path=str(path), router_port=None)
    return f"replica file, {_count(len(file.replicas), 'replica')}, {_count(len(file.hosts), 'host')}"


def _settings(path: Path, content: bytes) -> str:
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as fault:
        raise ConfigError(f"{path} is not UTF-8 text (byte {fault.start})") from None
    tables = parse_settings(text, path)
    for table in tables:
        check_table(table)
    return f"settings file, {_count(sum(len(table.values) for table in tables), 'setting')}"


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
