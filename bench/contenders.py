"""Who is measured: infera with all its defaults, nginx as the limit, and the compiled LLM routers."""

from __future__ import annotations

import http.client
import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench import machine

HERE = Path(__file__).parent
Command = Callable[[Path, int, Sequence[int]], list[str]]


class NotAvailable(Exception):
    """This contender cannot be measured here; the message says why."""


@dataclass(frozen=True)
class Contender:
    """`command(folder, port, upstream_ports)` is its command line; `version()` raises NotAvailable."""

    name: str
    command: Command
    version: Callable[[], str]

    def start(self, folder: Path, upstreams: Sequence[int], core: int) -> tuple[machine.Process, int]:
        """Run it on `core` and wait until it answers a completion; returns it and its port.

        Raises NotAvailable when it does not within 30 s.
        """
        self.version()
        port = machine.free_port()
        log = folder / f"{self.name}.log"
        process = machine.Process(self.command(folder, port, upstreams), core=core, log=log)
        deadline = time.perf_counter() + 30
        while not answers(port):
            if process.popen.poll() is not None or time.perf_counter() > deadline:
                process.stop()
                raise NotAvailable(f"{self.name} did not start: {process.last_words()}")
            time.sleep(0.05)
        return process, port


def answers(port: int) -> bool:
    """Whether a completion goes through."""
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "hi"}]})
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("POST", "/v1/chat/completions", body, {"Content-Type": "application/json"})
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


# ── ours ─────────────────────────────────────────────────────────────────────────────────────────────
def infera(folder: Path, port: int, upstreams: Sequence[int]) -> list[str]:
    """`infera serve`, nothing switched off; `--host` only so that nothing listens outside."""
    replicas = folder / f"replicas-{port}.json"
    entries = [{"name": f"r{n}", "host": "127.0.0.1", "port": at} for n, at in enumerate(upstreams)]
    replicas.write_text(json.dumps({"replicas": entries}))
    executable = str(Path(sys.executable).with_name("infera"))
    return [executable, "serve", "--replicas", str(replicas), "--host", "127.0.0.1", "--port", str(port)]


def _infera_version() -> str:
    try:
        return importlib.metadata.version("infera-cli")
    except importlib.metadata.PackageNotFoundError as fault:
        raise NotAvailable("infera-cli is not installed beside this interpreter") from fault


# ── nginx ────────────────────────────────────────────────────────────────────────────────────────────
def nginx(folder: Path, port: int, upstreams: Sequence[int]) -> list[str]:
    """nginx with bench/peers/nginx.conf."""
    servers = "\n".join(f"        server 127.0.0.1:{upstream};" for upstream in upstreams)
    text = (HERE / "peers" / "nginx.conf").read_text()
    config = folder / f"nginx-{port}.conf"
    config.write_text(text.replace("@PORT@", str(port)).replace("@SERVERS@", servers))
    return ["nginx", "-p", str(folder), "-c", str(config)]


def _nginx_version() -> str:
    if not shutil.which("nginx"):
        raise NotAvailable("nginx is not installed (on Debian: apt install nginx-light)")
    said = subprocess.run(["nginx", "-v"], capture_output=True, text=True, check=True).stderr
    return said.strip().rpartition("/")[2]


# ── the compiled LLM routers, from an environment of their own ───────────────────────────────────────
def peers_folder() -> Path:
    """Where their environment is: PEERS_ENV, else a folder outside the clone."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(os.environ.get("PEERS_ENV") or cache / "infera" / "bench-peers")


def _peer(package: str, *words: str, policy: str) -> Contender:
    executable = package

    def command(_folder: Path, port: int, upstreams: Sequence[int]) -> list[str]:
        urls = [f"http://127.0.0.1:{upstream}" for upstream in upstreams]
        return [
            str(peers_folder() / "bin" / executable), *words, "--host", "127.0.0.1", "--port", str(port),
            "--policy", policy, "--prometheus-port", str(machine.free_port()), "--worker-urls", *urls,
        ]

    def version() -> str:
        name = package.replace("-", "_")
        found = sorted(peers_folder().glob(f"lib/python*/site-packages/{name}-*.dist-info"))
        if not found:
            raise NotAvailable(f"{package} is not installed in {peers_folder()}")
        return found[-1].name.removesuffix(".dist-info").rpartition("-")[2]

    return Contender(f"{package} {policy.replace('_', '-')}", command, version)


def install_peers() -> None:
    """Make the peers' environment once; what cannot be installed is left out and shows as NOT MEASURED."""
    folder = peers_folder()
    if (folder / ".ready").exists():
        return
    print(f"Installing the routers to compare with into {folder} (once) …", file=sys.stderr)
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    for requirement in (HERE / "peers" / "requirements.txt").read_text().split():
        install = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", requirement]
        if subprocess.run(install, check=False).returncode:
            print(f"{requirement} could not be installed; it will show as NOT MEASURED.", file=sys.stderr)
    (folder / ".ready").touch()


OURS = Contender("infera", infera, _infera_version)
NGINX = Contender("nginx", nginx, _nginx_version)
VLLM_ROUTER = _peer("vllm-router", policy="round_robin")
ALL = (
    OURS,
    NGINX,
    VLLM_ROUTER,
    _peer("vllm-router", policy="cache_aware"),
    _peer("sglang-router", "launch", policy="cache_aware"),
    _peer("smg", "launch", policy="cache_aware"),
)
