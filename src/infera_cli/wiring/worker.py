"""`infera launch`: settings and an engine's command line in, a running worker out (infera-wire §9, §10.2)."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from urllib.parse import urlsplit

import uvloop

from infera_cli.config.catalogue import catalogue
from infera_cli.config.launch_settings import LaunchSettings
from infera_cli.config.settings import SECTIONS
from infera_cli.errors import ConfigError, UsageError
from infera_cli.fleet.etcd_access import EtcdAccess
from infera_cli.launch.addresses import UNSPECIFIED, advertised, is_local
from infera_cli.launch.dialects import Dialect, KvPorts, dialect
from infera_cli.launch.dialects.arguments import is_given, whole
from infera_cli.launch.engines import ENGINES
from infera_cli.launch.ports import check_port, check_unused, free_ports, nodeport_range
from infera_cli.launch.worker import Launched, Plan, Timing
from infera_cli.protocol.address import bare_host
from infera_cli.protocol.worker_record import BadRecord, prefix_of, split_url
from infera_cli.telemetry import logs
from infera_cli.wiring.discovery import etcd_access
from infera_cli.wiring.server import raise_file_limit

_ALWAYS = (signal.SIGTERM, signal.SIGINT)
_STOPS = (*_ALWAYS, signal.SIGHUP, signal.SIGQUIT)
_log = logging.getLogger("infera.launch")


def run(settings: LaunchSettings, engine: str, args: Sequence[str]) -> int:
    """Launch, serve until a signal to stop or the engine's end, stop in order; the exit code.

    When that is over, another signal changes nothing. Raises UsageError, ConfigError, InferaError: nothing is left
    running then.
    """
    logs.setup(settings.launcher_log_level, settings.launcher_log_format)
    raise_file_limit()
    access = etcd_access(settings, timeout=max(0.5, min(10.0, settings.lease_time / 6)))
    access.tls()
    plan = plan_of(settings, dialect(engine), args, os.environ, access)
    worker = Launched(plan, access, prefix_of(settings.etcd_prefix))
    try:
        return uvloop.run(_until_told(worker))
    finally:
        for number in _STOPS:
            signal.signal(number, signal.SIG_IGN)


async def _until_told(worker: Launched) -> int:
    """The handlers are not the loop's own, since it takes those away before its end."""
    loop = asyncio.get_running_loop()

    def tell(*_: object) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed, and all is done
            loop.call_soon_threadsafe(worker.stop)

    for number in _STOPS:
        if number in _ALWAYS or signal.getsignal(number) is not signal.SIG_IGN:  # nohup, or a shell's background
            signal.signal(number, tell)
    return await worker.run()


def plan_of(
    settings: LaunchSettings, speaks: Dialect, args: Sequence[str], environ: Mapping[str, str], access: EtcdAccess
) -> Plan:
    """What will be started and registered. Raises UsageError, ConfigError."""
    timing = Timing(
        ready_within=settings.engine_ready_timeout, drain=settings.drain_timeout, lease=settings.lease_time
    )
    if settings.url is not None:
        return _running(settings, speaks, settings.url, timing, access)
    if (half := speaks.half(args)) is not None:
        raise UsageError(f"{half} workers are not in this version; leave their flags out to serve whole requests")
    host, port, kv = _ports(settings, speaks, args)
    public = _advertised(settings) or _public_host(host, environ, access)
    _warn_of_local(public, access)
    registered = not (speaks.is_follower(args) or _number(environ.get("LWS_WORKER_INDEX")) > 0)
    if registered:  # further nodes listen on no port, and name that of the first one
        check_unused("" if host is None or host in UNSPECIFIED else host, port)
    here = "127.0.0.1" if host is None or host in UNSPECIFIED else _bare(host, "--host")
    return Plan(
        dialect=speaks, args=args, timing=timing, ready_path=ENGINES[speaks.name].readiness,
        command=speaks.command(args, python=settings.engine_python or sys.executable, port=port, kv=kv),
        environment=_environment(speaks, environ, port),
        url=f"http://{_at(here, port)}", public_url=f"http://{_at(public, port)}",
        public_host=public, worker_id=_at(public, port), kv=kv, wants_kv=settings.enable_kv_events,
        registered=registered,
    )  # fmt: skip


