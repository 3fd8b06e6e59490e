"""A worker's record in discovery, both ways (infera-wire §1.2, §1.4)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infera_cli.protocol.worker_record import (
    BadRecord,
    WorkerRecord,
    encode_record,
    parse_record,
    prefix_of,
    range_end,
    split_url,
    worker_id_of,
)

LEAST = {"worker_id": "10.0.0.1:8001", "url": "http://10.0.0.1:8001", "model_name": "m"}
WHOLE = {
    **LEAST, "engine": "vllm", "status": "draining", "disagg_mode": "prefill",
    "disagg_meta": {"protocol": "sglang-bootstrap", "params": {"bootstrap_addr": "10.0.0.1:8998"}},
    "kv_events_endpoint": "tcp://10.0.0.1:5557", "kv_block_size": 16, "dp_rank": 0, "dp_size": 4,
    "request_transport": "nats", "kv": {
        "engine_block_size": 16, "index_block_size": 64, "tokenizer": "m", "tokenizer_digest": "0123456789abcdef",
        "tokenizer_canary": [1, 2]},
}  # fmt: skip


def value(**members: Any) -> bytes:
    return json.dumps({**LEAST, **members}).encode()


def refusal(raw: bytes) -> str:
    with pytest.raises(BadRecord) as fault:
        parse_record("10.0.0.1:8001", raw)
    return str(fault.value)


def test_the_least_record_gets_the_defaults_of_the_wire() -> None:
    """Three members are required; all others have their documented defaults."""
    record = parse_record("10.0.0.1:8001", value())
    assert record == WorkerRecord(worker_id="10.0.0.1:8001", url="http://10.0.0.1:8001", model_name="m")
    assert (record.engine, record.status, record.disagg_mode) == ("sglang", "active", "mixed")
    assert (record.disagg_meta, record.request_transport) == ({}, "http")
    assert (record.kv_events_endpoint, record.kv_block_size, record.kv) == (None, None, None)
    assert (record.dp_rank, record.dp_size) == (None, None)


def test_every_member_is_read() -> None:
    """A record with all members keeps each of them."""
    record = parse_record("10.0.0.1:8001", json.dumps(WHOLE).encode())
    assert {name: getattr(record, name) for name in WHOLE} == WHOLE


def test_nulls_are_absent_members() -> None:
    """Members that may be null mean nothing when they are."""
    optional = ("disagg_meta", "kv_events_endpoint", "kv_block_size", "dp_rank", "dp_size", "kv")
    assert parse_record("w", value(**dict.fromkeys(optional))) == parse_record("w", value())


def test_members_nobody_knows_are_ignored() -> None:
    """A newer worker may say more."""
    assert parse_record("w", value(zone="a", kv_version=7)) == parse_record("w", value())


def test_the_key_names_the_worker() -> None:
    """The suffix of the key is the identity, whatever `worker_id` says."""
    assert parse_record("other", value()).worker_id == "other"


@pytest.mark.parametrize("missing", list(LEAST))
def test_a_missing_required_member_refuses_the_record(missing: str) -> None:
    """Each of the three is required."""
    rest = {name: said for name, said in LEAST.items() if name != missing}
    assert refusal(json.dumps(rest).encode()) == f'has no "{missing}"'


@pytest.mark.parametrize(
    ("members", "reason"),
    [
        ({"status": "gone"}, 'has a "status" that is none of active, draining, dead'),
        ({"disagg_mode": "both"}, 'has a "disagg_mode" that is none of mixed, prefill, decode'),
        ({"status": None}, 'has a "status" that is none of active, draining, dead'),
        ({"model_name": 7}, 'has a "model_name" that is not a string'),
        ({"kv_block_size": 0}, 'has a "kv_block_size" that is not a whole number from 1 to 16777216'),
        ({"kv_block_size": "16"}, 'has a "kv_block_size" that is not a whole number from 1 to 16777216'),
        ({"kv_block_size": True}, 'has a "kv_block_size" that is not a whole number from 1 to 16777216'),
        ({"dp_size": 1e300}, 'has a "dp_size" that is not a whole number from 1 to 1024'),
        ({"dp_rank": -1}, 'has a "dp_rank" that is not a whole number from 0 to 1023'),
        ({"disagg_meta": []}, 'has a "disagg_meta" that is not an object'),
        ({"kv": {"engine_block_size": 16}}, 'has a "kv" without a usable "index_block_size"'),
        ({"kv": {**WHOLE["kv"], "engine_block_size": None}},  # type: ignore[dict-item]
         'has a "kv" without a usable "engine_block_size"'),
        ({"url": "10.0.0.1:8001"}, 'has a "url" that is neither http://host:port nor https://host:port'),
        ({"url": "http://h:0"}, 'has a "url" that is neither http://host:port nor https://host:port'),
        ({"url": "http://h:99999"}, 'has a "url" that cannot be read: Port out of range 0-65535'),
        ({"url": "http://u:p@h:1"}, 'has a "url" that is no base URL'),
        ({"url": "http://h:1/a?b"}, 'has a "url" that is no base URL'),
        ({"url": "http://h\r\n:1"}, 'has a "url" that cannot be printed'),
        ({"url": "http://h:1/?"}, 'has a "url" that is no base URL'),
    ],
)  # fmt: skip
def test_a_member_that_cannot_be_used_refuses_the_record(members: dict[str, Any], reason: str) -> None:
    """Each wrong member is named in half a sentence."""
    assert refusal(value(**members)) == reason


@pytest.mark.parametrize(
    "raw", [b"", b"{", b"\xff", b"nul", b'{"a":NaN}', b"[" * 100_000, value()[:-5], b"[]" + b" " * (1 << 20)]
)
def test_garbage_is_one_kind_of_error(raw: bytes) -> None:
    """Half-written, huge, deep or not JSON at all: refused, nothing else."""
    assert refusal(raw)


@given(st.binary(max_size=60) | st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
        st.sampled_from([*WHOLE, "x"]), inner, max_size=6)).map(lambda document: json.dumps(document).encode()))
def test_no_value_raises_anything_else(raw: bytes) -> None:
    """Whatever is written under a key, it is a record or a BadRecord."""
    try:
        name = parse_record("w", raw).worker_id
    except BadRecord:
        name = "w"
    assert name == "w"


def test_an_unknown_engine_is_some_engine() -> None:
    """The engine's name decides nothing here, so a new one is no reason to lose a worker."""
    assert parse_record("w", value(engine="newest")).engine_name == "newest"


