"""Settings of `infera serve` as the options of the parts; settings stop here."""

from __future__ import annotations

from pathlib import Path

from infera_cli.config.settings import ServeSettings
from infera_cli.gateway.options import Limits, RelayOptions, Timeouts
from infera_cli.gateway.tls import ServingTls
from infera_cli.routing.health import BreakerRules

_NO_LIMIT = 1 << 62


def relay_options(settings: ServeSettings) -> RelayOptions:
    """The data plane's share; 0 stands for no limit."""
    limits = Limits(
        body_bytes=settings.max_body_size,
        header_bytes=settings.max_header_size,
        header_count=settings.max_header_count,
        in_flight=settings.max_inflight or _NO_LIMIT,
    )
    timeouts = Timeouts(
        connect=settings.connect_timeout,
        total=settings.request_timeout,
        first_byte=settings.first_byte_timeout,
        idle=settings.idle_timeout,
        keep_alive=settings.keep_alive_timeout,
    )
    return RelayOptions(
        limits=limits,
        timeouts=timeouts,
        max_retries=settings.request_max_retries,
        stream_keepalive=settings.stream_keepalive,
    )


def breaker_rules(settings: ServeSettings) -> BreakerRules:
    """The breaker's share."""
    return BreakerRules(
        threshold=settings.breaker_failure_threshold,
        cooldown=settings.breaker_cooldown,
        cooldown_max=settings.breaker_max_cooldown,
    )


def serving_tls(settings: ServeSettings) -> ServingTls | None:
    """The certificate to serve with, None for plain HTTP. Raises ConfigError."""
    if settings.ssl_certfile is None:
        return None
    return ServingTls(Path(settings.ssl_certfile), Path(settings.ssl_keyfile) if settings.ssl_keyfile else None)
