"""Every validation row of replica-router §1.2 that the text alone decides (row 1 is the reader's)."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from infera_cli.errors import ConfigError
from infera_cli.protocol.replica_file import ReplicaFile, parse

REPLICA = {"host": "10.0.0.2", "port": 8001}
HOST = {"devices": [0, 1], "model": "/m"}


def read(value: object, router_port: int | None = 8000) -> ReplicaFile:
    text = value if isinstance(value, bytes) else json.dumps(value).encode()
    return parse(text, path="replicas.json", router_port=router_port)


def replica(**changes: Any) -> dict[str, Any]:
    return {"replicas": [REPLICA, {**REPLICA, "name": "second", **changes}]}


def host(**changes: Any) -> dict[str, Any]:
    return {"hosts": [{**HOST, "name": "box", **changes}]}


def without(entry: dict[str, Any], key: str) -> dict[str, Any]:
    return {name: value for name, value in entry.items() if name != key}


ROWS: list[tuple[int, object, list[str]]] = [
    (2, b'{"replicas": [', ["replicas.json", "line 1"]),
    (2, b'{"replicas": [{"host": "a", "port": 1},]}', ["not valid JSON", "line 1 column"]),
    (2, b'{"replicas": [{"host": "a",\n "port": 1,}]}', ["not valid JSON", "line 2"]),
    (2, b"\xff\xfe{\x00", ["not UTF-8"]),
    (2, b"", ["not valid JSON"]),
    (2, b'{"replicas": [{"host": "a", "port": NaN}]}', ["NaN"]),
    (2, b'{"replicas": [{"host": "a", "port": ' + b"9" * 5000 + b"}]}", ["not valid JSON"]),
    (2, b'{"replicas": ' + b"[" * 200_000, ["nested too deeply"]),
    (2, b'{"replicas": [], "replicas": []}', ['"replicas" stands twice']),
    (3, [REPLICA], ["must be a JSON object"]),
    (3, "text", ["must be a JSON object"]),
    (4, {"replicas": [REPLICA], "zeta": 1, "alpha": 2}, ['"alpha", "zeta"']),
    (4, {"replica": [REPLICA]}, ['"replica"', 'did you mean "replicas"?']),
    (5, {"replicas": REPLICA}, ['"replicas"', '"hosts"', "lists"]),
    (5, {"replicas": [REPLICA], "hosts": None}, ["lists"]),
    (6, {}, ["names no engine"]),
    (6, {"replicas": [], "hosts": []}, ["names no engine"]),
    (7, {"replicas": [REPLICA, "10.0.0.2:8001"]}, ["replicas[1]", '"host"', '"port"']),
    (7, {"replicas": [{"port": 8001}]}, ["replicas[0]", '"host" missing']),
    (7, {"replicas": [{"host": "a", "prot": 8001}]}, ["replicas[0]", '"port" missing', '"prot"', '"port"?']),
    (8, replica(wieght=1, colour="red"), ["replicas[1]", '"colour", "wieght"']),
    (8, replica(shceme="https"), ['"shceme"', 'did you mean "scheme"?']),
    (9, replica(port=True), ["replicas[1]", '"port"', "true"]),
    (9, replica(port="8000"), ["replicas[1]", '"8000"']),
    (9, replica(port=0), ["not 0"]),
    (9, replica(port=70000), ["70000"]),
    (9, replica(port=8001.0), ["8001.0"]),
    (9, replica(port=None), ["null"]),
    (10, replica(scheme="ftp"), ["replicas[1]", '"scheme"', '"ftp"']),
    (10, replica(scheme=["http"]), ["replicas[1]", '"scheme"']),
    (10, replica(scheme=None), ["replicas[1]", '"scheme"']),
    (11, replica(host=""), ["replicas[1]", '"host"', "non-empty"]),
    (11, replica(host=5), ["replicas[1]", '"host"', "not 5"]),
    (11, replica(name=7), ["replicas[1]", '"name"', "not 7"]),
    (11, replica(name="a\nb"), ["replicas[1]", '"name"', "control"]),
    (11, replica(host="http://10.0.0.2"), ["replicas[1]", '"host"', "scheme in it"]),
    (11, replica(host="10.0.0.2:8001"), ["replicas[1]", '"host"', "own field"]),
    (11, replica(host="a b"), ["replicas[1]", '"host"', "neither"]),
    (12, {"hosts": ["box"]}, ["hosts[0]", "object"]),
    (13, host(device=[0], modle="x"), ["hosts[0]", '"device", "modle"']),
    (13, host(port_bse=8001), ['"port_bse"', 'did you mean "port_base"?']),
    (14, host(devices=[]), ["hosts[0]", '"devices"']),
    (14, host(devices="a,b"), ["hosts[0]", '"devices"']),
    (14, {"hosts": [without(HOST, "devices")]}, ["hosts[0]", '"devices"']),
    (15, host(devices=[0, -1]), ["hosts[0]", "-1"]),
    (15, host(devices=[True]), ["hosts[0]", "true"]),
    (15, host(devices=["x"]), ["hosts[0]", '"x"']),
    (15, host(devices=[0.5]), ["hosts[0]", "0.5"]),
    (16, host(env={"A": 1}), ["hosts[0]", '"env"', '"A"']),
    (16, host(env=["A=1"]), ["hosts[0]", '"env"']),
    (16, host(env={"-u": "x"}), ["hosts[0]", '"env"', '"-u"']),
    (16, host(env={"A=B": "x"}), ["hosts[0]", '"A=B"']),
    (16, host(env={"A\n": "x"}), ["hosts[0]", '"env"']),
    (17, host(serve_args="--tp 1"), ["hosts[0]", '"serve_args"']),
    (17, host(launch_wrapper=["a", 1]), ["hosts[0]", '"launch_wrapper"']),
    (17, host(stop_command={}), ["hosts[0]", '"stop_command"']),
    (17, host(serve_args=["a\0b"]), ["hosts[0]", '"serve_args"', "NUL"]),
    (18, host(port_base=True), ["hosts[0]", '"port_base"', "true"]),
    (18, host(port_base="8001"), ["hosts[0]", '"port_base"', '"8001"']),
    (19, host(devices_per_replica=0), ["hosts[0]", '"devices_per_replica"', "not 0"]),
    (19, host(devices_per_replica=True), ["hosts[0]", '"devices_per_replica"', "true"]),
    (19, host(devices_per_replica=None), ["hosts[0]", '"devices_per_replica"', "null"]),
    *[(20, host(**{key: 5}), ["hosts[0]", f'"{key}"', "not 5"]) for key in (
        "ssh", "identity_file", "model", "served_model_name", "python", "workdir", "log_dir")],
    (21, host(devices=[0, 3, 0]), ["box", "0 twice"]),
    (22, host(model=""), ["box", '"model"']),
    (22, {"hosts": [without(HOST, "model")]}, ["host0", '"model"']),
    (23, host(devices=[0, 1, 2], devices_per_replica=2), ["box", "3 devices", "devices_per_replica 2"]),
    (24, host(port_base=65530, devices=[5, 7]), ["box", "box-d7", "65537"]),
    (24, host(port_base=0, devices=[0]), ["box-d0", "port 0"]),
    (24, host(port_base=-9, devices=[8]), ["box-d8", "port -1"]),
    (25, {"replicas": [{**REPLICA, "name": "a"}, {**REPLICA, "name": "a", "port": 2}]}, ['"a"', "twice"]),
    (25, {"replicas": [REPLICA, REPLICA]}, ['"10.0.0.2:8001"', "twice"]),
    (25, {"replicas": [REPLICA, {**REPLICA, "name": "10.0.0.2:8001", "port": 1}]}, ["twice"]),
    (26, {"hosts": [{**HOST, "name": "x"}, {**HOST, "name": "x", "port_base": 9000}]}, ['"x"', "twice"]),
    (26, {"hosts": [{**HOST, "name": "host1"}, {**HOST, "port_base": 9000}]}, ['"host1"', "twice"]),
    (27, {"replicas": [{**REPLICA, "name": "box-d1"}], **host()}, ["replicas[0]", '"box-d1"', "slot"]),
    (28, {"hosts": [HOST, HOST]}, ["host0-d0", "host1-d0"]),
    (28, {"hosts": [{**HOST, "ssh": "a@M"}, {**HOST, "ssh": "b@m"}]}, ["host0-d0", "host1-d0"]),
    (28, {"replicas": [{"host": "localhost", "port": 8002}], **host()}, ["localhost:8002", "box-d1"]),
    (28, {"replicas": [{"host": "n", "address": "::1", "port": 8002}], **host()}, ["n:8002", "box-d1"]),
    (29, host(port_base=8000), ["box-d0", "8000"]),
    (30, host(ssh="-oProxyCommand=x"), ["box", '"ssh"', '"-"']),
    (30, host(ssh="user@a b"), ["box", '"ssh"', "white space"]),
    (30, host(ssh="user@a\x07"), ["box", '"ssh"', "control"]),
    (30, host(ssh="ssh://user@box"), ["box", '"ssh"', "not a URL"]),
    (30, host(ssh="user@box:22"), ["box", '"ssh"', "without a port"]),
]


IDS = [f"row{row}-{i}" for i, (row, *_) in enumerate(ROWS)]


@pytest.mark.parametrize(("row", "value", "names"), ROWS, ids=IDS)
def test_each_row_is_refused_with_one_sentence_that_names_the_fault(
    row: int, value: object, names: list[str]
) -> None:
    """A file that breaks a row stops the program with the path, the entry and the value."""
    with pytest.raises(ConfigError) as caught:
        read(value)
    message = caught.value.message
    assert message.startswith("replicas.json: ")
    assert "\n" not in message
    assert [name for name in names if name not in message] == []
    assert caught.value.exit_code == 1
    assert row in range(2, 31)


def test_the_table_above_has_every_row() -> None:
    """Rows 2 to 30 are all shown by at least one file."""
    assert {row for row, *_ in ROWS} == set(range(2, 31))


ORDER = [
    (7, {"replicas": [{"host": "a", "wieght": 1}]}, '"port" missing'),
    (8, {"replicas": [{"host": "a", "port": 0, "wieght": 1}]}, "wieght"),
    (9, {"replicas": [{"host": "", "port": 0, "scheme": "ftp"}]}, '"port"'),
    (10, {"replicas": [{"host": "", "port": 1, "scheme": "ftp"}]}, '"scheme"'),
    (13, host(devices=[], extra=1), "extra"),
    (14, host(devices=[], env=5), '"devices"'),
    (16, host(env=5, serve_args=5), '"env"'),
    (17, host(serve_args=5, port_base="x"), '"serve_args"'),
    (18, host(port_base="x", devices_per_replica=0), '"port_base"'),
    (19, host(devices_per_replica=0, ssh=5), '"devices_per_replica"'),
    (20, host(workdir=5, devices=[0, 0]), '"workdir"'),
    (21, host(devices=[0, 0], model=""), "twice"),
    (22, host(model="", devices_per_replica=4), '"model"'),
    (23, host(devices_per_replica=4, port_base=70000), "whole multiple"),
    (24, {"replicas": [REPLICA, REPLICA], **host(port_base=70000)}, "port 70000"),
    (25, {"replicas": [REPLICA, REPLICA], "hosts": [{**HOST, "name": "x"}] * 2}, "replica names"),
    (26, {"hosts": [{**HOST, "name": "x"}] * 2}, "host names"),
    (27, {"replicas": [{"host": "localhost", "port": 8001, "name": "box-d0"}], **host()}, "name of a slot"),
    (28, {"hosts": [{**HOST, "port_base": 8000}] * 2}, "would both be"),
    (29, host(port_base=8000, devices=[0]), "router's own port"),
]


@pytest.mark.parametrize(("row", "value", "says"), ORDER, ids=[f"row{row}" for row, *_ in ORDER])
def test_of_two_faults_the_earlier_row_is_told(row: int, value: object, says: str) -> None:
    """Rows are checked in the order of the sheet."""
    with pytest.raises(ConfigError, match=re.escape(says)):
        read(value)
    assert row < 30


EXTENSIONS = [
    (replica(models="a"), ["replicas[1]", '"models"']),
    (replica(models=["a", ""]), ["replicas[1]", '"models"']),
    (replica(address="x y"), ["replicas[1]", '"address"']),
    (replica(api_key_file=5), ["replicas[1]", '"api_key_file"']),
    (replica(ca_file="/ca.pem"), ["replicas[1]", '"ca_file"', "https"]),
    (replica(path_prefix="v2"), ["replicas[1]", '"path_prefix"', '"/"']),
    (replica(path_prefix="/a?b=1"), ["replicas[1]", '"path_prefix"', "query"]),
    (host(engine="tgi"), ["hosts[0]", '"engine"', "sglang"]),
    (host(engine=None), ["hosts[0]", '"engine"']),
    (host(engine=["vllm"]), ["hosts[0]", '"engine"']),
    (host(engine="custom"), ["hosts[0]", '"command"']),
    (host(command=["x"]), ["hosts[0]", '"command"', "pypto"]),
    (host(address="http://x"), ["hosts[0]", '"address"']),
    (host(name="a/b"), ["hosts[0]", '"name"']),
]


@pytest.mark.parametrize(("value", "names"), EXTENSIONS)
def test_fields_beyond_the_sheet_are_checked_too(value: object, names: list[str]) -> None:
    """An extra field with a wrong value is refused by entry and key."""
    with pytest.raises(ConfigError) as caught:
        read(value)
    assert [name for name in names if name not in caught.value.message] == []


def test_a_huge_value_does_not_make_a_huge_message() -> None:
    """A message stays readable whatever the file holds."""
    with pytest.raises(ConfigError) as caught:
        read(replica(scheme="x" * 100_000))
    assert len(caught.value.message) < 200
