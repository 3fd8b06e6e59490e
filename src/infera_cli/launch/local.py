"""The machine the router runs on."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Mapping

from infera_cli.errors import HostUnreachable
from infera_cli.launch.machine import Capture, Output


class LocalMachine:
    """Runs texts by the shell of this machine. See Machine.

    Variables of infera itself are not handed on: some of them are secrets (rulings 7).
    """

    def __init__(self, environ: Mapping[str, str] | None = None) -> None:
        given = os.environ if environ is None else environ
        self._environ = {name: value for name, value in given.items() if not name.startswith("INFERA_")}

    async def run(self, text: str, *, within: float) -> Output:
        """See Machine."""
        try:
            child = await asyncio.create_subprocess_exec(
                "/bin/sh", "-s", env=self._environ, start_new_session=True,
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
            )  # fmt: skip
        except OSError as error:
            raise HostUnreachable(f"/bin/sh cannot be started here: {error.strerror}") from None
        try:
            async with asyncio.timeout(within):
                kept = await _converse(child, text.encode())
                return Output(await child.wait(), kept)
        except TimeoutError:
            raise HostUnreachable(f"a command on this machine took longer than {within:g} s") from None
        finally:
            await _end(child)

    async def close(self) -> None:
        """See Machine."""


async def _converse(child: asyncio.subprocess.Process, text: bytes) -> str:
    if child.stdin is None or child.stdout is None:
        raise HostUnreachable("/bin/sh has no pipes")
    kept = Capture()
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        child.stdin.write(text)
        await child.stdin.drain()
        child.stdin.close()
    while piece := await child.stdout.read(1 << 16):
        kept.add(piece)
    return kept.text()


async def _end(child: asyncio.subprocess.Process) -> None:
    """Nothing of the text runs on; what it detached has a session of its own."""
    if child.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        await child.wait()
