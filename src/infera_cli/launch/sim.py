"""Simulated engines for `--sim N` and `infera demo`: a process each, never outliving the one that started
them.

A child reads from a pipe that only we hold; when we are gone, however that came, the pipe ends and so does
the child (design §7; rulings 27). Stopping is TERM, then KILL, by pid.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, NamedTuple, Self

from infera_cli.errors import InferaError

_GRACE = 3.0     # seconds between TERM and KILL


class SimEngine(NamedTuple):
    """One simulated engine that is ready."""

    name: str
    host: str
    port: int

    @property
    def url(self) -> str:
        """Its base URL."""
        return f"http://{self.host}:{self.port}"


class SimEngines:
    """A set of simulated engines on 127.0.0.1; leaving the `async with` stops them.

    `log_dir` receives `sim0.log` and so on; without it their output is dropped.
    """

    def __init__(self, log_dir: Path | None = None) -> None:
        self._log_dir = log_dir
        self._children: dict[str, asyncio.subprocess.Process] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    @property
    def pids(self) -> dict[str, int]:
        """Process ids by name, of all that were started and not yet stopped."""
        return {name: child.pid for name, child in self._children.items()}

    async def start(
        self, count: int, *, ready_within: float = 30.0, options: Mapping[str, object] | None = None
    ) -> list[SimEngine]:
        """Start `count` engines at once and return them when all take requests, in order.

        `options` are flags of `infera_cli.simengine` without dashes in front, e.g. `{"itl-ms": 5}`; True
        sets a switch. Raises InferaError, with none left running, when one does not come up in
        `ready_within` seconds.
        """
        first = len(self._children)
        names = [f"sim{number}" for number in range(first, first + count)]
        flags = _flags(options or {})
        try:
            async with asyncio.timeout(ready_within), asyncio.TaskGroup() as group:
                starting = [group.create_task(self._start(name, flags)) for name in names]
            return [task.result() for task in starting]
        except TimeoutError:
            await self.stop()
            raise InferaError(f"simulated engines were not ready within {ready_within:g} s") from None
        except BaseExceptionGroup as failed:
            await self.stop()
            raise failed.exceptions[0] from None
        except BaseException:
            await self.stop()
            raise

    async def stop(self, name: str | None = None) -> None:
        """Stop all, or the one of that name; safe to call again."""
        names = list(self._children) if name is None else [name]
        children = [self._children.pop(known) for known in names if known in self._children]
        await asyncio.gather(*map(_stop, children))

    async def _start(self, name: str, flags: list[str]) -> SimEngine:
        with self._log(name) as log:
            child = await asyncio.create_subprocess_exec(
                sys.executable, "-P", "-m", "infera_cli.simengine", "--exit-with-parent", *flags,
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=log,
                start_new_session=True,
            )
        self._children[name] = child
        if child.stdout is None:
            raise InferaError(f"{name} has no output to read")
        line = (await child.stdout.readline()).decode()
        if not line.startswith("listening on http://"):
            code = await child.wait()
            raise InferaError(f"{name} stopped with exit code {code} before it was ready")
        host, _, port = line.strip().removeprefix("listening on http://").rpartition(":")
        return SimEngine(name, host, int(port))

    def _log(self, name: str) -> IO[bytes]:
        return Path(os.devnull if self._log_dir is None else self._log_dir / f"{name}.log").open("ab")


def _flags(options: Mapping[str, object]) -> list[str]:
    flags: list[str] = []
    for name, value in options.items():
        flags.append(f"--{name}")
        if value is not True:
            flags.append(str(value))
    return flags


async def _stop(child: asyncio.subprocess.Process) -> None:
    """TERM, then KILL; the pipe to its standard input is closed last, so nothing of it is left in our
    loop."""
    if child.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            child.terminate()
        try:
            await asyncio.wait_for(child.wait(), _GRACE)
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                child.kill()
            await child.wait()
    if child.stdin is not None:
        child.stdin.close()
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            await child.stdin.wait_closed()
