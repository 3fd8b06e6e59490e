"""The real server as a process of its own, in front of stub workers named in a real replica file."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from tests.support import raw
from tests.support.stub import StubWorker

ADDRESS = re.compile(r"(?<=listening on )https?://(?:127\.0\.0\.1|localhost|\[::1\]|0\.0\.0\.0):(\d+)")
Entries = Mapping[str, Mapping[str, Any]]
COMMAND = (sys.executable, "-c", "import sys; from infera_cli.cli import main; sys.exit(main())", "serve")


class Running:
    """What a test may ask of a server, wherever it runs; `url` is its address, `file` its replica file."""

    url: str
    file: Path

    def write(self, workers: Sequence[StubWorker], entries: Entries | None = None) -> None:
        """Write the replica file: one entry a worker, with more fields from `entries` by name."""
        extra = entries or {}
        listed = [{"name": w.name, "host": w.host, "port": w.port, **extra.get(w.name, {})} for w in workers]
        self.file.write_text(json.dumps({"replicas": listed}))

    async def health(self) -> dict[str, Any]:
        """The body of /health."""
        body: dict[str, Any] = (await raw.get(self.url, "/health")).json()
        return body

    async def replica(self, name: str) -> dict[str, Any]:
        """One replica's entry in /health."""
        found: dict[str, Any] = next(r for r in (await self.health())["replicas"] if r["name"] == name)
        return found

    async def outstanding(self) -> int:
        """Requests open on all replicas."""
        return sum(r["outstanding"] for r in (await self.health())["replicas"])

    async def settled(self, within: float = 5) -> None:
        """Wait until no request is open on any replica."""
        async with asyncio.timeout(within):
            while await self.outstanding():  # noqa: ASYNC110 - another process has no event for us
                await asyncio.sleep(0.02)

    async def metrics(self) -> dict[str, float]:
        """Every sample of /metrics, by its name with labels."""
        text = (await raw.get(self.url, "/metrics")).body.decode()
        lines = (line.rsplit(" ", 1) for line in text.splitlines() if line and not line.startswith("#"))
        return {name: float(value) for name, value in lines}


class ServerProcess(Running):
    """`infera serve`, started and stopped. `async with ServerProcess(workers, tmp_path, "--flag") as server:`

    `url` is its address, read from the line it prints; `log` holds its standard error, line by line.
    """

    def __init__(self, workers: Sequence[StubWorker], folder: Path, *flags: str,
                 env: Mapping[str, str] | None = None, entries: Entries | None = None,
                 wrap: Sequence[str] = ()) -> None:
        self.file = folder / "replicas.json"
        self.write(workers, entries)
        self.flags = flags
        self.env = {**os.environ, "NO_COLOR": "1", **(env or {})}
        self.wrap = tuple(wrap)
        self.url = ""
        self.log: list[str] = []
        self.out: list[str] = []
        self._line = asyncio.Event()
        self._readers: list[asyncio.Task[None]] = []
        self._process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.returncode is None

    async def __aenter__(self) -> Self:
        listen = () if "--host" in self.flags else ("--host", "127.0.0.1")
        self._process = await asyncio.create_subprocess_exec(
            *self.wrap, *COMMAND, "--replicas", str(self.file), *listen, "--port", "0", *self.flags,
            env=self.env, stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE)
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        for stream, lines in ((self._process.stdout, self.out), (self._process.stderr, self.log)):
            self._readers.append(asyncio.create_task(self._read(stream, lines)))
        try:
            found = await self.said(ADDRESS, 30)
        except BaseException:
            await self.stop()
            raise
        self.url = found[0].replace("0.0.0.0", "127.0.0.1")
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.stop()

    async def _read(self, stream: asyncio.StreamReader, lines: list[str]) -> None:
        while line := await stream.readline():
            lines.append(line.decode(errors="replace").rstrip("\n"))
            self._line.set()
        self._line.set()

    async def said(self, pattern: str | re.Pattern[str], within: float = 10) -> re.Match[str]:
        """Wait for a line that has `pattern`; AssertionError with the log if the process ends first."""
        async with asyncio.timeout(within):
            while True:
                for line in [*self.out, *self.log]:
                    if found := re.search(pattern, line):
                        return found
                if all(reader.done() for reader in self._readers):
                    raise AssertionError("\n".join([f"the server never said {pattern!r}:", *self.log]))
                self._line.clear()
                await self._line.wait()

    def signal(self, number: signal.Signals) -> None:
        """Send the process a signal."""
        os.kill(self.pid, number)

    async def reload(self) -> None:
        """SIGHUP."""
        self.signal(signal.SIGHUP)

    async def stop(self, within: float = 10) -> int:
        """TERM, then KILL after `within` seconds; returns the exit code."""
        process = self._process
        assert process is not None
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGTERM)    # not terminate(): it would reap the process itself
        try:
            async with asyncio.timeout(within):
                await process.wait()
        except TimeoutError:
            process.kill()
        code = await process.wait()
        await asyncio.gather(*self._readers)
        return code
