"""Where engines publish (engines §1.5, §1.8.1, §2.3; C8, C29)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from infera_cli.fleet.kv_feed.addresses import (
    Address,
    Published,
    block_size_in,
    from_sglang,
    from_vllm,
    joined,
    registered,
    shifted,
)
from infera_cli.routing.types import WorkerSpec
from tests.fixtures.kv_events.recorded import Recording


def spec(**more: Any) -> WorkerSpec:
    return WorkerSpec(id="w", host="10.0.0.7", port=8000, **more)


def test_a_real_vllm_says_where_it_publishes() -> None:
    """The recorded reply: a star means the replica's own host."""
    sources = Recording("int").sources
    found = from_vllm(json.dumps(sources).encode(), "10.0.0.7")
    assert found is not None
    port = sources["0"]["endpoint"].rpartition(":")[2]
    assert found.ranks[0].endpoint == f"tcp://10.0.0.7:{port}"
    assert found.ranks[0].replay is not None


def test_c29_every_rank_has_its_port() -> None:
    """vLLM's ports carry the rank already; a registered endpoint is shifted by it."""
    source = {"publisher": "zmq", "endpoint": "tcp://*:5558", "replay_endpoint": None}
    reply = json.dumps({"0": {**source, "endpoint": "tcp://*:5557"}, "1": source}).encode()
    found = from_vllm(reply, "::1")
    assert found is not None
    assert found.ranks == {0: Address("tcp://[::1]:5557"), 1: Address("tcp://[::1]:5558")}
    own = registered(spec(kv_events_endpoint="tcp://10.0.0.7:5557", dp_size=2, kv_block_size=16))
    assert own == Published({0: Address("tcp://10.0.0.7:5557"), 1: Address("tcp://10.0.0.7:5558")}, 16)


def test_sglang_says_it_in_its_server_info() -> None:
    """Host, base ports and ranks; the replay port too."""
    events = {
        "publisher": "zmq", "endpoint_host": "*", "endpoint_port_base": 5557, "dp_size": 2, "block_size": 64,
        "replay_endpoint_port_base": 5657,
    }  # fmt: skip
    found = from_sglang(json.dumps({"kv_events": events}).encode(), "h")
    assert found is not None
    assert found.block_size == 64
    assert found.ranks[1] == Address("tcp://h:5558", "tcp://h:5658")
    assert from_sglang(b'{"kv_events": null}', "h") is None


def test_the_record_says_where_and_the_engine_where_to_ask_again() -> None:
    """The replay port is learned from the engine, the host from the record."""
    own = Published({0: Address("tcp://pod:5557")})
    asked = Published({0: Address("tcp://inside:5557", "tcp://inside:5657")}, 32)
    assert joined(own, asked) == Published({0: Address("tcp://pod:5557", "tcp://pod:5657")}, 32)
    assert joined(own, None) == own
    assert joined(None, asked) == asked
    replayed = registered(spec(kv_events_endpoint="tcp://pod:5557", kv_replay_endpoint="tcp://pod:7"))
    assert replayed == Published({0: Address("tcp://pod:5557", "tcp://pod:7")})


@pytest.mark.parametrize(
    "reply", [b"", b"{}", b"[]", b"nonsense", b'{"0": 7}', b'{"x": {}}', b'{"0": {"publisher": "null"}}',
              b'{"0": {"publisher": "zmq", "endpoint": "ipc:///tmp/x"}}'],
)  # fmt: skip
def test_replies_that_name_nothing_name_nothing(reply: bytes) -> None:
    """Old versions, events off and rubbish are all the same: no address."""
    assert from_vllm(reply, "h") is None


@pytest.mark.parametrize("endpoint", ["", "tcp://h", "tcp://h:0", "tcp://h:70000", "http://h:1", "tcp://h:65535"])
def test_addresses_that_cannot_be_are_none(endpoint: str) -> None:
    """Half-written records do not become sockets."""
    assert shifted(endpoint, 1) is None or endpoint == "tcp://h:0"


def test_s64_the_page_size_is_read_back_from_the_metrics() -> None:
    """vLLM's resolved block size stands in its cache_config_info."""
    page = b'# TYPE x gauge\nvllm:cache_config_info{a="1",block_size="768",b="c"} 1.0\n'
    assert block_size_in(page) == 768
    assert block_size_in(b"") is None
