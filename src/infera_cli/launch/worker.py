"""One registered worker, from its start to its orderly end (infera-wire §9).

Start: engine, readiness, registration, heartbeat. Stop, on a signal or when the engine ends: heartbeat off, out of
discovery, drain, engine off. Deregistration comes first, so that nobody sends anything while it drains (S7).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from infera_cli.errors import InferaError
from infera_cli.fleet.registration import LEASE_TIME, EtcdAccess, EtcdClient, Registration
from infera_cli.launch.asking import Asking, endpoints
from infera_cli.launch.child import Child
from infera_cli.launch.dialects.base import Dialect, EventSource, KvPorts
from infera_cli.launch.drain import QUIET, drained
from infera_cli.protocol.worker_record import BadRecord, WorkerRecord, encode_record, parse_record

log = logging.getLogger("infera.launch")


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Seconds. A drain of 0 means that the engine is stopped at once."""

    ready_within: float = 1800.0
    ready_poll: float = 2.0
    drain: float = 30.0
    quiet: float = QUIET
    lease: int = LEASE_TIME


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One worker to be. `command` is empty where somebody else runs the engine at `url`.

    `url` is where this machine reaches it, `public_url` where others do; `worker_id` is its name in discovery.
    `kv` are the ports it was told to publish on, None where it was told nothing.
    """

    dialect: Dialect
    args: Sequence[str]
    command: Sequence[str]
    environment: Mapping[str, str]
    url: str
    public_url: str
    public_host: str
    worker_id: str
    registered: bool
    kv: KvPorts | None
    wants_kv: bool
    ready_path: str = "/health"
    timing: Timing = field(default_factory=Timing)


class Launched:
    """Runs a plan. `stop` may be called at any time; a second call does not wait for open requests."""

    def __init__(self, plan: Plan, access: EtcdAccess, prefix: str) -> None:
        self._plan = plan
        self._access = access
        self._prefix = prefix
        self._stop = asyncio.Event()
        self._hurry = asyncio.Event()
        self._child: Child | None = None
        self.enrolled = asyncio.Event()
        """Set when it is in discovery for the first time."""

    def stop(self) -> None:
        """End in order; called again: at once."""
        if self._stop.is_set():
            self._hurry.set()
        self._stop.set()

    async def run(self) -> int:
        """Live until stopped, or until the engine ends; the exit code. Raises ConfigError, InferaError."""
        async with contextlib.AsyncExitStack() as stack:
            asking = await stack.enter_async_context(Asking(self._plan.url))
            if self._plan.command:
                log.info("starting %s, to answer at %s", self._plan.dialect.name, self._plan.url)
                self._child = await Child.start(self._plan.command, self._plan.environment)
                stack.push_async_callback(self._child.stop, self._plan.dialect.stop_grace)
            if not await self._became_ready(asking):
                return 0
            if self._plan.registered:
                await self._serve(asking)
            else:
                log.info("a further node of its engine: ready, and not registered")
                await self._until_over(self._stop.wait())
        return self._outcome()

    # ── start ────────────────────────────────────────────────────────────────────────────────────────
    async def _became_ready(self, asking: Asking) -> bool:
        """Wait; False when it was told to stop meanwhile. Raises InferaError when it will never be."""
        if not self._plan.registered:
            return not self._stop.is_set()
        plan, within = self._plan, self._plan.timing.ready_within
        try:
            async with asyncio.timeout(within):
                await self._until_over(self._polled_ready(asking), self._stop.wait())
        except TimeoutError:
            raise InferaError(
                f"the engine at {plan.url} was not ready within {within:g} s; see --engine-ready-timeout"
            ) from None
        if self._child is not None and self._child.code is not None and not self._stop.is_set():
            raise InferaError(f"the engine ended with exit code {self._child.code} before it was ready")
        return not self._stop.is_set()

    async def _polled_ready(self, asking: Asking) -> None:
        while not await asking.is_ready(self._plan.ready_path, self._plan.dialect.ready_timeout):  # noqa: ASYNC110
            await asyncio.sleep(self._plan.timing.ready_poll)

    async def _record(self, asking: Asking) -> WorkerRecord:
        plan, dialect, args = self._plan, self._plan.dialect, self._plan.args
        model = dialect.model(args) or await asking.model()
        if model is None:
            raise InferaError(f"the engine at {plan.url} lists no model, and its command line names none")
        events, replay = endpoints(plan.public_host, await self._event_source(asking))
        size, rank = dialect.dp_size(args), dialect.dp_rank(args)
        return _acceptable(WorkerRecord(
            worker_id=plan.worker_id, url=plan.public_url, model_name=model, engine=dialect.wire_name,
            infera_engine=None if dialect.name == dialect.wire_name else dialect.name,
            kv_events_endpoint=events, kv_replay_endpoint=replay,
            kv_block_size=await asking.block_size() or dialect.block_size(args),
            dp_rank=rank, dp_size=size if size > 1 and rank is None else None,
        ))  # fmt: skip

    async def _event_source(self, asking: Asking) -> EventSource | None:
        """Where it publishes: as it says, else as it was told."""
        plan = self._plan
        if not plan.wants_kv:
            return None
        if plan.dialect.sources_path is not None:
            document = await asking.document(plan.dialect.sources_path)
            said = plan.dialect.event_source(document)
            if said is not None or document is not None:
                return said
        rank = plan.dialect.dp_rank(plan.args) or 0  # adds itself to the ports
        return EventSource(plan.kv.events + rank, plan.kv.replay + rank) if plan.kv is not None else None

    # ── in service ───────────────────────────────────────────────────────────────────────────────────
    async def _serve(self, asking: Asking) -> None:
        record = await self._record(asking)
        client = EtcdClient(self._access)
        registration = Registration(client, record, prefix=self._prefix, lease_time=self._plan.timing.lease)
        beating = asyncio.ensure_future(registration.run())
        try:
            await self._until_over(self._stop.wait(), self._announced(registration), _ended(beating))
            await self._until_over(self._stop.wait(), _ended(beating))
        finally:
            beating.cancel()
            await asyncio.gather(beating, return_exceptions=True)
            await registration.withdraw()
            await client.aclose()
        if self._child is None or self._child.code is None:
            await self._drained(asking)

    async def _announced(self, registration: Registration) -> None:
        await registration.enrolled.wait()
        self.enrolled.set()

    async def _drained(self, asking: Asking) -> None:
        timing = self._plan.timing
        if timing.drain > 0:
            log.info("waiting up to %g s for open requests", timing.drain)
            await self._until_over(
                drained(asking.metrics, within=timing.drain, quiet=timing.quiet), self._hurry.wait()
            )

    async def _until_over(self, *works: Coroutine[Any, Any, Any]) -> None:
        """Until one of `works` is done, or the engine has ended; what is left is cancelled."""
        tasks = [asyncio.ensure_future(work) for work in works]
        if self._child is not None:
            tasks.append(asyncio.ensure_future(self._child.ended()))
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _outcome(self) -> int:
        if self._stop.is_set():
            return 0
        code = self._child.code if self._child is not None else None
        log.error("the engine ended by itself, with exit code %s", code)
        return 1


def _acceptable(record: WorkerRecord) -> WorkerRecord:
    """`record`, if routers would take it. Raises InferaError."""
    try:
        return parse_record(record.worker_id, encode_record(record))
    except BadRecord as reason:
        raise InferaError(f"routers would refuse this worker: its record {reason}") from None
    except UnicodeEncodeError:
        raise InferaError("routers would refuse this worker: its record is not UTF-8") from None


async def _ended(task: asyncio.Future[None]) -> None:
    """Its end, which only a fault brings; it goes on when nobody waits for it any more."""
    await asyncio.shield(task)
