"""The scheduler's example file, served as it stands but for its addresses."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import sys
from pathlib import Path

import pytest
import yaml

from infera_cli.config.serve import load_serve
from infera_cli.wiring.check import check_file
from tests.support import raw
from tests.support.replies import error, unary
from tests.support.stub import StubWorker

EXAMPLE = Path(__file__).parents[2] / "examples" / "scheduler.yaml"
MODEL = "meta-llama/Llama-3-8B-Instruct"

pytestmark = pytest.mark.asyncio(loop_scope="function")


async def test_the_example_file_is_good() -> None:
    """`infera config check` says what is in it, and the defaults it sets: port 9000 and prefix-aware."""
    assert check_file(EXAMPLE) == "scheduler file, 5 nodes, 1 model, prefix-aware"
    loaded = load_serve({"config": str(EXAMPLE)}, {})
    settings = loaded.settings
    assert (settings.port, settings.host, settings.router_policy) == (9000, "0.0.0.0", "prefix-aware")
    assert (settings.request_timeout, settings.log_level) == (30.0, "info")
    assert str(loaded.origins["port"]) == f"file {EXAMPLE}"


async def test_flags_win_over_the_file_and_the_file_over_defaults() -> None:
    """What is given on the command line or in the environment stays."""
    flags = {"config": str(EXAMPLE), "port": "7000", "router_policy": "cost", "request_timeout": "90"}
    settings = load_serve(flags, {"INFERA_LOG_LEVEL": "debug"}).settings
    assert (settings.port, settings.router_policy, settings.request_timeout) == (7000, "cost", 90.0)
    assert settings.log_level == "debug"


async def test_the_admin_key_is_the_admin_token() -> None:
    """INFERACT_ADMIN_KEY is another name for it; a token that is given otherwise wins."""
    loaded = load_serve({"config": str(EXAMPLE)}, {"INFERACT_ADMIN_KEY": "k"})
    assert loaded.settings.admin_token == "k"
    assert str(loaded.origins["admin_token"]) == "environment INFERACT_ADMIN_KEY"
    both = load_serve({"config": str(EXAMPLE)}, {"INFERACT_ADMIN_KEY": "k", "INFERA_ADMIN_TOKEN": "t"})
    assert both.settings.admin_token == "t"


async def test_it_starts_unchanged_but_for_its_addresses(tmp_path: Path) -> None:
    """A real process serves it: requests, /status, drain by key, and SIGHUP."""
    async with StubWorker("a", models=[MODEL]) as a, StubWorker("b", models=[MODEL]) as b, \
            StubWorker("c", models=[MODEL]) as c, StubWorker("d", models=[MODEL]) as d, \
            StubWorker("e", models=[MODEL]) as e:  # fmt: skip
        e.health = error(404, {"detail": "Not Found"})
        file = tmp_path / "scheduler.yaml"
        text = EXAMPLE.read_text()
        for worker, address in zip((a, b, c, d, e), re.findall(r"10\.0\.0\.\d+:\d+", text), strict=True):
            text = text.replace(address, worker.address)
            worker.always(unary({"ok": worker.name}))
        file.write_text(text.replace("port: 9000", f"port: {free_port()}").replace('"0.0.0.0"', "127.0.0.1"))
        await serve_and_ask(file)


async def serve_and_ask(file: Path) -> None:
    port = yaml.safe_load(said(file))["scheduler"]["port"]
    url = f"http://127.0.0.1:{port}"
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "infera_cli", "serve", "--config", str(file),
        env={**os.environ, "INFERACT_ADMIN_KEY": "change-me"},
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        async with asyncio.timeout(30):
            while b"try:" not in await process.stdout.readline():
                pass
        await asks(url, file, process)
    finally:
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 0


async def asks(url: str, file: Path, process: asyncio.subprocess.Process) -> None:
    body = {"model": MODEL, "messages": [{"role": "user", "content": "hi"}], "x-inferact": {"priority": 7}}
    async with asyncio.timeout(20):
        while (answer := await raw.post(url, raw.CHAT, body)).status == 502:  # noqa: ASYNC110 - probes have no event
            await asyncio.sleep(0.05)
    assert (answer.status, answer.get("x-infera-worker")) == (200, "node-h100-01")
    status = (await raw.get(url, "/status")).json()
    assert [(node["id"], node["hardware"], node["backend"]) for node in status["nodes"]] == [
        ("node-h100-01", "h100-80g", "vllm"), ("node-a100-01", "a100-80g", "vllm"), ("node-a100-02", "a100-80g", "tgi"),
        ("node-rtx-01", "rtx-4090", "vllm"), ("my-node", "custom", "custom"),
    ]  # fmt: skip
    drained = await raw.post(url, "/admin/nodes/node-h100-01/drain", b"", {"X-Inferact-Admin-Key": "change-me"})
    assert drained.json() == {"id": "node-h100-01", "draining": True, "requests_in_flight": 0}
    assert (await raw.post(url, raw.CHAT, body)).get("x-infera-worker") == "node-a100-01"
    reweigh(file)
    process.send_signal(signal.SIGHUP)
    async with asyncio.timeout(10):
        while (nodes := (await raw.get(url, "/status")).json()["nodes"])[2]["weight"] != 0.25:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    assert nodes[0]["draining"] is True
    assert json.dumps(nodes)


def said(file: Path) -> str:
    return file.read_text()


def reweigh(file: Path) -> None:
    file.write_text(file.read_text().replace("weight: 0.5", "weight: 0.25"))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port
