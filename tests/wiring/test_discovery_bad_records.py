"""One worker's bad record is nobody else's trouble, with a server and a real etcd (infera-wire §1.4)."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.fleet.etcd_worlds import put, record
from tests.support.etcd import Etcd
from tests.wiring.test_discovery import Discovering

BAD: dict[str, dict[str, Any]] = {
    "surrogate": {"model_name": "m\ud800"},
    "endpoint": {"kv_events_endpoint": "tcp://a:1\ud800"},
    "inner": {"disagg_meta": {"\udc00": 1}},
    "ranks": {"dp_size": 65536},
    "infinite": {"disagg_meta": {"a": 7777}},
}


@pytest.mark.parametrize("kind", list(BAD))
async def test_pages_stay_readable(kind: str, etcd: Etcd, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The record is refused with one line in the log; `/v1/workers` and `/metrics` answer, without it."""
    raw = json.dumps(record("bad", **BAD[kind])).replace("7777", "1e999")
    with caplog.at_level(logging.WARNING):
        async with Discovering(etcd.address, tmp_path) as router, httpx.AsyncClient() as http:
            put(etcd, "bad", raw=raw)
            put(etcd, "good")
            await router.sees(1)
            for path in ("/v1/workers", "/metrics", "/v1/models", "/health"):
                reply = await http.get(router.url + path)
                assert reply.status_code == 200, path
            rows = (await http.get(f"{router.url}/v1/workers")).json()["workers"]
            assert [row["worker_id"] for row in rows] == ["good"]
            assert (await router.metrics())['infera_discovery_records_refused_total{source="etcd"}'] == 1.0
    lines = [line for line in caplog.messages if "record of worker bad" in line]
    assert len(lines) == 1
    assert lines[0].endswith("; it is refused")
