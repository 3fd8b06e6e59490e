"""One running server, put together from its settings.

Start-up order (replica-router §1.13): read and check files and settings, bind the socket, open the sources, start
probes, accept requests.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import resource
import signal
import socket
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence

import uvloop

from infera_cli import __version__
from infera_cli.config.discovery import backend_of
from infera_cli.config.inspect import fingerprint
from infera_cli.config.keys import client_keys
from infera_cli.config.serve import admin_token
from infera_cli.config.settings import ServeSettings
from infera_cli.events import Bus, Event, WorkerChanged
from infera_cli.fleet.probe import NODE_PROBE_TIMEOUT, Prober, probe_timeout
from infera_cli.fleet.registry import Registry
from infera_cli.gateway.access import Access
from infera_cli.gateway.app import ControlParts, build_app
from infera_cli.gateway.dispatch import Dispatcher
from infera_cli.gateway.endpoints.parts import Capacity, SourceState
from infera_cli.gateway.explain import Explainer, WorkOf, no_work
from infera_cli.gateway.gate import Gate
from infera_cli.gateway.kv.plan import insisted_on
from infera_cli.gateway.listen import Listener, bind
from infera_cli.gateway.options import Timeouts
from infera_cli.gateway.prewarm import CacheDaemon
from infera_cli.gateway.quotas import Limits, Quotas
from infera_cli.gateway.source_board import SourceBoard
from infera_cli.gateway.trace import Tracing
from infera_cli.gateway.upstream.dial import Dialer
from infera_cli.gateway.upstream.fetch import Fetcher
from infera_cli.gateway.upstream.http import Client
from infera_cli.routing.catalogue import policy
from infera_cli.routing.sessions import Pins
from infera_cli.telemetry import logs
from infera_cli.telemetry.access_log import AccessLog
from infera_cli.telemetry.event_log import EventLog
from infera_cli.telemetry.inferact import Exposition, WithNodes
from infera_cli.telemetry.journal import Journal
from infera_cli.telemetry.metrics import Metrics
from infera_cli.telemetry.recorder import Consumer, Recorder
from infera_cli.telemetry.usage import read_usage
from infera_cli.telemetry.watched import Watched
from infera_cli.wiring import cache, translation
from infera_cli.wiring.allocator import keep_freed_memory
from infera_cli.wiring.discovery import FromEtcd
from infera_cli.wiring.http import HttpServer, http_server
from infera_cli.wiring.options import breaker_rules, relay_options, serving_tls
from infera_cli.wiring.scheduler import scheduler_of
from infera_cli.wiring.sources import Into, Say, launching_of, sources_of

_GC_EVERY = 10_000  # containers more than before: a relay makes no cycles, and each look at the young ones costs
_FILES = 1 << 20
_log = logging.getLogger("infera.serve")


def run(settings: ServeSettings, say: Say) -> int:
    """Serve until SIGTERM or Ctrl-C; the exit code. `say` gets lines for people, on standard output.

    Raises ConfigError and AddressInUse before anything was started.
    """
    logs.setup(settings.log_level, settings.log_format)
    raise_file_limit()
    keep_freed_memory()
    server = Server(settings)
    try:
        uvloop.run(_to_the_end(server, say))
    finally:
        server.close()
    return 0


async def _to_the_end(server: Server, say: Say) -> None:
    """Serve; when that is over another signal changes nothing: an orderly end stays exit code 0."""
    try:
        await server.serve(say)
    finally:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_IGN)


class Server:
    """Everything that `infera serve` runs; the socket is bound when it is made, so that a taken port costs nothing."""

    def __init__(self, settings: ServeSettings) -> None:
        self.settings = settings
        self.stopping = False
        self.keys = client_keys(settings)
        self.access = Access(
            api_keys=[client.key for client in self.keys], admin_token=admin_token(settings),
            admin_open=settings.admin_open, names=(settings.host, socket.gethostname()),
        )  # fmt: skip
        self.tls = serving_tls(settings)
        self.discovery = FromEtcd(settings) if backend_of(settings) else None
        self.sources = [*sources_of(settings), *([self.discovery] if self.discovery else [])]
        self.launching = launching_of(self.sources)
        self.bus = Bus()
        self._make_fleet(settings)
        self._make_telemetry()
        self.listener: Listener = bind(settings.host, settings.port)

    def _make_fleet(self, settings: ServeSettings) -> None:
        self.policy = policy(settings.router_policy)
        self.registry = Registry(
            self.bus, pins=Pins(settings.session_ttl), breaker=breaker_rules(settings), created=int(time.time())
        )
        dialer = Dialer(settings.connect_timeout)
        self.upstream = Client(dialer, idle_limit=Timeouts().worker_idle, clock=time.monotonic)
        dispatcher = Dispatcher(self.registry, self.policy, slack=settings.affinity_slack)
        self.gate = Gate(dispatcher, self.upstream, self.bus, self.access, relay_options(settings))
        self.fetch = Fetcher(self.upstream, dialer)
        self.scheduler = scheduler_of(settings, self.policy, self.registry, self.sources)
        if self.scheduler is not None:
            self.scheduler.install(self.gate, self.bus)
        self.cache = cache.install(settings, self.policy, self.gate, self.registry, self.bus)
        tokenizers = self.cache.tokenizers if self.cache else None
        self.aliases = translation.install(settings, self.gate, self.fetch, self.bus, tokenizers)
        limits = {client.key.encode(): Limits(client.models, client.per_minute) for client in self.keys}
        if any(limit != Limits() for limit in limits.values()):
            self.gate.plan = Quotas(self.gate, limits, self.gate.plan)
        self.prober = Prober(
            self.registry,
            self.fetch,
            interval=settings.health_interval,
            timeout=NODE_PROBE_TIMEOUT if settings.config else probe_timeout(settings.connect_timeout),
        )
        self.bus.subscribe(self._hear, WorkerChanged)
        self.bus.subscribe(self.prober.on_event, WorkerChanged)

    def _make_telemetry(self) -> None:
        self.recorder = Recorder(self.bus)
        watched = Watched(
            fleet=self.registry, inflight=lambda: len(self.gate.inside), pools=lambda: self.upstream.pools,
            direct=lambda: sum(relay.ask.only is not None for relay in self.gate.inside),
            sources=(self.discovery,) if self.discovery else (), cache=self.cache,
        )  # fmt: skip
        self.metrics = Metrics(self.bus, watched, version=__version__, flush=self.recorder.flush)
        self.journal = Journal(flush=self.recorder.flush)
        self.exposition: Exposition = self.metrics
        if self.scheduler is not None:
            self.exposition = WithNodes(self.metrics, self.scheduler.watch(self.bus, self.recorder))
        EventLog(self.bus)
        files = (self.settings.replicas, self.settings.config)
        self.source_board = SourceBoard(self.bus, [name for name in files if name])
        drift = [self.cache.drift.add] if self.cache else []
        self.tracing = Tracing(self.gate, read_usage)
        for consumer in (self.metrics.add, self.journal.add, self.tracing.add, *drift, *self._access_log()):
            self.recorder.feed(consumer)

    def close(self) -> None:
        """Give back the port; all else that is held ends with `serve`, in its event loop."""
        self.listener.close()

    @property
    def url(self) -> str:
        """Where it answers."""
        return self.listener.url("https" if self.tls else "http")

    # ── running ──────────────────────────────────────────────────────────────────────────────────────
    async def serve(self, say: Say, ready: Callable[[], None] = lambda: None) -> None:
        """Run until told to stop."""
        into = Into(self.registry, self.bus, say, self.gate, self.fetch, self.url)
        async with contextlib.AsyncExitStack() as stack:
            stack.callback(self.upstream.close)
            for source in self.sources:
                await source.open(into, stack)
            if self.cache is not None:
                await stack.enter_async_context(_running(self.cache.follow(self.fetch)))
            for line in self.banner():
                say(line)
            server = self._http_server()
            self._install_signals(server, into)
            self.prober.start()
            stack.push_async_callback(self.prober.stop)
            for work in (
                self.gate.run(), self.recorder.run(self.metrics.observe_lag), *self._watch_tls(),
                *(self.scheduler.work(self.fetch) if self.scheduler else ()),
            ):  # fmt: skip
                await stack.enter_async_context(_running(work))
            gc.freeze()  # what lives as long as the server need not be looked at by every collection
            gc.set_threshold(_GC_EVERY, 20, 50)
            ready()
            await server.serve(sockets=list(self.listener.sockets))

    def banner(self) -> Iterator[str]:
        """What is printed at the start: the address first."""
        settings = self.settings
        yield f"infera {__version__} listening on {self.url}"
        for member in self.registry.members():
            yield f"  worker {member.spec.id}  {member.spec.url}"
        if self.launching is not None:
            yield from self.launching.banner()
        yield (
            f"  policy {self.policy.name}, session ttl {settings.session_ttl:g} s, "
            f"affinity slack {settings.affinity_slack}"
        )
        yield from self.cache.banner() if self.cache else ()
        yield f"  try: curl {self.url}/v1/models   look: {self.url}/docs"

    def reload(self, into: Into) -> None:
        """SIGHUP: read files again (R151)."""
        reread = [source.reload(into) for source in self.sources]
        if not any(reread):
            _log.warning("SIGHUP: there is no file to read again")

    def _http_server(self) -> HttpServer:
        parts = ControlParts(
            fleet=self.registry,
            access=self.access,
            metrics=self.exposition,
            journal=self.journal,
            explain=Explainer(
                self.gate.dispatcher, self.policy.name, self._work_of(), aliases=self.aliases,
                insisted_on=insisted_on if self.settings.router_mode == "direct" else None,
            ),
            cached_blocks=self.cache.blocks_of if self.cache else None,
            broken_sessions=self.cache.sessions.listing if self.cache else None,
            version=__version__,
            policy=self.policy.name,
            config=fingerprint(self.settings),
            is_draining=lambda: self.stopping,
            sources=self._source_states,
            source_kind="discovery" if self.discovery else "files",
            records=self.discovery.records if self.discovery else {},
            body_limit=self.settings.max_body_size,
            trace=self.tracing,
            aliases=self.aliases,
            profile=self.fetch if self.settings.enable_profiling else None,
            prewarm=CacheDaemon(self.settings.kvd_socket_path) if self.settings.kvd_socket_path else None,
            supervisor=self.launching,
            nodes=self.scheduler.parts() if self.scheduler else None,
            capacity=self.launching.capacity if self.launching else Capacity,
        )
        return http_server(
            build_app(parts),
            self.gate,
            tls=self.tls.context if self.tls else None,
            shutdown_timeout=self.settings.shutdown_timeout,
        )

    def _work_of(self) -> WorkOf:
        if self.cache is not None:
            return self.cache.work
        if self.scheduler is not None and self.scheduler.scheduling is not None:
            return self.scheduler.scheduling.explained
        return no_work

    def _source_states(self) -> Sequence[SourceState]:
        return [*self.source_board(), *([self.discovery.state()] if self.discovery else [])]

    def _access_log(self) -> list[Consumer]:
        wanted = self.settings.access_log and _log.isEnabledFor(logging.INFO)
        return [AccessLog(self.settings.log_format).add] if wanted else []

    def _watch_tls(self) -> list[Coroutine[None, None, None]]:
        return [self.tls.watch()] if self.tls is not None else []

    def _hear(self, event: Event) -> None:
        if isinstance(event, WorkerChanged) and event.what == "removed":
            self.gate.forget_absent()

    def _install_signals(self, server: HttpServer, into: Into) -> None:
        def stop() -> None:
            server.force_exit = self.stopping  # a second signal ends at once
            if self.stopping and self.launching is not None:
                self.launching.hurry()
            self.stopping = server.should_exit = True

        loop = asyncio.get_running_loop()
        with contextlib.suppress(RuntimeError, ValueError):  # not in the main thread: a test's or an embedder's
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, stop)
            loop.add_signal_handler(signal.SIGHUP, self.reload, into)


@contextlib.asynccontextmanager
async def _running(work: Coroutine[None, None, None]) -> AsyncIterator[None]:
    task = asyncio.get_running_loop().create_task(work)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def raise_file_limit() -> None:
    """Each stream takes two descriptors; the usual soft limit of 1024 is not enough (S101)."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _FILES if hard == resource.RLIM_INFINITY else min(hard, _FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