def _running(
    settings: LaunchSettings, speaks: Dialect, url: str, timing: Timing, access: EtcdAccess
) -> Plan:  # fmt: skip
    """An engine that somebody else runs."""
    try:
        base = split_url(url)
    except BadRecord:
        raise ConfigError(f"--url {url!a} is no base URL; write http://host:port") from None
    public = _advertised(settings) or base.host
    if public in UNSPECIFIED:
        raise ConfigError(
            f"--url {url} is no address that routers can reach; write the engine's own, or --advertise-host"
        )
    _warn_of_local(public, access)
    return Plan(
        dialect=speaks, args=(), command=(), environment={}, timing=timing, ready_path=ENGINES[speaks.name].readiness,
        url=f"{base.scheme}://{_at(base.host, base.port)}{base.prefix}",
        public_url=f"{base.scheme}://{_at(public, base.port)}{base.prefix}",
        public_host=public, worker_id=_at(public, base.port), registered=True,
        kv=None, wants_kv=settings.enable_kv_events,
    )  # fmt: skip


def _ports(
    settings: LaunchSettings, speaks: Dialect, args: Sequence[str]
) -> tuple[str | None, int, KvPorts | None]:
    """The bound host, the HTTP port, and the ports for KV events, where the command line names none."""
    host, avoid = speaks.host(args), nodeport_range(settings.nodeport_range)
    probed = host if host is not None and host not in UNSPECIFIED else ""
    port = speaks.port(args)
    port = free_ports(1, avoid=avoid, host=probed) if port is None else check_port(port, speaks.port_flags[0])
    if not (settings.enable_kv_events and speaks.publishes_kv) or is_given(args, ("--kv-events-config",)):
        return host, port, None
    ranks = max(speaks.dp_size(args), (speaks.dp_rank(args) or 0) + 1)
    events = free_ports(ranks, avoid=avoid, taken=[port])
    replay = free_ports(ranks, avoid=avoid, taken=[port, *range(events, events + ranks)])
    return host, port, KvPorts(events, replay)


def _advertised(settings: LaunchSettings) -> str | None:
    """What was asked for. Raises ConfigError for what is no address of any one machine."""
    if settings.advertise_host in UNSPECIFIED:
        raise ConfigError(f"--advertise-host {settings.advertise_host} is no address that routers can reach")
    return _bare(settings.advertise_host, "--advertise-host") if settings.advertise_host is not None else None


def _bare(host: str, named: str) -> str:
    """A host as records have it; `named` says where it was written. Raises ConfigError if routers would refuse it."""
    try:
        return bare_host(host)
    except ValueError:
        raise ConfigError(
            f"{named} {host[:80]!a} is neither a host name nor an address; write it without scheme and port"
        ) from None


def _warn_of_local(public: str, access: EtcdAccess) -> None:
    if is_local(public) and not is_local(urlsplit(access.endpoints[0]).hostname or ""):
        _log.warning("%s is advertised, which only this machine can reach; see --advertise-host", public)


def _public_host(host: str | None, environ: Mapping[str, str], access: EtcdAccess) -> str:
    """A pod knows its own address; elsewhere the way to the registry tells (S20)."""
    pod = environ.get("POD_IP")
    if pod and (host is None or host in UNSPECIFIED):
        return _bare(pod, "POD_IP")
    return _bare(advertised(host, access.endpoints[0]), "--host")


def _environment(speaks: Dialect, environ: Mapping[str, str], port: int) -> dict[str, str]:
    """The engine's surroundings: ours without our secrets (rulings 7), and what it needs and nobody set."""
    secret = {v for model in SECTIONS.values() for row in catalogue(model).values() if row.secret for v in row.envs}
    kept = {name: value for name, value in environ.items() if name not in secret}
    return {**speaks.environment(port), **kept}


def _at(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _number(text: str | None) -> int:
    return (whole(text) if text is not None else None) or 0
