"""How long `infera fleet up` takes over many SSH machines, as a multiple of what it takes over one.

`python -m bench.fleet_up [--hosts 50] [--ready-after 10]`. The machines are loopback addresses of real OpenSSH servers;
the engines are tiny, and ready after a fixed time. Needs sshd, setsid and ssh-keygen.
"""

from __future__ import annotations

import argparse
import getpass
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

BAR = 2.0
_PORT = 11877
_SSH_PORT = 11876
_SOCKETS = 16  # that one sshd may listen on
_ENGINE = """
import socket, sys, time
time.sleep(float(sys.argv[2]))
server = socket.create_server((sys.argv[1], int(sys.argv[3])), backlog=64)
while True:
    client, _ = server.accept()
    client.recv(4096)
    client.sendall(b"HTTP/1.1 200 OK\\r\\ncontent-length: 0\\r\\nconnection: close\\r\\n\\r\\n")
    client.close()
"""


def address(number: int) -> str:
    """The loopback address of a machine."""
    return f"127.0.1.{number + 1}"


@contextmanager
def machines(folder: Path, count: int) -> Iterator[dict[str, str]]:
    """SSH servers on `count` addresses, and the environment of whoever may log in."""
    ssh = folder / ".ssh"
    ssh.mkdir(mode=0o700)
    for name in ("id_ed25519", "host_key"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(ssh / name)], check=True)
    shutil.copy(ssh / "id_ed25519.pub", ssh / "authorized_keys")
    public = " ".join((ssh / "host_key.pub").read_text().split()[:2])
    (ssh / "known_hosts").write_text("".join(f"[{address(n)}]:{_SSH_PORT} {public}\n" for n in range(count)))
    (ssh / "config").write_text(f"Host 127.0.1.*\n Port {_SSH_PORT}\n")
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)
    servers = [server(ssh, range(first, min(first + _SOCKETS, count))) for first in range(0, count, _SOCKETS)]
    try:
        for first in range(0, count, _SOCKETS):
            wait_for(address(first))
        yield {**os.environ, "HOME": str(folder), "XDG_STATE_HOME": str(folder / "state")}
    finally:
        for one in servers:
            one.terminate()
            one.wait(10)


def server(ssh: Path, numbers: range) -> subprocess.Popen[bytes]:
    """An sshd on those addresses."""
    config = ssh / f"sshd_config{numbers[0]}"
    config.write_text("\n".join([
        *(f"ListenAddress {address(n)}:{_SSH_PORT}" for n in numbers), f"HostKey {ssh / 'host_key'}",
        "PidFile none", f"AuthorizedKeysFile {ssh / 'authorized_keys'}", "StrictModes no", "UsePAM no",
        "PermitRootLogin yes", "MaxStartups 200", "",
    ]))  # fmt: skip
    sshd = shutil.which("sshd", path=os.environ.get("PATH", "") + ":/usr/sbin") or sys.exit("sshd is not installed")
    return subprocess.Popen([sshd, "-D", "-e", "-f", str(config)], stderr=subprocess.DEVNULL)


def wait_for(host: str) -> None:
    """Until the server there listens; ends the program after ten seconds."""
    deadline = time.monotonic() + 10
    while True:
        with socket.socket() as probe:
            if probe.connect_ex((host, _SSH_PORT)) == 0:
                return
        if time.monotonic() > deadline:
            sys.exit(f"no SSH server came up at {host}:{_SSH_PORT}")
        time.sleep(0.05)


def measure(folder: Path, env: dict[str, str], count: int, ready_after: float) -> float:
    """Seconds from the command to all ready."""
    hosts = [
        {"name": f"h{n}", "ssh": f"{getpass.getuser()}@{address(n)}", "devices": [0], "port_base": _PORT + n,
         "model": "m", "engine": "custom", "log_dir": str(folder / "logs"),
         "command": [sys.executable, "-S", "-c", _ENGINE, address(n), str(ready_after), "{port}"]}
        for n in range(count)
    ]  # fmt: skip
    file = folder / f"{count}.json"
    file.write_text(json.dumps({"hosts": hosts}))
    command = [sys.executable, "-m", "infera_cli", "fleet"]
    begun = time.perf_counter()
    up = subprocess.run([*command, "up", str(file)], env=env, capture_output=True, text=True, check=False)
    spent = time.perf_counter() - begun
    words = [*command, "down", str(file), "--yes"]
    down = subprocess.run(words, env=env, capture_output=True, text=True, check=False)
    if up.returncode or down.returncode:
        sys.exit(f"up {up.returncode}, down {down.returncode}:\n{up.stderr[-2000:]}{down.stderr[-2000:]}")
    return spent


def main() -> int:
    """Measure, print, and say whether the bar is met."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hosts", type=int, default=50)
    parser.add_argument("--ready-after", type=float, default=10.0)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, machines(Path(name), asked.hosts) as env:
        one = measure(Path(name), env, 1, asked.ready_after)
        many = measure(Path(name), env, asked.hosts, asked.ready_after)
    told = {"hosts": asked.hosts, "one_s": round(one, 2), "many_s": round(many, 2), "ratio": round(many / one, 2),
            "bar": BAR, "met": many / one <= BAR}  # fmt: skip
    print(json.dumps(told))
    return 0 if told["met"] else 1


if __name__ == "__main__":
    sys.exit(main())
