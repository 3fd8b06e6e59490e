"""Plans: every field of a host entry, every engine, and the time that planning takes (replica-router §1.5)."""

from __future__ import annotations

import json
import re
import time
from typing import Any

import pytest

from infera_cli.errors import ConfigError
from infera_cli.launch.engines import ENGINES
from infera_cli.launch.plan import Launch, fallback_stop, plan, shown
from infera_cli.protocol.replica_file import parse
from infera_cli.protocol.replica_hosts import HostEntry
from infera_cli.protocol.slots import pool_of


def planned(**fields: Any) -> Launch:
    """The launch of the first slot of a host with these fields."""
    entry = {"devices": [4], "model": "/m/q", **fields}
    file = parse(json.dumps({"hosts": [entry]}).encode(), path="r.json", router_port=None)
    return plan(file.slots)[0]


PYPTO = ("python3", "-m", "pypto_serving.cli", "--model", "/m/q", "--devices", "4", "--host", "0.0.0.0",
         "--port", "8005", "--show-startup-logs")


@pytest.mark.parametrize(("fields", "expected"), [
    ({}, {"slot": "host0-d4", "place": "local", "address": "127.0.0.1", "port": 8005, "command": PYPTO,
          "log": "/tmp/pypto-serving-router/host0-d4.log", "env": {}, "workdir": None, "stop_command": ()}),
    ({"devices": [4, 5], "devices_per_replica": 2}, {"devices": (4, 5), "command": (*PYPTO[:6], "4,5", *PYPTO[7:])}),
    ({"model": "/other"}, {"model": "/other"}),
    ({"name": "n"}, {"slot": "n-d4", "host": "n"}),
    ({"ssh": "me@10.0.0.7"}, {"place": "me@10.0.0.7", "address": "10.0.0.7"}),
    ({"ssh": "me@10.0.0.7", "identity_file": "~/.ssh/k"}, {"place": "me@10.0.0.7"}),
    ({"port_base": 9000}, {"port": 9004}),
    ({"served_model_name": "q"}, {"command": (*PYPTO, "--served-model-name", "q")}),
    ({"serve_args": ["--tp", "{device}"]}, {"command": (*PYPTO, "--tp", "{device}")}),
    ({"env": {"A": "{device}-{devices}-{port}-{x}"}}, {"env": {"A": "4-4-8005-{x}"}}),
    ({"launch_wrapper": ["task-submit", "--device", "{devices}", "--run"]},
     {"command": ("task-submit", "--device", "4", "--run", " ".join(PYPTO))}),
    ({"stop_command": ["stop", "{port}"]}, {"stop_command": ("stop", "8005")}),
    ({"python": "/opt/py"}, {"command": ("/opt/py", *PYPTO[1:])}),
    ({"workdir": "/srv"}, {"workdir": "/srv"}),
    ({"log_dir": "/var/log/x/"}, {"log": "/var/log/x/host0-d4.log", "record": "/var/log/x/host0-d4.run"}),
])  # fmt: skip
def test_every_field_of_the_document_does_what_it_says(fields: dict[str, Any], expected: dict[str, Any]) -> None:
    """The fields of a host entry, as the replica router's document lists them."""
    launch = planned(**fields)
    assert {name: getattr(launch, name) for name in expected} == expected


@pytest.mark.parametrize(("engine", "begins", "variable"), [
    ("pypto", "python3 -m pypto_serving.cli --model /m/q --devices 4", None),
    ("vllm", "python3 -m vllm.entrypoints.openai.api_server --model /m/q", "CUDA_VISIBLE_DEVICES"),
    ("sglang", "python3 -m sglang.launch_server --model-path /m/q", "CUDA_VISIBLE_DEVICES"),
    ("atom", "python3 -m atom.entrypoints.openai_server --model /m/q", "HIP_VISIBLE_DEVICES"),
    ("sim", "python3 -m infera_cli.simengine --model /m/q", None),
])
def test_every_engine_has_its_command_and_its_device_variable(engine: str, begins: str, variable: str | None) -> None:
    """Devices are told by the engine's own variable, or its flags."""
    launch = planned(engine=engine, devices="4-5", devices_per_replica=2)
    assert " ".join(launch.command).startswith(begins)
    assert launch.env == ({} if variable is None else {variable: "4,5"})
    assert launch.engine.readiness == "/health"


