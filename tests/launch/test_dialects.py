"""Command lines of engines: the user's flags verbatim, and what a worker needs beside (infera-wire §9, §10.2)."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest

from infera_cli.errors import UsageError
from infera_cli.launch.dialects import DIALECTS, KvPorts, dialect
from infera_cli.launch.dialects.arguments import is_given, number_of, value_of

KV = KvPorts(6000, 7000)


def command(name: str, *args: str, kv: KvPorts | None = KV) -> list[str]:
    return dialect(name).command(args, python="py", port=8001, kv=kv)


def kv_config(words: list[str]) -> Any:
    return json.loads(words[words.index("--kv-events-config") + 1])


@pytest.mark.parametrize(
    ("args", "value"),
    [
        (["--port", "1"], "1"), (["--port=2"], "2"), (["--port", "1", "--port", "2"], "2"), (["--port"], None),
        (["--port", "--x"], None), (["port", "1"], None), (["--ports", "1"], None),
    ],
)  # fmt: skip
def test_a_flag_is_read_as_the_engine_reads_it(args: list[str], value: str | None) -> None:
    """With a space or an equals sign, the last one wins."""
    assert value_of(args, ("--port",)) == value


def test_underscores_stand_for_dashes() -> None:
    """As vLLM has it."""
    assert value_of(["--served_model_name", "a"], ("--served-model-name",)) == "a"
    assert is_given(["--enable_metrics"], ("--enable-metrics",))
    assert number_of(["--dp-size", "x"], ("--dp-size",)) is None


@pytest.mark.parametrize("name", list(DIALECTS))
def test_flags_go_to_the_engine_verbatim_and_in_order(name: str) -> None:
    """Whatever they are, and before what is added."""
    given = ["--strange", "a b", "-x", "--json", '{"a": 1}', "--port-offset", "3"]
    words = command(name, *given)
    start = words.index("--strange")
    assert words[start : start + len(given)] == given


def test_vllm() -> None:
    """Its port, and events on an address that it binds: one with a star (engines.md §1.8.1)."""
    words = command("vllm", "--model", "m")
    assert words[:7] == ["py", "-m", "vllm.entrypoints.openai.api_server", "--model", "m", "--port", "8001"]
    assert kv_config(words) == {
        "enable_kv_cache_events": True, "publisher": "zmq", "endpoint": "tcp://*:6000",
        "replay_endpoint": "tcp://*:7000", "topic": "kv-events",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "flag"), [("vllm", "--enable-prompt-tokens-details"), ("sglang", "--enable-cache-report")]
)
def test_who_publishes_also_reports_what_it_found_cached(name: str, flag: str) -> None:
    """What the router expects of a cache can then be held against it; whoever says otherwise is heeded."""
    assert command(name, "--model", "m").count(flag) == 1
    assert command(name, flag).count(flag) == 1
    refused = flag.replace("--", "--no-", 1)
    assert flag not in command(name, refused)
    assert flag not in command(name, kv=None)
    assert flag not in command("sim")


def test_vllm_takes_its_model_as_vllm_serve_does() -> None:
    """First, and without a flag."""
    assert command("vllm", "org/m", "-tp", "2", kv=None)[3:7] == ["--model", "org/m", "-tp", "2"]
    assert dialect("vllm").model(["org/m", "-tp", "2"]) == "org/m"


def test_s11_sglang_gets_its_metrics_and_an_address_others_reach() -> None:
    """Without metrics nobody could watch it drain; its own default host is this machine only."""
    words = command("sglang", "--model-path", "m")
    assert words[:3] == ["py", "-m", "sglang.launch_server"]
    assert words[5:9] == ["--port", "8001", "--host", "0.0.0.0"]
    assert words[-1] == "--enable-metrics"
    assert kv_config(words)["publisher"] == "zmq"
    assert "enable_kv_cache_events" not in kv_config(words)
    assert command("sglang", "--enable-metrics").count("--enable-metrics") == 1


def test_atom_has_two_ports() -> None:
    """HTTP has its own flag; the internal one follows it, up or down."""
    words = command("atom", "--model", "m")
    assert words[words.index("--server-port") + 1] == "8001"
    assert words[words.index("--port") + 1] == "18001"
    assert command("atom", "--server-port", "60000")[-2:] == ["--port", "50000"]
    assert command("atom", "--port", "5").count("--port") == 1
    assert "--kv-events-config" not in words


def test_pypto_builds_in_a_folder_of_its_own() -> None:
    """One a replica, or builds collide."""
    assert command("pypto", "--model", "m")[:3] == ["py", "-m", "pypto_serving.cli"]
    folders = {dialect("pypto").environment(port)["PYPTO_PROG_BUILD_DIR"] for port in (1, 2)}
    assert len(folders) == 2


def test_sim_runs_beside_us() -> None:
    """With the interpreter that runs infera, whatever --engine-python says; its model is sim."""
    assert command("sim")[:4] == [sys.executable, "-P", "-m", "infera_cli.simengine"]
    assert dialect("sim").model([]) == "sim"
    assert kv_config(command("sim"))["endpoint"] == "tcp://*:6000"


def test_what_is_given_is_not_given_twice() -> None:
    """Port, host and event configuration of the user's own stay alone."""
    words = command("vllm", "--port=9", "--host", "::1", "--kv-events-config", "{}")
    assert words[3:] == ["--port=9", "--host", "::1", "--kv-events-config", "{}"]


