"""`/v1/admin/profile/start|stop`."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from infera_cli.gateway.upstream.fetch import Reply
from infera_cli.routing.types import WorkerSpec
from tests.gateway.endpoints import world

START, STOP = "/v1/admin/profile/start", "/v1/admin/profile/stop"
pytestmark = pytest.mark.asyncio


class Workers:
    """Answers POSTs by the worker's name; an exception is raised."""

    def __init__(self, **answers: Reply | OSError) -> None:
        self.answers = answers
        self.asked: list[tuple[str, str, float, Any]] = []

    async def __call__(self, spec: WorkerSpec, path: str, *, timeout: float, body: bytes) -> Reply:  # noqa: ASYNC109
        self.asked.append((spec.id, path, timeout, json.loads(body)))
        answer = self.answers.get(spec.id, Reply(200, b""))
        if isinstance(answer, OSError):
            raise answer
        return answer


FLEET = world.FakeFleet([
    world.member("a", 0), world.member("b", 1, models=("other",)), world.member("c", 2, draining=True),
    world.member("d", 3, ready=False),
])  # fmt: skip


async def asked(workers: Workers | None, path: str, **more: Any) -> httpx.Response:
    async with world.client(world.parts(FLEET, profile=workers)) as http:
        return await http.post(path, **more)


async def test_without_the_flag_it_is_forbidden() -> None:
    """403 that names the flag."""
    answer = await asked(None, START)
    assert answer.status_code == 403
    assert "--enable-profiling" in answer.json()["error"]["message"]


async def test_every_active_worker_is_asked_at_once() -> None:
    """No selector means all that serve; what is left of the body is theirs; each has its result."""
    workers = Workers(a=Reply(200, b""), b=Reply(409, b'{"error":"running"}'))
    answer = await asked(workers, START, json={"profile_prefix": "x"})
    assert workers.asked == [(name, "/start_profile", 30.0, {"profile_prefix": "x"}) for name in ("a", "b")]
    common = {"engine": "vllm"}
    assert (answer.status_code, answer.json()) == (200, {
        "action": "start", "requested": 2, "succeeded": 1, "results": [
            {"worker_id": "a", "url": "http://10.0.0.1:8001", "status_code": 200, "ok": True, "detail": "", **common},
            {"worker_id": "b", "url": "http://10.0.0.1:8002", "status_code": 409, "ok": False,
             "detail": {"error": "running"}, **common},
        ],
    })  # fmt: skip


async def test_stopping_may_take_minutes() -> None:
    """Engines answer when their traces are written."""
    workers = Workers()
    await asked(workers, STOP)
    assert {(path, limit) for _, path, limit, _ in workers.asked} == {("/stop_profile", 600.0)}


async def test_a_worker_that_cannot_be_reached_is_a_result_too() -> None:
    """200 even where all failed: status_code null, and why."""
    workers = Workers(a=ConnectionRefusedError("refused"), b=TimeoutError())
    results = (await asked(workers, START)).json()["results"]
    assert [(result["status_code"], result["ok"]) for result in results] == [(None, False)] * 2
    assert results[0]["detail"] == "ConnectionRefusedError: refused"


@pytest.mark.parametrize(
    ("query", "body", "chosen"),
    [
        ({"worker_id": "a"}, {}, ["a"]),
        ({}, {"worker_id": "b"}, ["b"]),
        ({"worker_id": "a"}, {"worker_id": "b"}, ["a"]),
        ({"model": "other"}, {}, ["b"]),
        ({"role": "MIXED"}, {}, ["a", "b"]),
    ],
)
async def test_selectors_come_from_the_query_before_the_body(
    query: dict[str, str], body: dict[str, str], chosen: list[str]
) -> None:
    """And engines never see them."""
    workers = Workers()
    await asked(workers, START, params=query, json=body)
    assert [name for name, *_ in workers.asked] == chosen
    assert all(told == {} for *_, told in workers.asked)


async def test_an_unknown_role_and_nobody_chosen_are_told_apart() -> None:
    """400, and 404; a draining worker is not active."""
    assert (await asked(Workers(), START, params={"role": "boss"})).status_code == 400
    assert (await asked(Workers(), START, params={"worker_id": "c"})).status_code == 404


@pytest.mark.parametrize("body", [b"", b"not json", b"[]"])
async def test_a_body_that_is_no_object_asks_for_nothing(body: bytes) -> None:
    """It counts as an empty one."""
    workers = Workers()
    assert (await asked(workers, START, content=body)).status_code == 200
    assert workers.asked[0][3] == {}
