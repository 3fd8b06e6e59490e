"""What a good replica file becomes: entries, slots, placeholders, ceilings (replica-router §1.2–1.4)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infera_cli.errors import ConfigError
from infera_cli.protocol import replica_file, replica_hosts
from infera_cli.protocol.replica_file import ReplicaFile, ceiling, initial_replicas, parse
from infera_cli.protocol.slots import Slot


def read(value: object, router_port: int | None = 8000) -> ReplicaFile:
    return parse(json.dumps(value).encode(), path="f.json", router_port=router_port)


def slots(**host: Any) -> tuple[Slot, ...]:
    return read({"hosts": [{"name": "x", "model": "/m", **host}]}).slots


def test_the_example_of_the_document_is_read() -> None:
    """The documented two-replica file is accepted as it stands."""
    file = read({"replicas": [
        {"name": "node0", "host": "127.0.0.1", "port": 8001},
        {"name": "node1", "host": "10.0.0.2", "port": 8001},
    ]})
    assert [(r.name, r.host, r.port, r.scheme) for r in file.replicas] == [
        ("node0", "127.0.0.1", 8001, "http"), ("node1", "10.0.0.2", 8001, "http")]
    assert file.slots == ()


REPLICA_FIELDS: list[tuple[str, Any, Any, Any]] = [  # field, value, what it becomes, default
    ("host", "node0", "node0", "h"), ("port", 65535, 65535, 1), ("name", "node0", "node0", "h:1"),
    ("scheme", "https", "https", "http"), ("models", ["a", "b", "a"], ("a", "b"), ()),
    ("address", "10.0.0.9", "10.0.0.9", None), ("api_key_file", "/k", "/k", None),
    ("path_prefix", "/engine/", "/engine", ""),
]


@pytest.mark.parametrize(("field", "value", "becomes", "default"), REPLICA_FIELDS)
def test_every_replica_field_is_accepted(field: str, value: Any, becomes: Any, default: Any) -> None:
    """Each field of `replicas` has its documented default and takes a value."""
    plain = read({"replicas": [{"host": "h", "port": 1}]}).replicas[0]
    changed = read({"replicas": [{"host": "h", "port": 1, field: value}]}).replicas[0]
    assert (getattr(plain, field), getattr(changed, field)) == (default, becomes)


HOST_FIELDS: list[tuple[str, Any, Any, Any]] = [
    ("devices", [3, 1], (3, 1), (0, 1)), ("devices_per_replica", 2, 2, 1), ("model", "/q", "/q", "/m"),
    ("name", "box", "box", "host0"), ("ssh", "user@host", "user@host", None),
    ("identity_file", "~/.k", "~/.k", None), ("port_base", 9001, 9001, 8001),
    ("served_model_name", "q", "q", None), ("env", {"A": "b"}, {"A": "b"}, {}),
    ("serve_args", ["--max-model-len", "1"], ("--max-model-len", "1"), ()),
    ("launch_wrapper", ["task-submit", "--device", "{devices}", "--run"],
     ("task-submit", "--device", "{devices}", "--run"), ()),
    ("stop_command", ["kill", "{port}"], ("kill", "{port}"), ()), ("python", "py", "py", "python3"),
    ("workdir", "/srv", "/srv", None), ("log_dir", "/logs", "/logs", "/tmp/pypto-serving-router"),
    ("engine", "vllm", "vllm", "pypto"), ("address", "10.1.1.1", "10.1.1.1", None),
]


@pytest.mark.parametrize(("field", "value", "becomes", "default"), HOST_FIELDS)
def test_every_host_field_is_accepted(field: str, value: Any, becomes: Any, default: Any) -> None:
    """Each field of `hosts` has its documented default and takes a value."""
    base: dict[str, Any] = {"devices": [0, 1], "model": "/m"}
    plain, changed = read({"hosts": [base]}).hosts[0], read({"hosts": [{**base, field: value}]}).hosts[0]
    assert (getattr(plain, field), getattr(changed, field)) == (default, becomes)


def test_the_tables_above_have_every_field() -> None:
    """No field of either kind of entry goes untested; those tied to a second one have tests of their own."""
    assert {f for f, *_ in REPLICA_FIELDS} | {"ca_file"} == {*replica_file.FIELDS, *replica_file.EXTRA_FIELDS}
    assert {f for f, *_ in HOST_FIELDS} | {"command"} == {*replica_hosts.FIELDS, *replica_hosts.EXTRA_FIELDS}


def test_a_ca_file_goes_with_https() -> None:
    """An https replica may name the CA that signed it."""
    replica = read({"replicas": [{"host": "h", "port": 1, "scheme": "https", "ca_file": "/ca"}]}).replicas[0]
    assert replica.ca_file == "/ca"


def test_a_custom_engine_brings_its_command() -> None:
    """`command` is the whole command of engine custom, with placeholders."""
    (slot,) = slots(engine="custom", command=["serve", "--port", "{port}"], devices=[4])
    assert slot.command == ("serve", "--port", "8005")


@pytest.mark.parametrize("name", ["", None])
def test_an_empty_or_null_name_falls_back_to_the_default(name: str | None) -> None:
    """A name that says nothing is as good as none."""
    file = read({"replicas": [{"host": "h", "port": 1, "name": name}],
                 "hosts": [{"devices": [0], "model": "/m", "name": name}]})
    assert (file.replicas[0].name, file.hosts[0].name) == ("h:1", "host0")


def test_r187_a_byte_order_mark_is_accepted() -> None:
    """A UTF-8 BOM at the start, as some editors write it, is no fault."""
    text = b"\xef\xbb\xbf" + json.dumps({"replicas": [{"host": "h", "port": 1}]}).encode()
    assert parse(text, path="f", router_port=None).replicas[0].host == "h"


@pytest.mark.parametrize("host", ["::1", "[::1]"])
def test_b19_an_ipv6_host_is_kept_without_and_named_with_brackets(host: str) -> None:
    """Brackets belong into URLs, not into the host."""
    replica = read({"replicas": [{"host": host, "port": 8001}]}).replicas[0]
    assert (replica.host, replica.name) == ("::1", "[::1]:8001")


# ── slots ────────────────────────────────────────────────────────────────────────────────────────────
def test_groups_are_runs_in_the_listed_order() -> None:
    """Devices are grouped as listed, not sorted, and the first of a group gives name and port."""
    found = [(s.name, s.devices, s.port) for s in slots(devices=[3, 1, 2, 0], devices_per_replica=2)]
    assert found == [("x-d3", (3, 1), 8004), ("x-d2", (2, 0), 8003)]


def test_a10_an_eight_wide_model_on_sixteen_devices_is_two_slots() -> None:
    """Capacity is the quotient of devices and width."""
    found = slots(devices=list(range(16)), devices_per_replica=8)
    assert [(s.name, s.port) for s in found] == [("x-d0", 8001), ("x-d8", 8009)]
    assert found[0].host.capacity == 2


def test_the_pool_begins_with_this_machine() -> None:
    """Hosts without ssh come first, each class in the order of the file."""
    def entry(name: str, **more: Any) -> dict[str, Any]:
        return {"name": name, "model": "/m", "devices": [0], **more}

    file = read({"hosts": [
        entry("far1", ssh="u@a"), entry("near1"), entry("far0", ssh="u@b"), entry("near0", port_base=9000)]})
    assert [slot.name for slot in file.slots] == ["near1-d0", "near0-d0", "far1-d0", "far0-d0"]
    assert [host.name for host in file.hosts] == ["far1", "near1", "far0", "near0"]


@pytest.mark.parametrize(("fields", "address"), [
    ({}, "127.0.0.1"), ({"ssh": "user@box"}, "box"), ({"ssh": "box"}, "box"), ({"ssh": "a@b@box"}, "box"),
    ({"ssh": "u@fe80::1"}, "fe80::1"), ({"ssh": "u@alias", "address": "10.0.0.7"}, "10.0.0.7"),
])
def test_a_slot_is_reached_at_its_hosts_address(fields: dict[str, Any], address: str) -> None:
    """Loopback without ssh, else what follows the last @, unless the entry says `address`."""
    assert slots(devices=[0], **fields)[0].address == address


def test_b28_only_a_local_slot_can_be_on_the_routers_port() -> None:
    """The router's port matters on the router's machine alone, and not before it is known."""
    entry = {"devices": [0], "model": "/m", "port_base": 8000}
    assert read({"hosts": [{**entry, "ssh": "u@far"}]}).slots[0].port == 8000
    assert read({"hosts": [entry]}, router_port=None).slots[0].port == 8000
    with pytest.raises(ConfigError):
        read({"hosts": [entry]})


# ── placeholders ─────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(("text", "becomes"), [
    ("{device}", "2"), ("{devices}", "2,3"), ("{port}", "8003"), ("{devices}:{port}", "2,3:8003"),
    ('{"a": {"b": 1}}', '{"a": {"b": 1}}'), ("{{port}}", "{8003}"), ("{}", "{}"), ("{0}", "{0}"),
    ("{Port} {port:d} {port!r} { port }", "{Port} {port:d} {port!r} { port }"), ("{{device}s}", "{2s}"),
    ("${HOME}", "${HOME}"), ("{", "{"), ("%s", "%s"),
])
def test_b4_exactly_three_placeholders_are_filled_in(text: str, becomes: str) -> None:
    """{device}, {devices} and {port} are replaced in one pass; every other brace stays."""
    slot = slots(devices=[2, 3], devices_per_replica=2, env={"V": text}, launch_wrapper=[text],
                 stop_command=[text], serve_args=[text], workdir=text)[0]
    assert (slot.env["V"], slot.launch_wrapper, slot.stop_command) == (becomes, (becomes,), (becomes,))
    assert (slot.host.serve_args, slot.host.workdir) == ((text,), text)


def test_a_device_name_in_a_value_is_not_expanded_twice() -> None:
    """What a placeholder yields is not looked at again, and names of variables are not looked at at all."""
    slot = slots(devices=[1], env={"device": "{device}{device}"})[0]
    assert slot.env == {"device": "11"}


# ── ceilings ─────────────────────────────────────────────────────────────────────────────────────────
POOL = {"hosts": [{"devices": [0, 1, 2, 3], "model": "/m"}, {"devices": [0, 1], "devices_per_replica": 2,
                                                            "model": "/m", "ssh": "far"}]}


def test_the_ceiling_is_the_pool_or_the_cap() -> None:
    """The pool is the sum over hosts; a lower cap lowers it, a higher one does not raise it."""
    assert [ceiling(read(POOL), cap) for cap in (None, 2, 99)] == [5, 2, 5]


def test_initial_replicas_default_to_one_where_there_are_hosts() -> None:
    """A file with hosts starts one replica, a static file none."""
    static = read({"replicas": [{"host": "h", "port": 1}]})
    assert initial_replicas(read(POOL), None, None) == 1
    assert initial_replicas(static, None, None) == 0
    assert initial_replicas(read(POOL), 5, None) == 5
    assert initial_replicas(read(POOL), 0, None) == 0


def test_a25_more_initial_replicas_than_the_pool_are_refused() -> None:
    """The refusal names the number, the ceiling, and the cap where that made it."""
    with pytest.raises(ConfigError, match=r"^f\.json: --initial-replicas 6 .* ceiling of 5, the pool"):
        initial_replicas(read(POOL), 6, 9)
    with pytest.raises(ConfigError, match=r"replicas 3 .* ceiling of 2, which --max-replicas 2 sets"):
        initial_replicas(read(POOL), 3, 2)
    with pytest.raises(ConfigError, match="ceiling of 0"):
        initial_replicas(read({"replicas": [{"host": "h", "port": 1}]}), 1, None)


# ── anything at all ──────────────────────────────────────────────────────────────────────────────────
_json = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 70000) | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
        st.sampled_from([*replica_file.FIELDS, *replica_hosts.FIELDS, "replicas", "hosts", "engine"]), inner,
        max_size=5), max_leaves=12)


@given(entry=_json, kind=st.sampled_from(["replicas", "hosts"]))
def test_no_entry_whatever_ends_in_anything_but_a_file_or_one_sentence(entry: object, kind: str) -> None:
    """Any JSON is either accepted or refused with a ConfigError."""
    text = json.dumps({kind: [entry]}, allow_nan=True).encode()
    told = "f: nothing to tell"
    try:
        parse(text, path="f", router_port=1)
    except ConfigError as error:
        told = error.message
    assert told.startswith("f: ")


@given(st.binary(max_size=64))
def test_no_bytes_whatever_end_in_anything_but_one_sentence(text: bytes) -> None:
    """Random bytes are refused with a ConfigError."""
    with pytest.raises(ConfigError):
        parse(text, path="f", router_port=None)
