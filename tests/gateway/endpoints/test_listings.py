"""Models, workers, replicas and metrics, and who may read them."""

from __future__ import annotations

import pytest

from infera_cli.events import Bus
from infera_cli.fleet.registry import Registry
from infera_cli.gateway.access import Access
from infera_cli.gateway.endpoints.parts import Capacity
from infera_cli.routing.sessions import Pins
from infera_cli.routing.types import WorkerSpec
from tests.gateway.endpoints.world import FakeFleet, client, member, parts

CARD = {"id": "org/model", "object": "model", "created": 1, "owned_by": "vllm"}


async def test_models_come_from_memory() -> None:
    """The list and a single card, ids with slashes included."""
    async with client(parts(FakeFleet([member("a")], [CARD]))) as http:
        listing, one = await http.get("/v1/models"), await http.get("/v1/models/org/model")
    assert listing.json() == {"object": "list", "data": [CARD]}
    assert one.json() == CARD


async def test_unknown_model_is_404_and_lists_what_is_served() -> None:
    """The error object names the parameter and the served models; the name is not echoed at length."""
    async with client(parts(FakeFleet([member("a")], [CARD]))) as http:
        answer = await http.get("/v1/models/" + "x" * 3000)
    error = answer.json()["error"]
    assert answer.status_code == 404
    assert (error["type"], error["param"], error["code"]) == ("not_found_error", "model", "model_not_found")
    assert "served: org/model" in error["message"]
    assert "x" * 201 not in answer.text


async def test_models_are_503_when_files_name_workers_and_none_is_routable() -> None:
    """With replica files nothing routable is 503, with discovery an empty list."""
    down = FakeFleet([member("a", ready=False)])
    async with client(parts(down)) as http:
        files = await http.get("/v1/models")
    async with client(parts(down, source_kind="discovery")) as http:
        discovery = await http.get("/v1/models")
    assert (files.status_code, files.json()["error"]["type"]) == (503, "service_unavailable")
    assert (discovery.status_code, discovery.json()) == (200, {"object": "list", "data": []})


async def test_workers_show_wire_fields_and_ours_and_no_key() -> None:
    """Every worker is listed, draining and dead ones too; worker keys are not."""
    fleet = FakeFleet([
        member("a", models=("m", "lora"), outstanding=1, routed=9, breaker="half_open", breaker_trips=2,
               failures=1),
        member("b", 1, draining=True, models=()),
        member("c", 2, ready=False),
    ])  # fmt: skip
    async with client(parts(fleet)) as http:
        answer = await http.get("/v1/workers")
    rows = answer.json()["workers"]
    assert rows[0] == {
        "worker_id": "a", "url": "http://10.0.0.1:8001", "model_name": "m", "engine": "vllm",
        "status": "active", "disagg_mode": "mixed", "disagg_meta": {}, "kv_events_endpoint": None,
        "kv_block_size": None, "dp_rank": None, "dp_size": None, "models": ["m", "lora"],
        "source": "replicas", "ready": True,
        "draining": False, "stalled": False, "owned": False, "outstanding": 1, "routed": 9, "breaker": "half_open",
        "breaker_trips": 2, "failures": 1,
    }  # fmt: skip
    assert [(row["status"], row["model_name"]) for row in rows[1:]] == [("draining", ""), ("dead", "m")]
    assert "wk" not in answer.text


async def test_replicas_show_state_and_no_capacity_without_hosts() -> None:
    """The replica router's listing; a router that launches nothing has zero capacity."""
    async with client(parts(FakeFleet([member("a", routed=4)]))) as http:
        answer = await http.get("/replicas")
    assert answer.json() == {
        "replicas": [
            {"name": "a", "url": "http://10.0.0.1:8001", "ready": True, "draining": False, "owned": False,
             "outstanding": 0, "routed": 4}
        ],
        "capacity": {"owned": 0, "ceiling": 0, "free_slots": []},
    }  # fmt: skip


async def test_b23_free_slots_stop_at_the_ceiling() -> None:
    """At most as many free slots are listed as may still be launched."""
    capacity = Capacity(owned=1, ceiling=2, free_slots=("host0-d1", "host0-d2", "host0-d3"))
    async with client(parts(FakeFleet(), capacity=lambda: capacity)) as http:
        answer = await http.get("/replicas")
    assert answer.json()["capacity"] == {"owned": 1, "ceiling": 2, "free_slots": ["host0-d1"]}


async def test_metrics_follow_the_accept_header() -> None:
    """A scraper that prefers OpenMetrics gets it."""
    async with client(parts(FakeFleet())) as http:
        plain = await http.get("/metrics")
        modern = await http.get("/metrics", headers={"Accept": "application/openmetrics-text"})
    assert (plain.text, plain.headers["content-type"]) == ("up 1\n", "text/plain; version=0.0.4")
    assert modern.headers["content-type"] == "application/openmetrics-text"


@pytest.mark.parametrize(
    ("path", "status"),
    [("/v1/models", 401), ("/v1/models/m", 401), ("/health", 200), ("/livez", 200), ("/readyz", 200),
     ("/metrics", 200)],
)  # fmt: skip
async def test_client_key_guards_models_and_never_health_or_metrics(path: str, status: int) -> None:
    """`--api-key` is asked for under /v1/models only; the refusal says how to show it (rulings 6)."""
    made = parts(FakeFleet([member("a")], [CARD]), access=Access(api_keys=["k"]))
    async with client(made, peer="10.9.9.9") as http:
        bare = await http.get(path)
        keyed = await http.get(path, headers={"x-api-key": "k"})
    assert bare.status_code == status
    assert bare.headers.get("www-authenticate") == ("Bearer" if status == 401 else None)
    assert keyed.status_code == (404 if path == "/v1/models/m" else 200)


async def test_replicas_need_the_admin_token_in_their_own_error_shape() -> None:
    """401 in the replica router's error object; the token opens."""
    async with client(parts(FakeFleet(), access=Access(admin_token="T")), peer="10.9.9.9") as http:
        bare = await http.get("/replicas")
        keyed = await http.get("/replicas", headers={"Authorization": "bearer T"})
    assert (bare.status_code, bare.headers["www-authenticate"]) == (401, "Bearer")
    assert bare.json().keys() == {"object", "message"}
    assert bare.json()["object"] == "error"
    assert keyed.status_code == 200


async def test_b22_models_come_from_available_workers_of_the_real_fleet() -> None:
    """A draining worker's model is not listed; drained over HTTP, it is gone from the list at once."""
    registry = Registry(Bus(), pins=Pins(600))
    registry.add(WorkerSpec(id="a", host="h", port=1, models=("ma",)))
    registry.add(WorkerSpec(id="b", host="h", port=2, models=("mb",)))
    async with client(parts(registry)) as http:
        before = (await http.get("/v1/models")).json()["data"]
        await http.post("/v1/admin/workers/a/drain")
        after = (await http.get("/v1/models")).json()["data"]
        rows = (await http.get("/v1/workers")).json()["workers"]
        health = (await http.get("/health")).json()
    assert [card["id"] for card in before] == ["ma", "mb"]
    assert [card["id"] for card in after] == ["mb"]
    assert [(row["worker_id"], row["status"]) for row in rows] == [("a", "draining"), ("b", "active")]
    assert (health["replicas_ready"], health["replicas_total"]) == (1, 2)
