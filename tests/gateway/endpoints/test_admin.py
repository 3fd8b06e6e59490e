"""Admin routes: drain, restore, explain, past requests."""

from __future__ import annotations

from typing import Any

import pytest

from infera_cli.gateway.access import Access
from tests.gateway.endpoints.world import FakeFleet, FakeJournal, client, member, parts


async def test_r112_drain_twice_answers_the_same_and_restore_undoes_it() -> None:
    """Drain is idempotent; ids with a colon work."""
    fleet = FakeFleet([member("10.0.0.1:8001", outstanding=3)])
    async with client(parts(fleet)) as http:
        first = await http.post("/v1/admin/workers/10.0.0.1:8001/drain")
        second = await http.post("/v1/admin/workers/10.0.0.1%3A8001/drain")
        restored = await http.post("/v1/admin/workers/10.0.0.1:8001/restore")
    assert first.status_code == second.status_code == restored.status_code == 200
    assert first.json() == {"worker_id": "10.0.0.1:8001", "status": "draining", "outstanding": 3}
    assert second.json() == first.json()
    assert restored.json()["status"] == "active"


@pytest.mark.parametrize("verb", ["drain", "restore"])
async def test_r112_unknown_worker_is_404(verb: str) -> None:
    """An unknown id is 404, says where ids are listed, and is echoed to 200 characters at most."""
    async with client(parts(FakeFleet())) as http:
        answer = await http.post(f"/v1/admin/workers/{'n' * 500}/{verb}")
    assert answer.status_code == 404
    assert "GET /v1/workers" in answer.json()["error"]["message"]
    assert "n" * 201 not in answer.text


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/v1/admin/workers/a/drain"), ("POST", "/v1/admin/workers/a/restore"),
        ("POST", "/v1/admin/explain"), ("GET", "/v1/admin/requests"), ("GET", "/replicas"),
    ],
)  # fmt: skip
async def test_admin_routes_are_closed_to_other_machines_without_a_token(method: str, path: str) -> None:
    """403 that names the flag, and nothing has changed (rulings 6)."""
    fleet = FakeFleet([member("a")])
    async with client(parts(fleet), peer="10.9.9.9") as http:
        answer = await http.request(method, path)
    assert answer.status_code == 403
    assert "--admin-open" in answer.text
    assert not fleet.table[0].draining


async def test_a28_admin_token_is_checked_before_anything_else() -> None:
    """A wrong token is 401 also for an unknown worker and a malformed body."""
    async with client(parts(FakeFleet(), access=Access(admin_token="T"))) as http:
        answers = [
            await http.post("/v1/admin/workers/nope/drain", headers={"Authorization": "T"}),
            await http.post("/v1/admin/explain", content=b"{", headers={"Authorization": "Bearer t"}),
            await http.get("/v1/admin/requests?limit=x"),
        ]
    assert [answer.status_code for answer in answers] == [401, 401, 401]
    assert all(answer.json()["error"]["type"] == "authentication_error" for answer in answers)


async def test_explain_shows_the_decision_with_its_reasons() -> None:
    """Headers and body go to the decision as they would have come in; candidates keep their reasons."""
    ask = {"path": "/v1/completions", "headers": {"X-Session-Id": "s"}, "body": {"model": "m"}}
    async with client(parts(FakeFleet())) as http:
        answer = await http.post("/v1/admin/explain", json=ask)
    assert answer.json() == {
        "worker": "a", "why": "least-loaded", "affinity": "none", "policy": "session", "model": "m",
        "session": '/v1/completions [(b\'x-session-id\', b\'s\')] {"model":"m"}', "error": None,
        "candidates": [
            {"worker": "a", "outstanding": 0, "dropped": None, "terms": {"load": 0.0}},
            {"worker": "b", "outstanding": 4, "dropped": "draining", "terms": {}},
        ],
    }  # fmt: skip


