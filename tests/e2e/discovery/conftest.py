"""etcd, two launched vLLM workers, and pairs of servers, once for all tests of this folder (infera-wire §1, §9)."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e.processes import ENGINE_ENVIRONMENT, ENGINE_START, Process, eventually, free_port
from tests.support import tinymodel
from tests.support.etcd import Etcd

INFERA = str(Path(sys.executable).with_name("infera"))
TINY = [
    "--served-model-name", "tiny", "--load-format", "dummy", "--dtype", "float32", "--max-model-len", "2048",
    "--enforce-eager", "--block-size", "32", "--enable-prefix-caching", "--enable-prompt-tokens-details",
]  # fmt: skip


KV_AWARE = "kv-aware"
"""What a server on etcd does unless it is told otherwise."""


class Server(Process):
    """`infera serve` on etcd, with more `flags`."""

    def __init__(self, name: str, etcd: Etcd, folder: Path, *flags: str) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        command = [
            INFERA, "serve", "--discovery-backend", "etcd", "--etcd-endpoint", etcd.address,
            "--host", "127.0.0.1", "--port", str(self.port), *flags,
        ]  # fmt: skip
        super().__init__(name, command, folder / f"{name}.log", {})

    def workers(self) -> list[dict[str, Any]]:
        """What it lists."""
        try:
            found: list[dict[str, Any]] = httpx.get(f"{self.url}/v1/workers", timeout=5).json()["workers"]
        except httpx.HTTPError:
            return []
        return found

    def ask(self, tokens: int = 8) -> httpx.Response:
        body = {"model": "tiny", "prompt": "rivers " * 40, "max_tokens": tokens, "temperature": 0, "ignore_eos": True}
        return httpx.post(f"{self.url}/v1/completions", json=body, timeout=120)


@dataclass
class World:
    """All of it. `pairs` are two servers for each policy that a test asked for."""

    folder: Path
    model: Path
    etcd: Etcd
    workers: list[Process]
    pairs: dict[str, list[Server]] = field(default_factory=dict)

    @property
    def servers(self) -> list[Server]:
        """Two that take turns among the workers."""
        return self.pair("round-robin")

    def pair(self, policy: str, within: float = 30) -> list[Server]:
        """Two servers of `policy`, started when first asked for, that know both workers."""
        if policy not in self.pairs:
            chosen = ("--router-policy", policy)
            flags = ("--router-tokenizer-path", str(self.model)) if policy == KV_AWARE else chosen
            names = (f"{policy}-left", f"{policy}-right")
            self.pairs[policy] = [Server(name, self.etcd, self.folder, *flags) for name in names]
            for server in self.pairs[policy]:
                server.start()
            self.see(2, within=within, servers=self.pairs[policy])
        return self.pairs[policy]

    def see(self, count: int, within: float, servers: list[Server] | None = None) -> None:
        """Wait until every server lists so many workers that are ready."""
        for server in self.servers if servers is None else servers:
            eventually(
                lambda: sum(row["status"] == "active" for row in server.workers()) == count,  # noqa: B023
                within=within, otherwise=self.last_words,
            )  # fmt: skip

    @property
    def processes(self) -> list[Process]:
        """All servers, then all workers."""
        return [*(server for pair in self.pairs.values() for server in pair), *self.workers]

    def last_words(self) -> str:
        return "\n".join(process.last_words() for process in self.processes)


@pytest.fixture(scope="package")
def world(vllm_python: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("discovery")
    model = folder / "tiny"
    subprocess.run([vllm_python, str(Path(tinymodel.__file__)), str(model)], check=True, timeout=120)
    etcd = Etcd(folder)
    etcd.start()
    launch = [
        INFERA, "launch", "vllm", "--etcd-endpoint", etcd.address, "--engine-python", vllm_python,
        "--drain-timeout", "120", "--host", "127.0.0.1", "--model", str(model), *TINY,
    ]  # fmt: skip
    environment = {**ENGINE_ENVIRONMENT, "VLLM_SERVER_DEV_MODE": "1"}  # for /reset_prefix_cache
    workers = [Process(name, launch, folder / f"{name}.log", environment) for name in ("one", "two")]
    made = World(folder, model, etcd, workers)
    for worker in workers:
        worker.start()
    try:
        made.pair("round-robin", within=ENGINE_START)
        yield made
    finally:
        for process in made.processes:
            process.stop()
        etcd.stop()
