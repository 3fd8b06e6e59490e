"""The machine the router runs on."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Mapping

from infera_cli.errors import HostUnreachable
from infera_cli.launch.machine import NOT_SENT, Capture, Output
from infera_cli.launch.threads import on_thread


class LocalMachine:
    """Runs texts by the shell of this machine. See Machine.

    Variables of infera itself are not handed on: some of them are secrets (rulings 7). The standard library's
    subprocess starts the shell, since uvloop's leaves descriptors open that an engine would then hold.
    """

    def __init__(self, environ: Mapping[str, str] | None = None) -> None:
        given = os.environ if environ is None else environ
        self._environ = {name: value for name, value in given.items() if not name.startswith("INFERA_")}

    async def run(self, text: str, *, within: float) -> Output:
        """See Machine."""
        return await on_thread(lambda: self._run(text.encode(), within))

    async def close(self) -> None:
        """See Machine."""

    def _run(self, text: bytes, within: float) -> Output:
        deadline = time.monotonic() + within
        try:
            shell = subprocess.Popen(
                ["/bin/sh", "-s"], env=self._environ, start_new_session=True,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            )  # fmt: skip
        except OSError as error:
            raise HostUnreachable(f"/bin/sh cannot be started here: {error.strerror}", code=NOT_SENT) from None
        with shell:
            try:
                return Output(*_converse(shell, text, deadline))
            except TimeoutError:
                raise HostUnreachable(f"a command on this machine took longer than {within:g} s") from None
            finally:
                # Nothing of the text runs on; what it detached has a session of its own.
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(shell.pid, signal.SIGKILL)


def _converse(shell: subprocess.Popen[bytes], text: bytes, deadline: float) -> tuple[int, str]:
    if shell.stdin is None or shell.stdout is None:
        raise HostUnreachable("/bin/sh has no pipes")
    kept = Capture()
    with contextlib.suppress(BrokenPipeError):
        shell.stdin.write(text)
        shell.stdin.flush()
    with contextlib.suppress(BrokenPipeError):
        shell.stdin.close()
    with selectors.DefaultSelector() as selector:
        selector.register(shell.stdout, selectors.EVENT_READ)
        while True:
            if not selector.select(max(0.0, deadline - time.monotonic())):
                raise TimeoutError
            piece = os.read(shell.stdout.fileno(), 1 << 16)
            if not piece:
                break
            kept.add(piece)
    try:
        return shell.wait(max(0.0, deadline - time.monotonic())), kept.text()
    except subprocess.TimeoutExpired:
        raise TimeoutError from None
