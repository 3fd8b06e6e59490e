"""Real OpenSSH servers on loopback, and a home folder whose ssh config leads to them."""

from __future__ import annotations

import getpass
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Self

import psutil

SSHD = shutil.which("sshd", path=os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin:/sbin")
MISSING = "these tests need a real OpenSSH server: on Debian `apt-get install openssh-server`"


def free_port(host: str = "127.0.0.1") -> int:
    """A port nobody listens on now."""
    with socket.socket() as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


def keygen(path: Path, *, passphrase: str = "") -> Path:
    """A fresh ed25519 key at `path`, its public half beside it."""
    command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", passphrase, "-C", path.name, "-f", str(path)]
    subprocess.run(command, check=True, timeout=30, stdin=subprocess.DEVNULL)
    return path


class Home:
    """A home folder of a test: keys, known hosts, ssh config."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ssh = folder / ".ssh"
        self.ssh.mkdir(mode=0o700, parents=True)
        self.key = keygen(self.ssh / "id_ed25519")
        self.known_hosts = self.ssh / "known_hosts"
        self.known_hosts.touch(mode=0o600)
        self.config = self.ssh / "config"
        self.config.write_text("")

    @property
    def env(self) -> dict[str, str]:
        """For child processes; no agent of the person who runs the tests."""
        return {**{k: v for k, v in os.environ.items() if k != "SSH_AUTH_SOCK"}, "HOME": str(self.folder)}

    def trust(self, server: Sshd) -> None:
        """Note the server's host key."""
        with self.known_hosts.open("a") as file:
            file.write(server.known_line)

    def alias(self, name: str, server: Sshd, *lines: str) -> None:
        """An entry of the ssh config that leads to `server`, with further `lines`."""
        entry = [f"Host {name}", f"HostName {server.host}", f"Port {server.port}", *lines]
        with self.config.open("a") as file:
            file.write("\n    ".join(entry) + "\n")


class Sshd:
    """One server; `with Sshd(folder, authorized=[key]) as server:`."""

    def __init__(self, folder: Path, *, authorized: Sequence[Path], host: str = "127.0.0.1", port: int | None = None,
                 options: Sequence[str] = ()) -> None:
        assert SSHD is not None, MISSING
        self.folder, self.host, self.port = folder, host, port or free_port(host)
        folder.mkdir(parents=True, exist_ok=True)
        self.host_key = folder / "host_key"
        if not self.host_key.exists():
            keygen(self.host_key)
        keys = "".join(Path(f"{key}.pub").read_text() for key in authorized)
        (folder / "authorized_keys").write_text(keys)
        self.log = folder / "sshd.log"
        (folder / "sshd_config").write_text("\n".join([
            *options, f"ListenAddress {host}", f"Port {self.port}", f"HostKey {self.host_key}", "PidFile none",
            f"AuthorizedKeysFile {folder / 'authorized_keys'}", "StrictModes no", "UsePAM no",
            "PasswordAuthentication no", "KbdInteractiveAuthentication no", "PermitRootLogin yes",
            "LogLevel VERBOSE", "AllowTcpForwarding yes",
            "SetEnv SHLVL=1",  # bash would read start-up files for every command, on some machines slow ones
        ]) + "\n")
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def known_line(self) -> str:
        name = self.host if self.port == 22 else f"[{self.host}]:{self.port}"
        return f"{name} {' '.join(Path(f'{self.host_key}.pub').read_text().split()[:2])}\n"

    @property
    def destination(self) -> str:
        return f"{getpass.getuser()}@{self.host}"

    def start(self) -> None:
        """Listen; returns when it does."""
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(exist_ok=True)
        assert SSHD is not None, MISSING
        command = [SSHD, "-D", "-e", "-f", str(self.folder / "sshd_config")]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        deadline = time.monotonic() + 10
        while not self._listens():
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < deadline, self.log.read_text()
            time.sleep(0.02)

    def _listens(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex((self.host, self.port)) == 0

    def stop(self) -> None:
        """End the listener and every connection it holds; what was detached lives on."""
        if self.process is not None and self.process.poll() is None:
            children = psutil.Process(self.process.pid).children(recursive=False)
            self.process.terminate()
            self.process.wait(10)
            for child in children:
                end_session(child.pid)
        self.process = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self.stop()


def end_session(pid: int) -> None:
    """End a connection's process, which may be gone already."""
    try:
        os.kill(pid, 9)
    except ProcessLookupError:
        return


@contextmanager
def agent(folder: Path, keys: Sequence[Path]) -> Iterator[str]:
    """An ssh-agent that holds `keys`; its socket."""
    socket_path = str(folder / "agent.sock")
    process = subprocess.Popen(["ssh-agent", "-D", "-a", socket_path], stdout=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 10
        while not Path(socket_path).exists():
            assert time.monotonic() < deadline
            time.sleep(0.02)
        for key in keys:
            subprocess.run(["ssh-add", "-q", str(key)], check=True, timeout=30, stdin=subprocess.DEVNULL,
                           stderr=subprocess.DEVNULL, env={**os.environ, "SSH_AUTH_SOCK": socket_path})
        yield socket_path
    finally:
        process.terminate()
        process.wait(10)
