"""What `infera serve` needs beyond single values: rules that join several settings, and secrets read in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from infera_cli.config import secrets
from infera_cli.config.later import LATER, refuse, variable
from infera_cli.config.layers import Flags, Loaded, Origin, load
from infera_cli.config.settings import ServeSettings
from infera_cli.errors import ConfigError, UsageError

NO_SOURCE = (
    "nobody to route to: name the workers with --replicas FILE or --worker URL, "
    "start simulated ones with --sim N, or try `infera demo`"
)


def load_serve(flags: Flags, environ: Mapping[str, str]) -> Loaded[ServeSettings]:
    """Settings of `infera serve`, checked as a whole. Raises UsageError (exit 2) and ConfigError (exit 1)."""
    unknown = next((flag for flag in LATER if variable(flag) in environ), None)
    if unknown is not None:
        raise refuse(unknown, variable(unknown))
    loaded = load(ServeSettings, flags, environ, section="serve")
    settings = loaded.settings
    if not (settings.replicas or settings.worker or settings.sim):
        raise UsageError(NO_SOURCE)
    check_together(settings)
    if settings.sim and not loaded.given("host"):
        origins = {**loaded.origins, "host": Origin("default", "because of --sim")}
        return Loaded(replace(settings, host="127.0.0.1"), origins)
    return loaded


def check_together(settings: ServeSettings) -> None:
    """Raise ConfigError where two settings contradict each other."""
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


def api_keys(settings: ServeSettings) -> tuple[str, ...]:
    """The keys that clients may use, empty when none is needed. Raises ConfigError."""
    return secrets.several(settings.api_key, settings.api_key_file, "client keys")


def worker_api_key(settings: ServeSettings) -> str | None:
    """The key that is sent to workers, None when none is configured. Raises ConfigError."""
    return secrets.one(None, settings.worker_api_key_file, "worker key")
