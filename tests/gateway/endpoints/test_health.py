"""Health, liveness and readiness of the router (rulings 3)."""

from __future__ import annotations

import pytest

from infera_cli.gateway.endpoints.parts import SourceState
from tests.gateway.endpoints.world import FakeFleet, client, member, parts


async def test_health_shows_the_replica_table() -> None:
    """The body has the keys of replica-router §1.12, and the active workers of infera-wire §3.2."""
    fleet = FakeFleet([member("a", outstanding=2, routed=5), member("b", 1, ready=False)])
    async with client(parts(fleet)) as http:
        answer = await http.get("/health")
    assert answer.status_code == 200
    assert answer.json() == {
        "status": "ok", "replicas_ready": 1, "replicas_total": 2, "active_workers": 1,
        "sessions": 3, "routed": 7, "affinity_hits": 2, "rejected": 1,
        "draining": False, "policy": "session", "version": "1.2.3", "config": "", "stale": False, "sources": [],
        "replicas": [
            {"name": "a", "url": "http://10.0.0.1:8001", "ready": True, "draining": False,
             "breaker": "closed", "outstanding": 2, "routed": 5},
            {"name": "b", "url": "http://10.0.0.1:8002", "ready": False, "draining": False,
             "breaker": "closed", "outstanding": 0, "routed": 0},
        ],
    }  # fmt: skip


@pytest.mark.parametrize("table", [[], [member("a", ready=False)], [member("a", draining=True)]])
async def test_health_is_503_when_files_name_workers_and_none_is_routable(table: list[object]) -> None:
    """Replica files: nothing routable is 503 with `no_replicas`; also `/readyz`, never `/livez`."""
    async with client(parts(FakeFleet(table))) as http:  # type: ignore[arg-type]
        health, ready, live = [await http.get(path) for path in ("/health", "/readyz", "/livez")]
    assert (health.status_code, health.json()["status"]) == (503, "no_replicas")
    assert (ready.status_code, ready.json()) == (503, {"status": "no_replicas"})
    assert (live.status_code, live.json()) == (200, {"status": "ok"})


async def test_health_is_always_200_with_a_discovery_backend() -> None:
    """Discovery: 200 with zero active workers; `/readyz` still says that nothing is routable."""
    async with client(parts(FakeFleet(), source_kind="discovery")) as http:
        health, ready = await http.get("/health"), await http.get("/readyz")
    assert (health.status_code, health.json()["status"], health.json()["active_workers"]) == (200, "ok", 0)
    assert ready.status_code == 503


async def test_open_breaker_or_stale_source_changes_no_status_and_is_shown() -> None:
    """Both are shown in the body and leave every status alone."""
    stale = SourceState(name="replicas.json", stale=True)
    made = parts(FakeFleet([member("a", breaker="open")]), sources=lambda: [stale])
    async with client(made) as http:
        health, ready = await http.get("/health"), await http.get("/readyz")
    assert (health.status_code, ready.status_code) == (200, 200)
    assert health.json()["replicas"][0]["breaker"] == "open"
    assert health.json()["stale"] is True
    assert health.json()["sources"] == [{"name": "replicas.json", "stale": True}]


async def test_draining_router_is_healthy_but_not_ready() -> None:
    """While the router drains, load balancers are told by `/readyz` alone."""
    async with client(parts(FakeFleet([member("a")]), is_draining=lambda: True)) as http:
        health, ready, live = [await http.get(path) for path in ("/health", "/readyz", "/livez")]
    assert (health.status_code, live.status_code) == (200, 200)
    assert (ready.status_code, ready.json()) == (503, {"status": "draining"})


@pytest.mark.parametrize("path", ["/health", "/livez", "/readyz"])
async def test_head_answers_like_get_without_a_body(path: str) -> None:
    """Load balancers that ask by HEAD get the status."""
    async with client(parts(FakeFleet([member("a")]))) as http:
        answer = await http.head(path)
    assert (answer.status_code, answer.content) == (200, b"")
