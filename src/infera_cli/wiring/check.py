"""`infera config check`: what kind of file is this, and can it be used (rulings 21).

Files are read by the parts that read them in the running program, with every file that they name: keys, certificates,
replicas. What only another layer could complete, such as a certificate whose key comes from a flag, is not missed.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from infera_cli.config import secrets
from infera_cli.config.discovery import Discovery
from infera_cli.config.files import Table, parse_settings
from infera_cli.config.keys import client_keys
from infera_cli.config.launch_settings import LaunchSettings
from infera_cli.config.layers import settings_of
from infera_cli.config.scheduling import admin_key_file
from infera_cli.config.serve import admin_token, worker_api_key
from infera_cli.config.settings import ClientSettings, ServeSettings
from infera_cli.errors import ConfigError
from infera_cli.protocol import scheduler_file
from infera_cli.wiring.discovery import etcd_access
from infera_cli.wiring.options import serving_tls
from infera_cli.wiring.sources import FromFile, sources_of

_YAML = re.compile(rb"^(scheduler|nodes|kv_cache|batching):", re.MULTILINE)
"""How a scheduler file without a telling name begins a block."""


def check_file(path: Path) -> str:
    """What is in a good file, in a few words.

    Raises ConfigError, UsageError: it, or a file that it names, cannot be used.
    """
    try:
        content = path.read_bytes()
    except OSError as fault:
        raise ConfigError(f"cannot read {path}: {fault.strerror}") from None
    kind = _kind(path, content)
    if kind == "yaml":
        return _scheduler(path, content)
    return _replicas(path) if kind == "json" else _settings(path, content)


def _kind(path: Path, content: bytes) -> str:
    suffixes = {".json": "json", ".toml": "toml", ".yaml": "yaml", ".yml": "yaml"}
    by_name = suffixes.get(path.suffix.lower())
    if by_name is not None:
        return by_name
    if content.lstrip().startswith((b"{", b"\xef\xbb\xbf{")):
        return "json"
    return "yaml" if _YAML.search(content) else "toml"


def _scheduler(path: Path, content: bytes) -> str:
    file = scheduler_file.parse(content, path=str(path))
    secrets.one(None, admin_key_file(file), "admin token")
    models = len({model for node in file.nodes for model in node.models})
    told = f"scheduler file, {_count(len(file.nodes), 'node')}, {_count(models, 'model')}, {file.cache.policy}"
    return told + "".join(f"; mind: {warning}" for warning in file.warnings)


def _replicas(path: Path) -> str:
    file = FromFile(ServeSettings(port=0), str(path)).file
    return f"replica file, {_count(len(file.replicas), 'replica')}, {_count(len(file.hosts), 'host')}"


def _settings(path: Path, content: bytes) -> str:
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as fault:
        raise ConfigError(f"{path} is not UTF-8 text (byte {fault.start})") from None
    tables = parse_settings(text, path)
    for table in tables:
        _read_what_it_names(table)
    return f"settings file, {_count(sum(len(table.values) for table in tables), 'setting')}"


def _read_what_it_names(table: Table) -> None:
    settings = settings_of(table)
    if isinstance(settings, ServeSettings):
        client_keys(settings)
        admin_token(settings)
        worker_api_key(settings)
        sources_of(settings if "port" in table.values else replace(settings, port=0))
        if settings.ssl_certfile and settings.ssl_keyfile:
            serving_tls(settings)
    if isinstance(settings, ServeSettings | LaunchSettings):
        _read_for_etcd(settings)
    if isinstance(settings, ClientSettings):
        secrets.one(settings.admin_token, settings.admin_token_file, "admin token")


def _read_for_etcd(settings: Discovery) -> None:
    access = etcd_access(settings)
    pair = access.cert_file and access.key_file
    (access if pair else replace(access, cert_file=None)).tls()


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
