"""Settings in, running parts out: the one file that knows every layer (design.md §2).

Start-up order (replica-router §1.13): read and check files and settings, bind the socket, start what launches,
start probes, accept requests.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import resource
import signal
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import uvicorn
import uvloop

from infera_cli import __version__
from infera_cli.config.serve import admin_token, api_keys, worker_api_key
from infera_cli.config.settings import ServeSettings
from infera_cli.events import Bus, Event, WorkerChanged
from infera_cli.fleet.probe import Prober, probe_timeout
from infera_cli.fleet.registry import Registry
from infera_cli.fleet.sources import static
from infera_cli.fleet.sources.replicas import SOURCE, ReplicaSource
from infera_cli.gateway.access import Access
from infera_cli.gateway.app import ControlParts, build_app
from infera_cli.gateway.connection import bound_to
from infera_cli.gateway.dispatch import Dispatcher
from infera_cli.gateway.explain import Explainer
from infera_cli.gateway.gate import Gate
from infera_cli.gateway.listen import BACKLOG, Listener, bind
from infera_cli.gateway.options import Limits, RelayOptions, Timeouts
from infera_cli.gateway.tls import ServingTls
from infera_cli.gateway.upstream.fetch import Fetcher
from infera_cli.gateway.upstream.http import Client
from infera_cli.launch.sim import SimEngines
from infera_cli.routing.catalogue import policy
from infera_cli.routing.health import BreakerRules
from infera_cli.routing.sessions import Pins
from infera_cli.routing.types import WorkerSpec
from infera_cli.telemetry import logs
from infera_cli.telemetry.access_log import AccessLog
from infera_cli.telemetry.event_log import EventLog
from infera_cli.telemetry.journal import Journal
from infera_cli.telemetry.metrics import Metrics
from infera_cli.telemetry.recorder import Consumer, Recorder
from infera_cli.telemetry.watched import Watched

Say = Callable[[str], None]
_log = logging.getLogger("infera.serve")


def run(settings: ServeSettings, say: Say) -> int:
    """Serve until SIGTERM or Ctrl-C; the exit code. `say` gets lines for people, on standard output.

    Raises ConfigError and AddressInUse before anything was started.
    """
    logs.setup(settings.log_level, settings.log_format)
    raise_file_limit()
    server = Server(settings)
    try:
        uvloop.run(server.serve(say))
    finally:
        server.close()
    return 0


@dataclass
class Server:
    """Everything that `infera serve` runs, built from its settings; sockets are bound when it is made."""

    settings: ServeSettings
    bus: Bus = field(default_factory=Bus)

    def __post_init__(self) -> None:
        settings = self.settings
        self.access = Access(
            api_keys=api_keys(settings), admin_token=admin_token(settings), admin_open=settings.admin_open
        )
        self.worker_key = worker_api_key(settings)
        self.tls = _serving_tls(settings)
        self.file = ReplicaSource(settings.replicas, router_port=settings.port, api_key=self.worker_key) if settings.replicas else None
        self.static = self._static_specs()
        self.policy = policy(settings.router_policy)
        self.registry = Registry(
            self.bus, pins=Pins(settings.session_ttl), breaker=_breaker(settings), created=int(time.time())
        )
        self.upstream = Client(
            connect_timeout=settings.connect_timeout, idle_limit=Timeouts().worker_idle, clock=time.monotonic
        )
        dispatcher = Dispatcher(self.registry, self.policy, slack=settings.affinity_slack)
        self.gate = Gate(dispatcher, self.upstream, self.bus, self.access, relay_options(settings))
        self.prober = Prober(
            self.registry, Fetcher(self.upstream), interval=settings.health_interval,
            timeout=probe_timeout(settings.connect_timeout),
        )  # fmt: skip
        self.recorder = Recorder(self.bus)
        watched = Watched(fleet=self.registry, inflight=lambda: len(self.gate.inside), pools=lambda: self.upstream.pools)
        self.metrics = Metrics(self.bus, watched, version=__version__, flush=self.recorder.flush)
        self.journal = Journal(flush=self.recorder.flush)
        EventLog(self.bus)
        self.stopping = False
        self.bus.subscribe(self._hear)
        self.bus.subscribe(self.prober.on_event)
        self.listener: Listener = bind(settings.host, settings.port)

    def close(self) -> None:
        """Give back what is held."""
        self.listener.close()
        self.upstream.close()

    @property
    def url(self) -> str:
        """Where it answers."""
        return self.listener.url("https" if self.tls else "http")

    # ── running ──────────────────────────────────────────────────────────────────────────────────────
    async def serve(self, say: Say, ready: Callable[[], None] = lambda: None) -> None:
        """Run until told to stop."""
        for consumer in (self.metrics.add, self.journal.add, *self._access_log()):
            self.recorder.feed(consumer)
        async with contextlib.AsyncExitStack() as stack:
            await self._open_sources(stack, say)
            for line in self.banner():
                say(line)
            server = self._http_server()
            self._install_signals(server)
            self.prober.start()
            stack.push_async_callback(self.prober.stop)
            for background in (self.gate.run(), self.recorder.run(self.metrics.observe_lag), *self._watch_tls()):
                await stack.enter_async_context(_running(background))
            ready()
            await server.serve(sockets=list(self.listener.sockets))

    def stop(self) -> None:
        """Ask for an orderly end."""
        self.stopping = True

    def banner(self) -> Iterator[str]:
        """What is printed at the start: the address first."""
        yield f"infera {__version__} listening on {self.url}"
        members = self.registry.members()
        for member in members:
            yield f"  worker {member.spec.id}  {member.spec.url}"
        settings = self.settings
        yield (
            f"  policy {self.policy.name}, session ttl {settings.session_ttl:g} s, affinity slack {settings.affinity_slack}"
        )
        yield f"  try: curl {self.url}/v1/models   look: {self.url}/docs"

    def _http_server(self) -> _Uvicorn:
        config = uvicorn.Config(
            build_app(self._control_parts()), http=bound_to(self.gate), ws="none", loop="none", lifespan="off",
            log_config=None, access_log=False, server_header=False, date_header=True, proxy_headers=False,
            backlog=BACKLOG, timeout_graceful_shutdown=max(1, round(self.settings.shutdown_timeout)),
        )  # fmt: skip
        config.load()
        if self.tls is not None:
            config.ssl = self.tls.context
        return _Uvicorn(config)

    def _control_parts(self) -> ControlParts:
        return ControlParts(
            fleet=self.registry, access=self.access, metrics=self.metrics, journal=self.journal,
            explain=Explainer(self.gate.dispatcher, self.policy.name), version=__version__, policy=self.policy.name,
            is_draining=lambda: self.stopping, body_limit=self.settings.max_body_size,
        )  # fmt: skip

    def _access_log(self) -> list[Consumer]:
        wanted = self.settings.access_log and _log.isEnabledFor(logging.INFO)
        return [AccessLog(self.settings.log_format).add] if wanted else []

    def _watch_tls(self) -> list[Coroutine[None, None, None]]:
        return [self.tls.watch()] if self.tls is not None else []

    # ── sources ──────────────────────────────────────────────────────────────────────────────────────
    def _static_specs(self) -> list[WorkerSpec]:
        self.loaded = self.file.load() if self.file else None
        return static.workers(self.settings.worker, api_key=self.worker_key)

    async def _open_sources(self, stack: contextlib.AsyncExitStack, say: Say) -> None:
        if self.loaded is not None:
            self.registry.replace_source(SOURCE, self.loaded.specs)
        for spec in self.static:
            self.registry.add(spec)
        if self.settings.sim:
            engines = await stack.enter_async_context(SimEngines())
            for engine in await engines.start(self.settings.sim):
                self.registry.add(WorkerSpec(id=engine.name, host=engine.host, port=engine.port, source="sim", engine="sim"))

    def reload(self) -> None:
        """SIGHUP: read the replica file again (R151)."""
        if self.file is None:
            _log.warning("SIGHUP does nothing without --replicas")
        else:
            self.file.reload(self.registry, self.bus)

    def _hear(self, event: Event) -> None:
        if isinstance(event, WorkerChanged) and event.what == "removed":
            self.gate.forget_absent()

    def _install_signals(self, server: _Uvicorn) -> None:
        loop = asyncio.get_running_loop()

        def stop() -> None:
            server.force_exit = self.stopping
            self.stopping = server.should_exit = True

        with contextlib.suppress(RuntimeError, ValueError):  # not in the main thread: a test's or an embedder's
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, stop)
            loop.add_signal_handler(signal.SIGHUP, self.reload)


class _Uvicorn(uvicorn.Server):
    """uvicorn without its signal handlers: an orderly stop is exit code 0 here."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals alone."""
        yield