def test_our_own_engines_hide_behind_one_that_everybody_knows() -> None:
    """`infera_engine` names what really runs (rulings 22)."""
    assert parse_record("w", value(engine="vllm", infera_engine="pypto")).engine_name == "pypto"


def test_a_written_record_is_read_again() -> None:
    """Writing and reading are each other's inverse, and the bytes of one record are always the same."""
    for document in (LEAST, WHOLE):
        record = parse_record("10.0.0.1:8001", json.dumps(document).encode())
        again = parse_record("10.0.0.1:8001", encode_record(record))
        assert again == record
        assert encode_record(again) == encode_record(record)


def test_a_written_record_is_one_that_other_routers_take() -> None:
    """`status` is not written while active, ours only where they say something; the rest is there, nulls too."""
    written = json.loads(encode_record(parse_record("10.0.0.1:8001", value(engine="vllm"))))
    assert written == {
        **LEAST, "engine": "vllm", "disagg_mode": "mixed", "disagg_meta": {}, "kv_events_endpoint": None,
        "kv_block_size": None, "dp_rank": None, "dp_size": None, "request_transport": "http",
    }  # fmt: skip


def test_s98_an_unresolved_block_size_is_never_written_as_null_inside_kv() -> None:
    """A `kv` block is written only as it was given; without one there is no member at all."""
    assert b'"kv":' not in encode_record(parse_record("w", value()))


def test_keys() -> None:
    """A prefix ends in a slash; its range ends before the next; the rest of a key is the worker's name."""
    assert prefix_of("/infera/workers") == prefix_of("/infera/workers/") == "/infera/workers/"
    assert range_end("/infera/workers/") == b"/infera/workers0"
    assert worker_id_of(b"/infera/workers/10.0.0.1:8001", "/infera/workers/") == "10.0.0.1:8001"


@pytest.mark.parametrize("key", [b"/p/", b"/p/a b", b"/p/\x01", b"/p/\xff", b"/p/" + b"a" * 513])
def test_a_key_without_a_usable_name_is_refused(key: bytes) -> None:
    """Names go into log lines, labels and headers."""
    with pytest.raises(BadRecord):
        worker_id_of(key, "/p/")


def test_base_urls() -> None:
    """Scheme, host, port and prefix; IPv6 without its brackets."""
    assert split_url("http://h:8001") == ("http", "h", 8001, "")
    assert split_url("https://[::1]/engine/") == ("https", "::1", 443, "/engine")
