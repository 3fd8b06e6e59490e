"""Ports and addresses of launched engines (S20, S25, S26, S28)."""

from __future__ import annotations

import random
import socket

import pytest

from infera_cli.errors import AddressInUse, ConfigError
from infera_cli.launch import addresses, ports
from infera_cli.launch.addresses import advertised, is_local
from infera_cli.launch.ports import NODEPORTS, free_ports, nodeport_range


@pytest.mark.parametrize("count", [1, 4])
def test_s25_no_port_of_the_nodeport_range_is_chosen(count: int) -> None:
    """Neither a single one nor any of a row."""
    for seed in range(50):
        first = free_ports(count, avoid=range(10_200, 65_000), dice=random.Random(seed))
        assert not set(range(first, first + count)) & set(range(10_200, 65_000))


def test_the_usual_range_is_avoided_by_default() -> None:
    """30000 to 32767."""
    assert (NODEPORTS.start, NODEPORTS.stop) == (30_000, 32_768)
    assert all(free_ports(1) not in NODEPORTS for _ in range(20))


@pytest.mark.parametrize("text", [None, "", "  ", "abc", "1-", "40000-30000", "0-5", "1-70000", "30000"])
def test_s26_a_malformed_range_keeps_the_default(text: str | None) -> None:
    """The guard never falls by mistake."""
    assert nodeport_range(text) == NODEPORTS


def test_s26_only_none_and_off_remove_the_range() -> None:
    """Said in words; a range that can be read is taken."""
    assert len(nodeport_range("none")) == len(nodeport_range(" OFF ")) == 0
    assert nodeport_range("20000-20010") == range(20_000, 20_011)


def test_a_taken_port_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """By somebody who listens, or by ourselves for another end; when none is left, it is said."""
    with socket.socket() as taken:
        taken.bind(("", 0))
        mine = taken.getsockname()[1]
        monkeypatch.setattr(ports, "_CHOICE", (mine,))
        with pytest.raises(AddressInUse, match="no 1 free ports"):
            free_ports(1, avoid=range(0))
    assert free_ports(1, avoid=range(0)) == mine
    with pytest.raises(AddressInUse):
        free_ports(1, avoid=range(0), taken=[mine])


def test_an_address_of_another_machine_is_told_at_once() -> None:
    """No port of it will ever be free here."""
    with pytest.raises(ConfigError, match=r"nothing can listen on '192\.0\.2\.1' here"):
        free_ports(1, host="192.0.2.1")


def test_s20_a_bound_wildcard_is_never_advertised() -> None:
    """An address that is bound is told as it is; for all addresses, the one on the way to the registry."""
    assert advertised("10.0.0.9", "http://127.0.0.1:2379") == "10.0.0.9"
    for wildcard in ("0.0.0.0", "::", None, ""):
        assert advertised(wildcard, "http://127.0.0.1:2379") == "127.0.0.1"


def test_s28_the_bridge_of_a_container_network_is_never_advertised(monkeypatch: pytest.MonkeyPatch) -> None:
    """Even where it is the way to the registry; where there is nothing else, it has to do."""
    monkeypatch.setattr(addresses, "_towards", lambda _host: "172.17.0.1")
    seen = [("lo", "127.0.0.1"), ("docker0", "172.17.0.1"), ("eth0", "10.1.2.3")]
    monkeypatch.setattr(addresses, "_interfaces", lambda: iter(seen))
    assert advertised(None, "http://172.17.0.5:2379") == "10.1.2.3"
    monkeypatch.setattr(addresses, "_interfaces", lambda: iter(seen[:2]))
    assert advertised(None, "http://172.17.0.5:2379") == "172.17.0.1"


def test_an_unknown_registry_leaves_this_machine() -> None:
    """A name that does not resolve is no reason to stop."""
    assert advertised(None, "http://no-such-name.invalid:2379") == "127.0.0.1"
    assert is_local("127.0.0.1")
    assert not is_local("10.0.0.1")
    assert ("lo", "127.0.0.1") in list(addresses._interfaces())
