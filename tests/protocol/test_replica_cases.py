"""Reported faults of replica files, each refused when the file is read."""

from __future__ import annotations

import json
from typing import Any

import pytest

from infera_cli.errors import ConfigError
from infera_cli.protocol.replica_file import parse

REPLICA = {"host": "127.0.0.1", "port": 8001}
HOST = {"name": "gpu", "devices": [0, 1], "model": "/m", "port_base": 9000}


def refusal(**file: Any) -> str:
    """The one sentence with which `file` is refused."""
    with pytest.raises(ConfigError) as caught:
        parse(json.dumps(file).encode(), path="r.json", router_port=8000)
    assert caught.value.exit_code == 1
    assert "\n" not in caught.value.message
    return caught.value.message


@pytest.mark.parametrize("port", [True, "8000", 70000, 0, 8000.0])
def test_a22_a_port_of_another_type_or_range_is_refused(port: object) -> None:
    """A port is a whole number from 1 to 65535; the sentence names the entry."""
    assert "replicas[0]" in refusal(replicas=[{**REPLICA, "port": port}])


def test_a23_misspelt_keys_are_refused_at_every_level() -> None:
    """An unknown key is named, at the top, in a replica and in a host."""
    assert "replicsa" in refusal(replicsa=[], replicas=[REPLICA])
    assert "prot" in refusal(replicas=[{**REPLICA, "prot": 1}])
    assert "devics" in refusal(hosts=[{**HOST, "devics": [0]}])


def test_b26_a_replica_named_like_a_slot_is_refused() -> None:
    """Otherwise its process would be started and never registered."""
    assert "gpu-d0" in refusal(replicas=[{**REPLICA, "name": "gpu-d0"}], hosts=[HOST])


@pytest.mark.parametrize(
    ("host", "named"),
    [
        ({"devices": [0, 1, 2], "devices_per_replica": 2}, "devices"),
        ({"devices": [0, 0]}, "0"),
        ({"port_base": 65530, "devices": [7]}, "65537"),
        ({"devices_per_replica": 0}, "devices_per_replica"),
    ],
)
def test_r146_devices_that_make_no_slots_are_refused(host: dict[str, Any], named: str) -> None:
    """A list that is no multiple, a device twice, a port out of range, no width: the sentence names it."""
    assert named in refusal(hosts=[{**HOST, **host}])


def test_r146_slots_that_share_a_port_are_refused() -> None:
    """Two hosts on one machine with the same port base and device."""
    assert "gpu-d0" in refusal(hosts=[HOST, {**HOST, "name": "other"}])
    assert refusal()
