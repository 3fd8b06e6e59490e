"""What `infera serve` needs beyond single values: rules that join several settings, and secrets read in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from infera_cli.config import kv, scheduling, secrets
from infera_cli.config.discovery import backend_of, check_discovery
from infera_cli.config.later import LATER, refuse, variable
from infera_cli.config.layers import Flags, Loaded, Origin, load
from infera_cli.config.settings import ServeSettings
from infera_cli.errors import ConfigError, UsageError

NO_SOURCE = (
    "nobody to route to: name the workers with --replicas FILE, --config FILE or --worker URL, "
    "find them with --etcd-endpoint HOST:PORT, "
    "start simulated ones with --sim N, or try `infera demo`"
)


def load_serve(flags: Flags, environ: Mapping[str, str]) -> Loaded[ServeSettings]:
    """Settings of `infera serve`, checked as a whole. Raises UsageError (exit 2) and ConfigError (exit 1)."""
    unknown = next((flag for flag in LATER if variable(flag) in environ), None)
    if unknown is not None:
        raise refuse(unknown, variable(unknown))
    loaded = _with_admin_key(load(ServeSettings, flags, environ, section="serve"), environ)
    settings = loaded.settings
    if not (settings.replicas or settings.config or settings.worker or settings.sim or backend_of(settings)):
        raise UsageError(NO_SOURCE)
    check_together(settings)
    return _with_defaults_of_sources(loaded)


def _with_admin_key(loaded: Loaded[ServeSettings], environ: Mapping[str, str]) -> Loaded[ServeSettings]:
    """The scheduler's own name for the admin token, where no other one is given."""
    settings, name = loaded.settings, scheduling.ADMIN_KEY
    if name not in environ or settings.admin_token is not None or settings.admin_token_file is not None:
        return loaded
    origins = {**loaded.origins, "admin_token": Origin("environment", name)}
    return Loaded(replace(settings, admin_token=environ[name]), origins)


def _with_defaults_of_sources(loaded: Loaded[ServeSettings]) -> Loaded[ServeSettings]:
    """Defaults follow the source, discovery first (rulings 4, 21); what somebody set stays."""
    changed: dict[str, tuple[Any, Origin]] = {}
    if loaded.settings.sim:
        changed["host"] = "127.0.0.1", Origin("default", "because of --sim")
    if loaded.settings.config is not None:
        changed |= _of_scheduler_file(loaded.settings, loaded.settings.config)
    if backend_of(loaded.settings):
        because = Origin("default", "because of discovery")
        changed |= {"request_timeout": (0.0, because), "idle_timeout": (900.0, because), "port": (8000, because)}
        changed["router_policy"] = kv.POLICY, because
    free = {name: row for name, row in changed.items() if not loaded.given(name)}
    origins = {**loaded.origins, **{name: origin for name, (_, origin) in free.items()}}
    settings = replace(loaded.settings, **{name: value for name, (value, _) in free.items()})
    kv.check_kv(settings.router_policy, settings.router_tokenizer_path, bool(settings.sim))
    kv.check_modes(settings)
    return Loaded(settings, origins)


def _of_scheduler_file(settings: ServeSettings, path: str) -> dict[str, tuple[Any, Origin]]:
    file = scheduling.read_scheduler_file(path)
    found = dict(scheduling.defaults_of(file))
    key = scheduling.admin_key_file(file)
    if key is not None and settings.admin_token is None:
        found["admin_token_file"] = key
    origin = Origin("file", path)
    return {name: (value, origin) for name, value in found.items()}


def check_together(settings: ServeSettings) -> None:
    """Raise ConfigError, UsageError where settings contradict each other."""
    check_discovery(settings)
    if bool(settings.ssl_certfile) != bool(settings.ssl_keyfile):
        raise ConfigError("--ssl-certfile and --ssl-keyfile go together: give both or neither")
    if settings.breaker_max_cooldown < settings.breaker_cooldown:
        raise ConfigError("--breaker-max-cooldown must not be less than --breaker-cooldown")
    if settings.on_exit == "keep" and not settings.state_file:
        raise ConfigError("--on-exit keep needs --state-file, or nobody could find the replicas again")
    first, most = settings.initial_replicas, settings.max_replicas
    if first and most and first > most:
        raise ConfigError(f"--initial-replicas {first} is more than --max-replicas {most} allows")
    if settings.admin_token is not None and settings.admin_token_file is not None:
        raise ConfigError("the admin token is given twice, as a value and as a file; leave one out")


def admin_token(settings: ServeSettings) -> str | None:
    """The admin token, None when none is configured. Raises ConfigError."""
    return secrets.one(settings.admin_token, settings.admin_token_file, "admin token")


def worker_api_key(settings: ServeSettings) -> str | None:
    """The key that is sent to workers, None when none is configured. Raises ConfigError."""
    return secrets.one(None, settings.worker_api_key_file, "worker key")