@contextlib.asynccontextmanager
async def _running(work: object) -> AsyncIterator[None]:
    task = asyncio.ensure_future(work)  # type: ignore[call-overload]
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def _serving_tls(settings: ServeSettings) -> ServingTls | None:
    if settings.ssl_certfile is None:
        return None
    return ServingTls(Path(settings.ssl_certfile), Path(settings.ssl_keyfile) if settings.ssl_keyfile else None)


def relay_options(settings: ServeSettings) -> RelayOptions:
    """The data plane's share of the settings; 0 stands for no limit."""
    limits = Limits(
        body_bytes=settings.max_body_size, header_bytes=settings.max_header_size,
        header_count=settings.max_header_count, in_flight=settings.max_inflight or 1 << 62,
    )  # fmt: skip
    timeouts = Timeouts(
        connect=settings.connect_timeout, total=settings.request_timeout, first_byte=settings.first_byte_timeout,
        idle=settings.idle_timeout, keep_alive=settings.keep_alive_timeout,
    )  # fmt: skip
    return RelayOptions(
        limits=limits, timeouts=timeouts, max_retries=settings.request_max_retries,
        stream_keepalive=settings.stream_keepalive,
    )  # fmt: skip


def _breaker(settings: ServeSettings) -> BreakerRules:
    return BreakerRules(
        threshold=settings.breaker_failure_threshold, cooldown=settings.breaker_cooldown,
        cooldown_max=settings.breaker_max_cooldown,
    )  # fmt: skip


def raise_file_limit() -> None:
    """Each stream takes two descriptors; the usual soft limit of 1024 is not enough (S101)."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY or soft < hard:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 1 << 20) if hard > 0 else 1 << 20, hard))
