"""A router is no worker of its own: one request would go round until it fills every place."""

from __future__ import annotations

import json
import logging
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from infera_cli.config.serve import load_serve
from infera_cli.errors import ConfigError
from infera_cli.wiring import ourselves as module
from infera_cli.wiring.ourselves import Ourselves
from infera_cli.wiring.server import Server
from tests.fleet.etcd_worlds import put
from tests.support.etcd import Etcd
from tests.support.local import Captured, LocalServer
from tests.wiring.test_discovery import Discovering

NODE = {"id": "n", "hardware": "a6000", "backend": "vllm", "models": ["m"]}


@pytest.fixture
def address(monkeypatch: pytest.MonkeyPatch) -> str:
    """An address of this machine that is not the loopback."""
    here = module._is_of_this_machine
    monkeypatch.setattr(module, "_is_of_this_machine", lambda one: str(one) == "10.9.8.7" or here(one))
    return "10.9.8.7"


def test_any_name_of_this_machine_is_ours_where_all_addresses_are_listened_on(address: str) -> None:
    """The loopback in every spelling, the machine's name, its own addresses; never another machine or port."""
    ours = Ourselves("0.0.0.0", 8000)
    for host in ("127.0.0.1", "127.0.1.1", "localhost", "LocalHost.", "0.0.0.0", "::ffff:127.0.0.1",
                 socket.gethostname(), address):  # fmt: skip
        assert ours.are_at(host, 8000), host
        assert not ours.are_at(host, 8001), host
    for host in ("192.0.2.1", "2001:db8::1", "engine.test", "::1"):
        assert not ours.are_at(host, 8000), host
    assert Ourselves("::", 8000).are_at("::1", 8000)


def test_an_engine_may_have_the_port_on_an_address_that_we_do_not_listen_on(address: str) -> None:
    """One address is listened on: only that one is ours, however it is spelt."""
    assert not Ourselves("127.0.0.1", 8000).are_at(address, 8000)
    assert not Ourselves(address, 8000).are_at("127.0.0.1", 8000)
    assert Ourselves(address, 8000).are_at(address, 8000)
    assert Ourselves("localhost", 8000).are_at("127.0.0.1", 8000)
    assert Ourselves("gateway.test", 8000).are_at("Gateway.test", 8000)
    assert not Ourselves("127.0.0.1", 0).are_at("127.0.0.1", 0)


def flags_of(kind: str, folder: Path, port: int) -> dict[str, Any]:
    """Settings that name the worker 127.0.0.1:`port`."""
    path = folder / kind
    if kind == "replicas":
        path.write_text(json.dumps({"replicas": [{"host": "gw.test", "address": "localhost", "port": port}]}))
        return {"replicas": str(path)}
    if kind == "config":
        path.write_text(json.dumps({"nodes": [NODE | {"endpoint": f"http://127.0.0.1:{port}"}]}))
        return {"config": str(path)}
    return {"worker": [f"http://127.0.0.1:{port}"]}


@pytest.mark.parametrize("kind", ["replicas", "config", "worker"])
def test_a_worker_that_is_the_router_is_refused_at_the_start(
    tmp_path: Path, kind: str, unused_tcp_port_factory: Callable[[], int]
) -> None:
    """One sentence that says where it stands and what to do, before anything is bound."""
    port = unused_tcp_port_factory()
    settings = load_serve({"port": str(port), **flags_of(kind, tmp_path, port)}, {}).settings
    with pytest.raises(ConfigError, match=rf":{port} is this router itself; give the address of an engine"):
        Server(settings)


class FromFiles(LocalServer):
    """A server whose workers are in a file of that kind."""

    def __init__(self, **flags: Any) -> None:
        self.server = self._server = Captured(load_serve({"host": "127.0.0.1", "port": "0", **flags}, {}).settings)
        self.url = self._server.url
        self._task = None


@pytest.mark.parametrize("kind", ["replicas", "config"])
async def test_a_reload_that_names_the_router_is_refused(
    tmp_path: Path, kind: str, caplog: pytest.LogCaptureFixture, unused_tcp_port_factory: Callable[[], int]
) -> None:
    """The workers from before stay, and the log has the sentence; the port may be one that was free."""
    async with FromFiles(**flags_of(kind, tmp_path, unused_tcp_port_factory())) as router:
        before = router.server.registry.members()
        flags_of(kind, tmp_path, router.server.listener.port)
        await router.reload()
        assert router.server.registry.members() == before
    assert [line for line in caplog.messages if "is this router itself" in line and "previous one stays" in line]


async def test_a_record_that_names_the_router_is_ignored(
    etcd: Etcd, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """One line in the log; the other workers are there."""
    with caplog.at_level(logging.WARNING):
        async with Discovering(etcd.address, tmp_path) as router:
            put(etcd, "loop", url=router.url)
            put(etcd, "good")
            await router.sees(1)
    lines = [line for line in caplog.messages if "record of worker loop" in line]
    assert len(lines) == 1
    assert "is this router itself; it is refused" in lines[0]