async def test_explain_takes_a_raw_body_as_a_string() -> None:
    """A body that is no JSON can be explained too."""
    async with client(parts(FakeFleet())) as http:
        answer = await http.post("/v1/admin/explain", json={"body": "{broken"})
    assert answer.json()["session"].endswith("[] {broken")


@pytest.mark.parametrize("body", ['{"a":1.50,  "a":[]}', '{"seed":' + "9" * 5000 + "}", '{"temperature":1e999}'])
async def test_explain_takes_a_body_as_it_is_written(body: str) -> None:
    """Numbers of any size, spaces and repeated members: what a worker would get is explained."""
    async with client(parts(FakeFleet())) as http:
        answer = await http.post("/v1/admin/explain", content=f'{{"body": {body}}}')
    assert answer.json()["session"].endswith(f"[] {body}")


@pytest.mark.parametrize(
    "body",
    [
        b"", b"{", b"[]", b'"hi"', b"\xff\xfe", b'{"headers": {"a": 1}}', b"[" * 100_000, b'{"path": "/nope"}',
        b'{"body": "\xff"}', b'{"body": "\\ud800"}', b'{"body": ' + b"[" * 100_000,
    ],
)
async def test_malformed_explain_body_is_400_and_not_echoed(body: bytes) -> None:
    """Every malformed question gets one sentence."""
    async with client(parts(FakeFleet())) as http:
        answer = await http.post("/v1/admin/explain", content=body)
    assert answer.status_code == 400
    assert answer.json()["error"]["type"] == "invalid_request_error"
    assert len(answer.text) < 500


async def test_explain_body_over_the_limit_is_413() -> None:
    """The limit of request bodies holds here too."""
    async with client(parts(FakeFleet(), body_limit=100)) as http:
        answer = await http.post("/v1/admin/explain", content=b'{"body": "' + b"x" * 200)
    assert answer.status_code == 413


async def test_requests_are_filtered() -> None:
    """All filters reach the journal."""
    journal = FakeJournal()
    query: dict[str, Any] = {"slow": "1.5", "worker": "a", "session": "s", "status": "5xx", "limit": "7"}
    async with client(parts(FakeFleet(), journal=journal)) as http:
        answer = await http.get("/v1/admin/requests", params=query)
    assert answer.json() == {"requests": [{"id": "r1"}]}
    assert journal.asked == {"slow": 1.5, "worker": "a", "session": "s", "status": "5xx", "limit": 7}


@pytest.mark.parametrize("query", ["limit=0", "limit=x", "slow=-1", "slow=nan", "limit=" + "9" * 400])
async def test_bad_filter_is_400_naming_the_parameter(query: str) -> None:
    """A value that cannot be read names its parameter and is not echoed."""
    async with client(parts(FakeFleet())) as http:
        answer = await http.get(f"/v1/admin/requests?{query}")
    error = answer.json()["error"]
    assert (answer.status_code, error["param"]) == (400, query.partition("=")[0])
    assert len(error["message"]) < 400


async def test_a_status_that_no_request_can_have_is_refused() -> None:
    """A typing error in the filter is a 400 that lists what there is, not an empty list."""
    async with client(parts(FakeFleet())) as http:
        answer = await http.get("/v1/admin/requests?status=foo")
    assert answer.status_code == 400
    assert "a class such as 5xx, or one of ok, 4xx" in answer.json()["error"]["message"]


@pytest.mark.parametrize("query", ["outcome=zzz", "since=abc", "limit=3&bogus=1", "Worker=a", "=1"])
async def test_a_filter_that_there_is_not_is_refused(query: str) -> None:
    """A misspelt filter is a 400 that lists the known ones, not everything unfiltered."""
    async with client(parts(FakeFleet())) as http:
        answer = await http.get(f"/v1/admin/requests?{query}")
    error = answer.json()["error"]
    assert (answer.status_code, error["param"]) == (400, query.rpartition("&")[2].partition("=")[0])
    assert error["message"].endswith("the known ones are slow, worker, session, status, limit.")
