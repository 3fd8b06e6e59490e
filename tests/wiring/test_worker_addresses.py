"""Addresses that a launcher must not use or tell: taken ports, and hosts that are no host (infera-wire §9.1)."""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from infera_cli.errors import AddressInUse, ConfigError
from infera_cli.launch.ports import check_unused
from tests.wiring.test_worker import plan


@pytest.fixture(params=["127.0.0.1", "0.0.0.0"])
def taken(request: pytest.FixtureRequest) -> Iterator[int]:
    """A port on which a stranger listens, who shares it as vLLM does."""
    with socket.socket() as stranger:
        stranger.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        stranger.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        stranger.bind((request.param, 0))
        stranger.listen()
        yield stranger.getsockname()[1]


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0", None])
def test_a_port_that_somebody_listens_on_is_refused(taken: int, host: str | None) -> None:
    """Before anything is started: whoever answers there would be registered as ours."""
    with pytest.raises(AddressInUse, match=rf"something else listens on [\d.]+:{taken}; "):
        plan("vllm", "--model", "m", "--port", str(taken), *([] if host is None else ["--host", host]))


def test_a_further_node_names_the_port_of_the_first(taken: int) -> None:
    """It listens nowhere, and both may be on one machine."""
    assert not plan("sglang", "--model-path", "m", "--node-rank", "1", "--port", str(taken)).registered


def test_connections_of_a_former_life_do_not_count() -> None:
    """A port whose old connections wait for their end can be bound by an engine."""
    with socket.socket() as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind(("127.0.0.1", 0))
        server.listen()
        port = server.getsockname()[1]
        client = socket.create_connection(("127.0.0.1", port))
        accepted, _ = server.accept()
        accepted.close()  # ours ends first, and waits
        client.close()
    check_unused("127.0.0.1", port)


@pytest.mark.parametrize("url", ["http://0.0.0.0:8000", "http://[::]:8000"])
def test_every_address_is_no_address(url: str) -> None:
    """Refused with what to write instead; with an advertised host, that is told."""
    with pytest.raises(ConfigError, match="is no address that routers can reach; write the"):
        plan("vllm", no_engine=True, url=url)
    assert plan("vllm", no_engine=True, url=url, advertise_host="10.0.0.7").public_url == "http://10.0.0.7:8000"


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_nor_may_it_be_advertised(host: str) -> None:
    """By flag, with an engine of ours or somebody else's."""
    said = f"--advertise-host {host} is no address that routers can reach"
    with pytest.raises(ConfigError, match=said):
        plan("vllm", advertise_host=host)
    with pytest.raises(ConfigError, match=said):
        plan("vllm", advertise_host=host, no_engine=True, url="http://127.0.0.1:8000")


def test_a_running_engine_that_only_this_machine_reaches_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    """As one of ours is, where the registry is elsewhere."""
    with caplog.at_level(logging.WARNING):
        plan("vllm", no_engine=True, url="http://127.0.0.1:8000", etcd_endpoint=["10.0.0.5:2379"])
    assert any("127.0.0.1 is advertised, which only this machine can reach" in line for line in caplog.messages)


@pytest.mark.parametrize("host", ["a b", "http://h", "h:99", "ünï", "[::1", "h/x", "-h", "\udcff", "h" * 5000])
def test_what_routers_would_refuse_is_not_advertised(host: str) -> None:
    """By flag, by the pod, or as the engine's own address: one sentence that names where it comes from."""
    said = "neither a host name nor an address; write it without scheme and port"
    of_ours: dict[str, Any] = {}
    for flags in (of_ours, {"no_engine": True, "url": "http://127.0.0.1:8000"}):
        with pytest.raises(ConfigError, match=f"^--advertise-host .{{1,300}} is {said}$"):
            plan("vllm", advertise_host=host, **flags)
    with pytest.raises(ConfigError, match=f"^POD_IP .{{1,300}} is {said}$"):
        plan("vllm", "--model", "m", environ={"POD_IP": host})
    with pytest.raises(ConfigError, match=f"^--host .{{1,300}} is {said}$"):
        plan("vllm", "--model", "m", "--port", "9001", "--host", host)
    with pytest.raises(ConfigError):
        plan("vllm", "--model", "m", "--host", host)


def test_an_address_in_brackets_is_the_address() -> None:
    """As people copy it out of a URL."""
    made = plan("vllm", "--model", "m", "--port", "9001", advertise_host="[2001:db8::1]")
    assert (made.worker_id, made.public_host) == ("[2001:db8::1]:9001", "2001:db8::1")
    assert plan("vllm", "--model", "m", "--port", "9001", "--host", "[::1]").url == "http://[::1]:9001"


@pytest.mark.parametrize("port", ["70000", "65536", "0", "9" * 5000])
def test_a_port_that_is_none_is_refused(port: str) -> None:
    """One sentence, whether it is probed, told or both."""
    for args in (["--port", port], [f"--port={port}", "--host", "127.0.0.1"]):
        with pytest.raises(ConfigError, match=r"^--port \d{1,19} is no port; write a number from 1 to 65535$"):
            plan("vllm", "--model", "m", *args)


def test_more_ranks_than_there_are_ports_are_refused() -> None:
    """Whatever number it is."""
    with pytest.raises(AddressInUse, match="free ports in a row"):
        plan("vllm", "--model", "m", "-dp", "9" * 5000)
