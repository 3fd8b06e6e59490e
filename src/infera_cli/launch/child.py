"""One engine as a process group of its own: started, waited for, ended (infera-wire §9).

It writes where the launcher writes. Its own children are in its group, so that one signal reaches them all.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
from collections.abc import Mapping, Sequence
from typing import Self

from infera_cli.errors import ConfigError

log = logging.getLogger("infera.launch")


class Child:
    """An engine that runs, or ran."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @classmethod
    async def start(cls, command: Sequence[str], environment: Mapping[str, str]) -> Self:
        """Start `command` in a session of its own. Raises ConfigError when there is no such program."""
        try:
            process = await asyncio.create_subprocess_exec(
                *command, env=dict(environment), stdin=asyncio.subprocess.DEVNULL, start_new_session=True
            )
        except OSError as fault:
            raise ConfigError(f"{command[0]} cannot be started: {fault.strerror}; see --engine-python") from None
        return cls(process)

    @property
    def pid(self) -> int:
        """Its process id, and that of its group."""
        return self._process.pid

    @property
    def code(self) -> int | None:
        """Its exit code, negative for a signal; None while it runs."""
        return self._process.returncode

    async def ended(self) -> int:
        """Wait for its end; its exit code."""
        return await self._process.wait()

    async def stop(self, grace: float) -> None:
        """TERM to the group, KILL to what is left of it after `grace` seconds; safe to call again."""
        if self.code is None:
            self._signal(signal.SIGTERM)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._process.wait(), grace)
        if self.code is None:
            log.warning("the engine did not stop within %g s; it is killed", grace)
        self._signal(signal.SIGKILL)  # the leader may be gone, and its children not
        await self._process.wait()

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)