@pytest.mark.parametrize("name", list(DIALECTS))
def test_r088_every_worker_gets_the_same_hash_seed(name: str) -> None:
    """In its environment, before it starts, whatever the engine."""
    assert dialect(name).environment(8001)["PYTHONHASHSEED"] == "0"


def test_vllm_publishes_its_hashes_as_numbers() -> None:
    """Unless its surroundings say otherwise."""
    environment = dialect("vllm").environment(8001)
    assert environment == {"PYTHONHASHSEED": "0", "VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES": "1"}


@pytest.mark.parametrize(
    ("name", "args", "model"),
    [
        ("vllm", ["--model", "m"], "m"),
        ("vllm", ["--model", "m", "--served-model-name", "a", "b"], "a"),
        ("sglang", ["--model-path", "m"], "m"),
        ("sglang", ["--model-path", "m", "--served-model-name=a"], "a"),
        ("vllm", [], None),
    ],
)
def test_the_model_is_the_first_alias_else_the_path(name: str, args: list[str], model: str | None) -> None:
    """What requests will name."""
    assert dialect(name).model(args) == model


def test_ranks_nodes_and_halves() -> None:
    """Read where each engine writes them."""
    vllm, sglang = dialect("vllm"), dialect("sglang")
    assert (vllm.dp_size(["-dp", "4"]), vllm.dp_size([]), vllm.dp_rank(["--data-parallel-rank", "3"])) == (4, 1, 3)
    assert sglang.is_follower(["--node-rank", "1"])
    assert not sglang.is_follower(["--node-rank", "0"])
    assert sglang.half(["--disaggregation-mode", "decode"]) == "decode"
    assert vllm.half(["--kv-transfer-config", '{"kv_role":"kv_producer"}']) == "prefill"
    assert vllm.half(["--kv-transfer-config", '{"kv_role":"kv_both"}']) is None
    assert vllm.half(["--kv-transfer-config", "nonsense"]) is None


@pytest.mark.parametrize("engine", ["vllm", "sglang", "atom", "pypto", "sim"])
def test_absurd_values_are_for_the_engine_to_refuse(engine: str) -> None:
    """Numbers without end and objects without bottom are read in no time, and harm nobody here."""
    speaks, many = dialect(engine), "9" * 5000
    assert speaks.port([speaks.port_flags[0], many]) == 10**18
    assert speaks.block_size([*speaks.block_size_flags[:1], many]) in (None, 10**18)
    assert speaks.half(["--kv-transfer-config", "[" * 100_000]) is None
    assert dialect("vllm").event_source({many: {"endpoint": "tcp://*:1"}, "0": {"endpoint": "tcp://*:2"}}) == (2, None)


def test_event_sources_as_engines_tell_them() -> None:
    """vLLM by rank, ports already moved; SGLang inside its description; nothing where nobody can connect."""
    vllm, sglang = dialect("vllm"), dialect("sglang")
    ranks = {"1": {"endpoint": "tcp://*:5558"}, "0": {"endpoint": "tcp://*:5557", "replay_endpoint": "tcp://*:5657"}}
    assert vllm.event_source(ranks) == (5557, 5657)
    assert vllm.event_source({"2": {"endpoint": "tcp://10.0.0.1:5559", "replay_endpoint": None}}) == (5559, None)
    said = {"kv_events": {"publisher": "zmq", "endpoint_host": "*", "endpoint_port_base": 5557}}
    assert sglang.event_source(said) == (5557, None)
    nothings: list[Any] = [{}, None, [], {"kv_events": None}, {"0": {"endpoint": "ipc:///x"}}, {"0": 7}]
    for nothing in nothings:
        assert vllm.event_source(nothing) is None
        assert sglang.event_source(nothing) is None


def test_an_unknown_engine_is_named_with_the_known_ones() -> None:
    """Exit status 2."""
    with pytest.raises(UsageError, match="choose one of vllm, sglang, atom, pypto, sim, and name it first"):
        dialect("--tp")
