"""`--discovery-backend etcd`: a source whose workers enrol themselves (infera-wire §1; rulings 3, 4, 23)."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Mapping

from infera_cli.config.discovery import Discovery, etcd_secret
from infera_cli.config.serve import worker_api_key
from infera_cli.config.settings import ServeSettings
from infera_cli.errors import DiscoveryError, DiscoveryRefused
from infera_cli.fleet.enrolled import Enrolled
from infera_cli.fleet.etcd_access import EtcdAccess, endpoint_urls
from infera_cli.fleet.etcd_client import EtcdClient
from infera_cli.fleet.sources.etcd import SOURCE, EtcdSource
from infera_cli.gateway.endpoints.parts import SourceState
from infera_cli.protocol.worker_record import WorkerRecord, prefix_of
from infera_cli.wiring.farewell import Farewell
from infera_cli.wiring.ourselves import ourselves
from infera_cli.wiring.sources import Into

FIRST_LOOK = 3.0
"""Seconds that a start waits for etcd; after that it serves, and the view comes when it comes."""

_log = logging.getLogger("infera.fleet")


def etcd_access(settings: Discovery, *, timeout: float = 10.0) -> EtcdAccess:
    """How these settings reach etcd. Raises ConfigError."""
    tls = bool(settings.etcd_ca_file or settings.etcd_cert_file)
    return EtcdAccess(
        endpoints=endpoint_urls(settings.etcd_endpoint, tls=tls),
        user=settings.etcd_user, password=etcd_secret(settings),
        ca_file=settings.etcd_ca_file, cert_file=settings.etcd_cert_file, key_file=settings.etcd_key_file,
        timeout=timeout,
    )  # fmt: skip


class FromEtcd:
    """The workers that etcd knows. Fulfils Source, and tells its state."""

    def __init__(self, settings: ServeSettings) -> None:
        self._settings = settings
        self._access = etcd_access(settings)
        self._access.tls()  # a bad certificate file stops the program before anything is bound
        self._api_key = worker_api_key(settings)
        self._enrolled: Enrolled | None = None
        self._source: EtcdSource | None = None

    async def open(self, into: Into, stack: contextlib.AsyncExitStack) -> None:
        """See Source. Raises DiscoveryRefused when etcd answers that it will not let us in (S104)."""
        client = EtcdClient(self._access)
        stack.push_async_callback(client.aclose)
        farewell = Farewell(into.gate, into.fetch)
        stack.push_async_callback(farewell.aclose)
        self._enrolled = Enrolled(
            into.registry, into.bus, source=SOURCE, left=farewell, api_key=self._api_key,
            is_ours=ourselves(self._settings, into.url).are_at,
        )  # fmt: skip
        self._source = EtcdSource(
            client, self._enrolled, prefix=prefix_of(self._settings.etcd_prefix), lease_time=self._settings.lease_time
        )
        await self._first_look(self._source)
        following = asyncio.ensure_future(self._source.run())
        stack.push_async_callback(_ended, following)

    async def _first_look(self, source: EtcdSource) -> None:
        try:
            async with asyncio.timeout(FIRST_LOOK):
                await source.first_look()
        except DiscoveryRefused:
            raise
        except DiscoveryError:
            pass  # it was logged; the server starts without
        except TimeoutError:
            _log.warning("etcd did not answer within %g s; starting without its workers", FIRST_LOOK)

    def reload(self, into: Into) -> bool:
        """See Source: nothing is read from a file."""
        return False

    @property
    def records(self) -> Mapping[str, WorkerRecord]:
        """What every worker says about itself, by name; empty before `open`."""
        return self._enrolled.records if self._enrolled is not None else {}

    # ── what people and metrics ask ──────────────────────────────────────────────────────────────────
    @property
    def name(self) -> str:
        """Of the source."""
        return SOURCE

    @property
    def stale(self) -> bool:
        """Whether the last view is served because there is no newer one."""
        return self._source is None or self._source.stale

    @property
    def refused(self) -> int:
        """Records that could not be used."""
        return self._enrolled.refused if self._enrolled is not None else 0

    @property
    def reconnects(self) -> int:
        """How often following was begun anew."""
        return self._source.reconnects if self._source is not None else 0

    def state(self) -> SourceState:
        """For /health; where etcd lives is nobody's business there, the log has it."""
        return SourceState(name=SOURCE, stale=self.stale)


async def _ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
