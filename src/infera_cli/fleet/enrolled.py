"""Workers that enrol themselves: records in, members of the fleet out (infera-wire §1.4).

One bad record is refused with one line in the log and harms nobody; a good one that it tried to replace stays.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from infera_cli.events import Bus, WorkerChanged
from infera_cli.fleet.member import Member
from infera_cli.fleet.registry import Registry
from infera_cli.protocol.worker_record import WorkerRecord, parse_record
from infera_cli.routing.types import WorkerSpec

log = logging.getLogger("infera.fleet")


class Enrolled:
    """The records of one discovery source, and their members in `registry`.

    `left` is called with each member that left or was replaced, after it is out of the table. Workers are sent
    `api_key`; those with an https address are checked against `ca_file`. `is_ours(host, port)` tells this router's own
    address, at which no worker can be.
    """

    def __init__(
        self, registry: Registry, bus: Bus, *, source: str, left: Callable[[Member], None] = lambda _member: None,
        api_key: str | None = None, ca_file: str | None = None,
        is_ours: Callable[[str, int], bool] = lambda _host, _port: False,
    ) -> None:  # fmt: skip
        self._registry = registry
        self._bus = bus
        self._source = source
        self._left = left
        self._api_key = api_key
        self._ca_file = ca_file
        self._is_ours = is_ours
        self._records: dict[str, WorkerRecord] = {}
        self._complained: dict[str, bytes] = {}
        self.refused = 0
        """Records that could not be used, since the start."""

    @property
    def records(self) -> Mapping[str, WorkerRecord]:
        """Every record in force, by the worker's name."""
        return self._records

    def put(self, worker_id: str, value: bytes) -> None:
        """A record was written."""
        try:
            record = parse_record(worker_id, value)
        except ValueError as reason:
            self._refuse(worker_id, value, str(reason))
            return
        if self._is_ours(record.base.host, record.base.port):
            self._refuse(worker_id, value, f"gives {record.base.host}:{record.base.port}, which is this router itself")
            return
        self._complained.pop(worker_id, None)
        before = self._records.get(worker_id)
        if record != before:
            self._records[worker_id] = record
            self._enter(record, before)

    def refuse_nameless(self, key: bytes, reason: str) -> None:
        """A record was written whose key names no worker."""
        self.refused += 1
        log.warning("a record in %s %s: %a; it is ignored", self._source, reason, key)

    def drop(self, worker_id: str) -> None:
        """A record was deleted, or its lease ran out."""
        self._complained.pop(worker_id, None)
        if self._records.pop(worker_id, None) is None:
            return
        member = self._own(worker_id)
        self._registry.remove(worker_id, source=self._source)
        if member is not None:
            self._left(member)

    def _enter(self, record: WorkerRecord, before: WorkerRecord | None) -> None:
        worker_id = record.worker_id
        former = self._own(worker_id)
        member = self._registry.add(self._spec(record))
        if former is not None and member is not former:
            self._left(former)
        elif former is not None:
            self._bus.emit(WorkerChanged(worker_id, "record"))
        if self._own(worker_id) is None:
            self.refused += 1  # its name or URL is another's, which the registry tells
            return
        if record.status != "active":
            self._registry.drain(worker_id)
        elif before is not None and before.status != "active":
            self._registry.restore(worker_id)

    def _own(self, worker_id: str) -> Member | None:
        """The member of that name, if it is this source's."""
        member = self._registry.member(worker_id)
        return member if member is not None and member.spec.source == self._source else None

    def _spec(self, record: WorkerRecord) -> WorkerSpec:
        base = record.base
        return WorkerSpec(
            id=record.worker_id, host=base.host, port=base.port, scheme=base.scheme, path_prefix=base.prefix,
            models=(record.model_name,) if record.model_name else (), binding=False, role=record.disagg_mode,
            engine=record.engine_name, source=self._source, api_key=self._api_key,
            kv_events_endpoint=record.kv_events_endpoint, kv_replay_endpoint=record.kv_replay_endpoint,
            kv_block_size=record.kv_block_size,
            dp_rank=record.dp_rank, dp_size=record.dp_size,
            ca_file=self._ca_file if base.scheme == "https" else None,
        )  # fmt: skip

    def _refuse(self, worker_id: str, value: bytes, reason: str) -> None:
        if self._complained.get(worker_id) == value:
            return
        self._complained[worker_id] = value
        self.refused += 1
        stays = "; its former record stays in force" if worker_id in self._records else ""
        log.warning("the record of worker %s in %s %s; it is refused%s", worker_id, self._source, reason, stays)
