"""From a command line to a plan (infera-wire §9.1; S20; rulings 7, 22)."""

from __future__ import annotations

from typing import Any

import pytest

from infera_cli.config.launch import load_launch
from infera_cli.errors import UsageError
from infera_cli.launch.dialects import dialect
from infera_cli.launch.worker import Plan
from infera_cli.wiring.discovery import etcd_access
from infera_cli.wiring.worker import plan_of


def plan(engine: str, *args: str, environ: dict[str, str] | None = None, **flags: Any) -> Plan:
    settings = load_launch({"etcd_endpoint": ["127.0.0.1:2379"], **flags}, {}, args).settings
    return plan_of(settings, dialect(engine), args, environ or {}, etcd_access(settings))


def test_a_worker_is_named_by_the_address_that_others_use() -> None:
    """Advertised host and port; here it is asked on loopback."""
    made = plan("vllm", "--model", "m", "--port", "9001", advertise_host="10.0.0.7")
    assert (made.worker_id, made.public_url) == ("10.0.0.7:9001", "http://10.0.0.7:9001")
    assert made.url == "http://127.0.0.1:9001"


def test_a_bound_address_is_used_and_told() -> None:
    """IPv6 in brackets."""
    made = plan("vllm", "--model", "m", "--host", "::1", "--port", "9001")
    assert (made.worker_id, made.url) == ("[::1]:9001", "http://[::1]:9001")


def test_s20_a_pod_tells_its_own_address() -> None:
    """POD_IP, unless the engine binds one address."""
    made = plan("sglang", "--model-path", "m", environ={"POD_IP": "10.9.9.9"})
    assert made.public_host == "10.9.9.9"
    assert plan("sglang", "--host", "10.1.1.1", "--port", "1", environ={"POD_IP": "10.9.9.9"}).public_host == "10.1.1.1"


def test_c29_each_rank_has_its_own_event_port() -> None:
    """Two rows of ports as long as there are ranks, which do not touch; none where nothing is published."""
    kv = plan("vllm", "--model", "m", "-dp", "4", "--port", "9001").kv
    assert kv is not None
    rows = set(range(kv.events, kv.events + 4)), set(range(kv.replay, kv.replay + 4))
    assert not rows[0] & rows[1]
    assert plan("vllm", "--model", "m", enable_kv_events=False).kv is None
    assert plan("vllm", "--model", "m", "--kv-events-config", "{}").kv is None
    assert plan("pypto", "--model", "m").kv is None


def test_secrets_of_ours_do_not_reach_the_engine() -> None:
    """Neither in its words nor in its surroundings; a hash seed that somebody set stays (R088)."""
    environ = {"INFERA_ETCD_PASSWORD": "hush", "INFERA_ADMIN_TOKEN": "hush", "PATH": "/bin", "PYTHONHASHSEED": "7"}
    made = plan("vllm", "--model", "m", environ=environ)
    assert "hush" not in " ".join([*made.command, *made.environment.values()])
    assert (made.environment["PATH"], made.environment["PYTHONHASHSEED"]) == ("/bin", "7")
    assert plan("vllm", "--model", "m").environment["PYTHONHASHSEED"] == "0"


def test_further_nodes_are_not_registered() -> None:
    """By the engine's flag, or in a group of pods by its index."""
    assert not plan("sglang", "--model-path", "m", "--node-rank", "1").registered
    assert not plan("vllm", "--model", "m", environ={"LWS_WORKER_INDEX": "2"}).registered
    assert plan("vllm", "--model", "m", environ={"LWS_WORKER_INDEX": "0"}).registered


def test_halves_of_requests_are_not_in_this_version() -> None:
    """Refused before anything starts: registered without its protocol, such a worker would harm other routers."""
    with pytest.raises(UsageError, match="prefill workers are not in this version"):
        plan("sglang", "--disaggregation-mode", "prefill")


def test_an_engine_of_somebody_else() -> None:
    """Nothing to start; its own address, prefix and all, or another host for others."""
    made = plan("vllm", no_engine=True, url="https://10.0.0.7/engine/")
    assert (made.command, made.worker_id) == ((), "10.0.0.7:443")
    assert made.public_url == "https://10.0.0.7:443/engine"
    assert plan("vllm", no_engine=True, url="http://127.0.0.1:8000", advertise_host="h").public_url == "http://h:8000"