def test_a_users_own_device_variable_takes_the_engines_place() -> None:
    """Exactly one is set: on Ascend, ROCm, or none at all on a CPU."""
    assert planned(engine="vllm", env={"ASCEND_RT_VISIBLE_DEVICES": "{devices}"}).env == {
        "ASCEND_RT_VISIBLE_DEVICES": "4"}
    assert planned(engine="vllm", env={"CUDA_VISIBLE_DEVICES": ""}).env == {"CUDA_VISIBLE_DEVICES": ""}


def test_an_atom_replica_has_two_ports_of_its_own() -> None:
    """HTTP and the engine's internal one differ, and stay in range."""
    words = planned(engine="atom", port_base=60000).command
    assert words[words.index("--server-port") + 1] == "60004"
    assert words[words.index("--port") + 1] == "50004"


def test_a_custom_engine_is_its_command_expanded_then_its_arguments() -> None:
    """Placeholders are filled in the command, not in serve_args."""
    launch = planned(engine="custom", command=["run", "--gpu={devices}", "{port}"], serve_args=["{port}"])
    assert launch.command == ("run", "--gpu=4", "8005", "{port}")


def test_the_digest_changes_with_command_model_and_environment_only() -> None:
    """A moved log or another stop command is no drift."""
    base = planned()
    for same in ({"log_dir": "/l"}, {"stop_command": ["x"]}, {"workdir": "/w"}):
        assert planned(**same).digest == base.digest
    for other in ({"model": "/n"}, {"serve_args": ["-x"]}, {"env": {"A": "1"}}, {"python": "p"}, {"engine": "vllm"}):
        assert planned(**other).digest != base.digest


@pytest.mark.parametrize("engine", [name for name in ENGINES if name != "custom"])
def test_a7_a8_the_pattern_of_last_resort_matches_one_port_and_never_itself(engine: str) -> None:
    """`pkill -f` by module and port: not 80050 for 8005, not the text of the pattern, not another engine."""
    launch = planned(engine=engine)
    words = fallback_stop(launch, launch.port)
    assert words[:4] == ("pkill", "-TERM", "-f", "--")
    pattern = re.compile(words[4])
    line = " ".join(launch.command)
    assert pattern.search(line)
    assert not pattern.search(line.replace("8005", "80050"))
    assert not pattern.search(" ".join(words))
    assert not any(pattern.search(" ".join(planned(engine=other).command)) for other in ENGINES
                   if other not in (engine, "custom"))


def test_what_is_shown_of_a_plan_has_no_value_of_the_environment() -> None:
    """Names only: some values are secrets."""
    assert shown(planned(env={"TOKEN": "hush"})).startswith("TOKEN=… python3 -m ")
    assert "hush" not in shown(planned(env={"TOKEN": "hush"}))


@pytest.mark.parametrize(("devices", "slots"), [
    ("0-3", ["x-d0", "x-d1", "x-d2", "x-d3"]), (["0-1", 7], ["x-d0", "x-d1", "x-d7"]), ("3,1", ["x-d3", "x-d1"]),
])
def test_devices_are_ids_or_ranges(devices: Any, slots: list[str]) -> None:
    """A range holds both its ends; the listed order is kept."""
    text = json.dumps({"hosts": [{"name": "x", "devices": devices, "model": "/m"}]}).encode()
    assert [slot.name for slot in parse(text, path="r", router_port=None).slots] == slots


@pytest.mark.parametrize("devices", ["3-1", "a-b", "0-99999", ["0-1", "1"], "", "-1", "0--1"])
def test_a_range_that_makes_no_sense_is_refused(devices: Any) -> None:
    """Backwards, not numbers, absurdly long, or naming a device twice."""
    text = json.dumps({"hosts": [{"name": "x", "devices": devices, "model": "/m"}]}).encode()
    with pytest.raises(ConfigError, match="devices"):
        parse(text, path="r", router_port=None)


def test_planning_a_thousand_slots_takes_a_moment() -> None:
    """At most fifty milliseconds of the processor, the best of ten."""
    hosts = [HostEntry(name=f"h{n}", devices=tuple(range(8)), model="/m", ssh=f"me@10.0.0.{n}", engine="vllm",
                       env={"A": "{device}"}, serve_args=("--x", "a b")) for n in range(125)]  # fmt: skip
    slots = pool_of(hosts)
    spent = []
    for _ in range(10):
        begun = time.process_time()
        assert len(plan(slots)) == 1000
        spent.append(time.process_time() - begun)
    assert min(spent) <= 0.05
