"""What `infera launch` needs beyond single values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from infera_cli.config.discovery import backend_of, check_discovery
from infera_cli.config.launch_settings import LaunchSettings
from infera_cli.config.layers import Flags, Loaded, load
from infera_cli.errors import ConfigError, UsageError

LONGEST_DRAIN = 3600.0

LATER = (
    "k8s-namespace", "nats-server", "nats-req-idle-timeout", "nats-req-max-duration", "nats-req-max-pending",
    "disaggregation-allow-tcp", "kv-events-bind", "kv-events-advertise", "kv-snapshot-host", "kv-snapshot-port",
    "kv-snapshot-advertise", "index-block-size", "infera-kvd-socket",
)  # fmt: skip
"""Flags of a launcher that the documents name and this version does not have; they are no engine's."""


def load_launch(flags: Flags, environ: Mapping[str, str], engine_args: Sequence[str]) -> Loaded[LaunchSettings]:
    """Settings of `infera launch`, checked as a whole. Raises UsageError (exit 2) and ConfigError (exit 1)."""
    for word in engine_args:
        if word.startswith("--") and word[2:].partition("=")[0] in LATER:
            raise UsageError(f"{word.partition('=')[0]} is not in this version")
    loaded = load(LaunchSettings, flags, environ, section="launch")
    settings = loaded.settings
    if backend_of(settings) is None:
        raise UsageError("nowhere to register: name the registry with --etcd-endpoint HOST:PORT")
    check_discovery(settings)
    if settings.no_engine and settings.url is None:
        raise UsageError("--no-engine needs --url, the base URL of the engine that runs")
    if settings.no_engine and engine_args:
        raise UsageError(f"--no-engine starts nothing, so {engine_args[0]} has nobody to go to")
    if settings.url is not None and not settings.no_engine:
        raise UsageError("--url says where an engine runs; it needs --no-engine")
    if settings.drain_timeout > LONGEST_DRAIN:
        raise ConfigError(f"--drain-timeout must be {LONGEST_DRAIN:g} or less")
    return loaded
