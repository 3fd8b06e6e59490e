"""Says in the log what happens to the fleet: faults, changes, reloads (replica-router §1.12)."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from infera_cli.events import Bus, Event, Reloaded, WorkerChanged, WorkerFault

FAULT_INTERVAL = 1.0

_fleet = logging.getLogger("infera.fleet")
_relay = logging.getLogger("infera.relay")
_config = logging.getLogger("infera.config")

_SENTENCES = {
    "added": "joined the fleet",
    "removed": "left the fleet",
    "record": "changed its record",
    "ready": "is ready",
    "not_ready": "is not ready",
    "draining": "is draining",
    "restored": "takes requests again",
    "models": "lists its models",
    "breaker": "has another breaker state",
}


class EventLog:
    """A listener that writes. A worker that fails every request gets one line a second for each reason."""

    def __init__(self, bus: Bus, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._quiet: dict[tuple[str, str], tuple[float, int]] = {}
        bus.subscribe(self._hear, WorkerFault, WorkerChanged, Reloaded)

    def _hear(self, event: Event) -> None:
        if isinstance(event, WorkerFault):
            self._fault(event)
        elif isinstance(event, WorkerChanged):
            self._changed(event)
        elif isinstance(event, Reloaded):
            self._reloaded(event)

    def _fault(self, fault: WorkerFault) -> None:
        key = (fault.worker, fault.reason)
        now = self._clock()
        until, unsaid = self._quiet.get(key, (now, 0))
        if now < until:
            self._quiet[key] = (until, unsaid + 1)
            return
        self._quiet[key] = (now + FAULT_INTERVAL, 0)
        more = f" ({unsaid} more like this)" if unsaid else ""
        detail = f": {fault.detail}" if fault.detail else ""
        what = f"{fault.reason}{detail}{more}"
        _relay.warning("worker %s failed request %s, %s", fault.worker, fault.request, what)

    def _changed(self, change: WorkerChanged) -> None:
        if change.what == "removed":
            for key in [key for key in self._quiet if key[0] == change.worker]:
                del self._quiet[key]
        if change.what == "ignored":
            _fleet.warning("worker %s is ignored: %s", change.worker, change.detail)
            return
        detail = f": {change.detail}" if change.detail else ""
        _fleet.info("worker %s %s%s", change.worker, _SENTENCES.get(change.what, change.what), detail)

    def _reloaded(self, reload: Reloaded) -> None:
        if reload.error is None:
            _config.info("%s was read again", reload.source)
        else:
            _config.error("%s was refused and the previous one stays: %s", reload.source, reload.error)
