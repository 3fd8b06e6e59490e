"""Real vLLM servers on the CPU, and `infera serve`, as processes (engines.md §9)."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import httpx

ENGINE_ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "OMP_NUM_THREADS": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "PYTHONHASHSEED": "0",
}
ENGINE_START = 240.0  # seconds; two together need about 60 on two cores
COUNTER = re.compile(r"^(vllm:\w+)\{[^}]*\} ([0-9.e+]+)$", re.MULTILINE)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def eventually(holds: Callable[[], bool], *, within: float, otherwise: Callable[[], str]) -> None:
    """Look every fifth of a second until it holds; fail with `otherwise()` when the time is over."""
    deadline = time.monotonic() + within
    while not holds():
        assert time.monotonic() < deadline, otherwise()
        time.sleep(0.2)


def answers(url: str, status: int = 200) -> bool:
    try:
        return httpx.get(url, timeout=5).status_code == status
    except httpx.HTTPError:
        return False


class Process:
    """One process group, with its output in a file."""

    def __init__(self, name: str, command: Sequence[str], log: Path, env: Mapping[str, str]) -> None:
        self.name, self.command, self.log = name, command, log
        self.env = {**os.environ, **env}
        self.popen: subprocess.Popen[bytes] | None = None

    @property
    def alive(self) -> bool:
        return self.popen is not None and self.popen.poll() is None

    def start(self) -> None:
        with self.log.open("ab") as out:
            self.popen = subprocess.Popen(
                self.command, stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                env=self.env, start_new_session=True,
            )

    def signal_group(self, number: signal.Signals) -> None:
        """Sent to the server and all its children: an engine is a tree of processes."""
        assert self.popen is not None
        os.killpg(self.popen.pid, number)

    def kill(self) -> None:
        self.signal_group(signal.SIGKILL)
        assert self.popen is not None
        self.popen.wait(30)

    def stop(self) -> None:
        if not self.alive:
            return
        assert self.popen is not None
        self.popen.terminate()
        try:
            self.popen.wait(15)
        except subprocess.TimeoutExpired:
            self.kill()

    def last_words(self) -> str:
        return f"{self.name} says:\n{self.log.read_text(errors='replace')[-3000:]}"


class Engine(Process):
    """One vLLM server with the tiny model."""

    def __init__(self, name: str, python: str, model: Path, folder: Path) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.traces = folder / f"{name}-traces"
        command = [
            python, "-m", "vllm.entrypoints.openai.api_server", "--model", str(model),
            "--served-model-name", "tiny", "--load-format", "dummy", "--dtype", "float32",
            "--max-model-len", "2048", "--enforce-eager", "--host", "127.0.0.1", "--port", str(self.port),
            "--block-size", "32", "--enable-prefix-caching", "--enable-prompt-tokens-details",
            "--enable-auto-tool-choice", "--tool-call-parser", "hermes",
            "--structured-outputs-config", json.dumps({"backend": "xgrammar", "disable_any_whitespace": True}),
            "--profiler-config", json.dumps({"profiler": "torch", "torch_profiler_dir": str(self.traces)}),
        ]  # fmt: skip
        super().__init__(name, command, folder / f"{name}.log", ENGINE_ENVIRONMENT)

    def wait_ready(self) -> None:
        def ready() -> bool:
            assert self.alive, self.last_words()
            return answers(f"{self.url}/health")

        eventually(ready, within=ENGINE_START, otherwise=self.last_words)

    def counter(self, name: str) -> float:
        """The sum of one of vLLM's own counters, e.g. `vllm:prefix_cache_hits_total`."""
        found = COUNTER.findall(httpx.get(f"{self.url}/metrics", timeout=10).text)
        return sum(float(value) for key, value in found if key == name)


class Router(Process):
    """`infera serve --replicas FILE` in front of the engines, with more `flags`."""

    def __init__(self, engines: Sequence[Engine], folder: Path, *flags: str) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        replicas = folder / "replicas.json"
        entries = [{"name": engine.name, "host": "127.0.0.1", "port": engine.port} for engine in engines]
        replicas.write_text(json.dumps({"replicas": entries}))
        command = [
            str(Path(sys.executable).with_name("infera")), "serve", "--replicas", str(replicas),
            "--host", "127.0.0.1", "--port", str(self.port), "--health-interval", "1", *flags,
        ]  # fmt: skip
        super().__init__("infera", command, folder / "infera.log", {})

    def ready_count(self) -> int:
        """How many replicas it may send to."""
        try:
            return int(httpx.get(f"{self.url}/health", timeout=5).json()["replicas_ready"])
        except httpx.HTTPError:
            return -1

    def wait_ready(self, count: int) -> None:
        def ready() -> bool:
            assert self.alive, self.last_words()
            return self.ready_count() == count

        eventually(ready, within=30, otherwise=self.last_words)
