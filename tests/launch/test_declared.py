"""What is refused before anything is launched (replica-router §1.2)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from infera_cli.cli.app import run

HOST = {"name": "x", "devices": [0, 1], "model": "/m"}


@pytest.mark.parametrize(("document", "flags", "told"), [
    ({"hosts": [{**HOST, "devices": [0, 1, 2], "devices_per_replica": 2}]}, [], ["x", "devices_per_replica"]),
    ({"hosts": [{**HOST, "devices": [0, 0]}]}, [], ["x", "devices"]),
    ({"hosts": [HOST, {**HOST, "name": "y"}]}, [], ["x-d0", "y-d0", "port_base"]),
    ({"hosts": [{**HOST, "port_base": 65530, "devices": [7]}]}, [], ["x-d7", "port_base"]),
    ({"hosts": [HOST]}, ["--initial-replicas", "3"], ["--initial-replicas 3", "2"]),
    ({"hosts": [HOST]}, ["--initial-replicas", "2", "--max-replicas", "1"], ["--max-replicas 1"]),
    ({}, [], ["replicas", "hosts"]),
    ({"hosts": [{**HOST, "devices_per_replica": 0}]}, [], ["devices_per_replica"]),
    ({"hosts": [HOST], "replicas": [{"name": "x-d0", "host": "a", "port": 1}]}, [], ["x-d0"]),
    ({"hosts": [{**HOST, "ssh": "-oProxyCommand=x"}]}, [], ["x", "ssh"]),
    ({"hosts": [{**HOST, "engine": "tgi"}]}, [], ["x", "engine"]),
    ({"replicas": [{"host": "a", "port": 1}]}, ["--initial-replicas", "1"], ["--initial-replicas 1"]),
    ({"hosts": [HOST]}, ["--launch-timeout", "nan"], ["--launch-timeout"]),
    ({"hosts": [HOST]}, ["--on-exit", "keep"], ["--state-file"]),
])  # fmt: skip
def test_r146_b26_what_cannot_work_is_refused_at_the_start(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], document: Any, flags: list[str], told: list[str]
) -> None:
    """Exit 1 before listening, in one line that names what is wrong."""
    file = tmp_path / "r.json"
    file.write_text(json.dumps(document))
    assert run(["serve", "--replicas", str(file), "--host", "127.0.0.1", "--port", "0", *flags]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ")
    for word in told:
        assert word in line


def test_r146_a_flag_that_does_not_parse_is_2_even_without_the_file(tmp_path: Path) -> None:
    """The command line comes first."""
    assert run(["serve", "--replicas", str(tmp_path / "none.json"), "--initial-replicas", "x"]) == 2
