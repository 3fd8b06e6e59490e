"""`--config FILE` as a source of workers."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from infera_cli.config.scheduling import read_scheduler_file
from infera_cli.config.serve import worker_api_key
from infera_cli.config.settings import ServeSettings
from infera_cli.errors import ConfigError
from infera_cli.events import Reloaded
from infera_cli.fleet.sources.scheduler import SOURCE, specs_of
from infera_cli.protocol.scheduler_file import SchedulerFile
from infera_cli.routing.types import WorkerSpec
from infera_cli.wiring.farewell import Farewell
from infera_cli.wiring.ourselves import ourselves

if TYPE_CHECKING:
    from infera_cli.wiring.scheduler import Scheduler
    from infera_cli.wiring.sources import Into

log = logging.getLogger("infera.scheduler")


class FromConfig:
    """See Source; `scheduler` hears of each reload."""

    def __init__(self, settings: ServeSettings, path: str) -> None:
        self.path = path
        self._key = worker_api_key(settings)
        self._settings, self._ourselves = settings, ourselves(settings)
        self.file, self._specs = self._read()
        self.scheduler: Scheduler | None = None
        self._farewell: Farewell

    async def open(self, into: Into, stack: contextlib.AsyncExitStack) -> None:
        """See Source."""
        for warning in self.file.warnings:
            log.warning("%s: %s", self.path, warning)
        self._ourselves = ourselves(self._settings, into.url)
        self._farewell = Farewell(into.gate, into.fetch)
        stack.push_async_callback(self._farewell.aclose)
        into.registry.replace_source(SOURCE, self._specs)

    def reload(self, into: Into) -> bool:
        """See Source; a bad file is refused and the old one stays, nothing in flight is touched."""
        try:
            file, specs = self._read()
        except ConfigError as error:
            into.bus.emit(Reloaded(self.path, error.message))
            return True
        self._warn_of_restart(file)
        self.file = file
        if self.scheduler is not None:
            self.scheduler.configure(file)
        with self._farewell.to_leavers(into.registry, SOURCE):
            into.registry.replace_source(SOURCE, specs)
        into.bus.emit(Reloaded(self.path))
        return True

    def _read(self) -> tuple[SchedulerFile, Sequence[WorkerSpec]]:
        """The file and its workers, checked. Raises ConfigError."""
        file = read_scheduler_file(self.path)
        specs = specs_of(file, api_key=self._key)
        self._ourselves.check_all(specs, f"{self.path}: nodes")
        return file, specs

    def _warn_of_restart(self, file: SchedulerFile) -> None:
        before = self.file
        kept = [
            ("scheduler", before.server != file.server),
            ("kv_cache.policy", before.cache.policy != file.cache.policy),
            ("kv_cache.prefix_ignore", before.cache.prefix_ignore != file.cache.prefix_ignore),
            ("batching.strategy", before.batching.strategy != file.batching.strategy),
        ]
        for key, changed in kept:
            if changed:
                log.warning("%s: %s changed; that takes a restart", self.path, key)
