"""How long `infera fleet up` takes over many SSH machines, as a multiple of what it takes over one.

    python -m bench.fleet_up [--hosts 50] [--ready-after 10] [--rounds 3] [--out PAGE]

The machines are loopback addresses of real OpenSSH servers, so that both ends of every connection share this machine;
the engines are tiny, and ready after a fixed time. A login shell that reads start-up files for every command would be
measured fifty times on one machine, so bash is told that it is an inner one. Beside it: how long planning a thousand
slots takes. Needs sshd, setsid and ssh-keygen; writes bench/results/fleet-up.md.
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
from statistics import median

from bench.record import RESULTS, Bar, grid, publish
from infera_cli.launch.plan import plan
from infera_cli.protocol.replica_file import parse
from infera_cli.protocol.slots import pool_of

BAR = 2.0
PLANNING_BAR = 50.0  # ms
_SLOTS = 1000
_TRIES = 5
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
        "PermitRootLogin yes", "MaxStartups 200", "SetEnv SHLVL=1", "",
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
    stop([*command, "down", str(file), "--yes", "--force"], env)
    if up.returncode:
        sys.exit(f"up ended with {up.returncode}:\n{up.stderr[-2000:]}")
    return spent


def stop(command: list[str], env: dict[str, str]) -> None:
    """Take all down: fifty machines that are one may be too busy to answer the first time. Ends the program."""
    for _ in range(_TRIES):
        down = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
        if down.returncode == 0:
            return
    sys.exit(f"engines may be left:\n{down.stderr[-2000:]}")


def planning() -> float:
    """Milliseconds of CPU from the text of a file to the plan of a thousand slots; the median of twenty."""
    hosts = [{"name": f"h{n}", "ssh": f"gpu{n}", "address": f"10.0.0.{n}", "devices": "0-9", "model": "m",
              "env": {"BUILD": "/scratch/{device}"}} for n in range(_SLOTS // 10)]  # fmt: skip
    text = json.dumps({"hosts": hosts}).encode()
    times = []
    for _ in range(20):
        begun = time.process_time()
        planned = plan(pool_of(parse(text, path="fleet.json", router_port=None).hosts))
        times.append(1000 * (time.process_time() - begun))
        assert len(planned) == _SLOTS
    return median(times)


def main() -> int:
    """Measure, write the page, and say whether the bars are met."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hosts", type=int, default=50)
    parser.add_argument("--ready-after", type=float, default=10.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=RESULTS / "fleet-up.md")
    asked = parser.parse_args()
    rounds = []
    with tempfile.TemporaryDirectory() as name, machines(Path(name), asked.hosts) as env:
        for _ in range(asked.rounds):
            one, many = (measure(Path(name), env, count, asked.ready_after) for count in (1, asked.hosts))
            rounds.append((one, many, many / one))
    ratio, planned = median(row[2] for row in rounds), planning()
    met = publish(
        asked.out, "infera fleet up",
        how=f"Written by `python -m bench.fleet_up`. Engines are ready {asked.ready_after:g} s after their start; "
            f"{asked.hosts} machines are as many loopback addresses of OpenSSH servers, each a connection of its own, "
            "all on the machine that is measured. Seconds from the command to all ready:",
        tables=[grid(("one machine", f"{asked.hosts} machines", "ratio"),
                     [(f"{one:.2f}", f"{many:.2f}", f"{times:.2f}") for one, many, times in rounds])],
        bars=[Bar(f"up over {asked.hosts} machines, beside one", f"≤ {BAR:g} ×", f"{ratio:.2f} ×", ratio <= BAR),
              Bar(f"planning {_SLOTS} slots", f"≤ {PLANNING_BAR:g} ms", f"{planned:.1f} ms", planned <= PLANNING_BAR)],
    )  # fmt: skip
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
