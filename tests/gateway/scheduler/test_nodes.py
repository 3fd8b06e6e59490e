"""`/status`, drain and restore, probes and reloads (replica-router §2.2, §2.10; rulings 6; R112)."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from infera_cli import __version__
from tests.gateway.scheduler.conftest import KEY, Schedule, Scheduled, sent_body
from tests.support import raw
from tests.support.replies import LAST, chunk, chunked, error, unary, words
from tests.support.stub import Step

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_status_says_what_is_documented(schedule: Schedule) -> None:
    """Version, uptime, and of each node the documented keys; percent with one decimal, null where unknown."""
    setup = await schedule(2)
    page = b"vllm:kv_cache_usage_perc 0.4213\n"
    setup.n1.metrics = [b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(page) + page]
    for _ in range(3):
        await setup.server.chat(node_affinity="n1")
    async with asyncio.timeout(10):
        while (await setup.server.status("n1"))["kv_cache_used_pct"] is None:  # noqa: ASYNC110 - no event for us
            await asyncio.sleep(0.02)
    body = await setup.server.status()
    assert body["scheduler_version"] == __version__
    assert isinstance(body["uptime_seconds"], int)
    assert body["total_requests_routed"] == 3
    first, second = body["nodes"]
    keys = ("id", "hardware", "backend", "status", "requests_in_flight", "requests_total", "draining")
    assert [first[key] for key in keys] == ["n1", "a100-80g", "vllm", "healthy", 0, 3, False]
    assert first["kv_cache_used_pct"] == 42.1
    assert isinstance(first["p99_latency_ms"], int)
    assert (second["requests_total"], second["p99_latency_ms"], second["kv_cache_used_pct"]) == (0, None, None)


async def test_the_metric_is_the_ratio_of_the_same_number(schedule: Schedule) -> None:
    """0.421 where the status says 42.1; families of the server follow on the same page."""
    setup = await schedule(1)
    page = b"vllm:kv_cache_usage_perc 0.421\n"
    setup.n1.metrics = [b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(page) + page]
    async with asyncio.timeout(10):
        while 'inferact_kv_cache_used_ratio{node="n1"}' not in await setup.server.metrics():  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    metrics = await setup.server.metrics()
    assert metrics['inferact_kv_cache_used_ratio{node="n1"}'] == 0.421
    assert metrics['inferact_requests_total{node="n1",model="m"}'] == 0
    assert 'infera_worker_ready{worker_id="n1"}' in metrics


@pytest.mark.parametrize("act", ["drain", "restore"])
async def test_both_routes_need_the_key(schedule: Schedule, act: str) -> None:
    """Missing or wrong: 401; the header or a bearer token does; a node that is not there is told only then."""
    setup = await schedule(1)
    assert (await setup.server.admin("n1", act, None)).status == 401
    assert (await setup.server.admin("n1", act, KEY + "x")).status == 401
    assert (await setup.server.admin("nope", act, None)).status == 401
    assert (await setup.server.admin("n1", act)).status == 200
    assert (await setup.server.admin("nope", act)).status == 404
    bearer = await raw.post(setup.server.url, f"/admin/nodes/n1/{act}", b"", {"Authorization": f"Bearer {KEY}"})
    assert bearer.status == 200


async def test_without_a_configured_key_nobody_may(schedule: Schedule) -> None:
    """403, also from this machine and whatever is shown."""
    setup = await schedule(1, env={})
    assert (await setup.server.admin("n1", "drain", None)).status == 403
    assert (await setup.server.admin("n1", "drain")).status == 403


async def test_the_key_can_stand_in_a_file_of_the_scheduler_file(schedule: Schedule, tmp_path: object) -> None:
    """`scheduler.admin_key_file`, beside the file."""
    (tmp_path / "key").write_text("from-file\n")  # type: ignore[operator]
    setup = await schedule(1, env={}, scheduler={"admin_key_file": "key"})
    assert (await setup.server.admin("n1", "drain", "from-file")).status == 200
    assert (await setup.server.admin("n1", "drain")).status == 401


async def test_the_key_never_reaches_a_node(schedule: Schedule) -> None:
    """A client that sends the admin key along does not give it away."""
    setup = await schedule(1)
    await raw.post(setup.server.url, raw.CHAT, {"model": "m"}, {"X-Inferact-Admin-Key": KEY})
    assert setup.n1.calls[0].get("x-inferact-admin-key") is None


async def test_r112_drain_is_sticky_and_restore_undoes_it(schedule: Schedule) -> None:
    """Twice the same answer; probes do not undo it; others serve; after restore the node has its half again."""
    setup = await schedule(2, "--health-interval", "0.05")
    first, again = [await setup.server.admin("n1", "drain") for _ in range(2)]
    assert first.json() == again.json() == {"id": "n1", "draining": True, "requests_in_flight": 0}
    probes = len(setup.n1.probes)
    async with asyncio.timeout(10):
        while len(setup.n1.probes) < probes + 3:  # noqa: ASYNC110 - probes have no event
            await asyncio.sleep(0.02)
    assert {(await setup.server.chat()).get("x-infera-worker") for _ in range(20)} == {"n2"}
    node = await setup.server.status("n1")
    assert (node["status"], node["draining"]) == ("healthy", True)
    restored = await setup.server.admin("n1", "restore")
    assert restored.json() == {"id": "n1", "draining": False, "requests_in_flight": 0}
    served = Counter([(await setup.server.chat()).get("x-infera-worker") for _ in range(20)])
    assert 8 <= served["n1"] <= 12


async def test_a_custom_node_is_well_when_it_lists_models(schedule: Schedule) -> None:
    """No /health: /v1/models does; a vLLM node without /health is offline after two probes."""
    setup = await schedule(2, "--health-interval", "0.05", nodes={"n1": {"backend": "custom"}})
    for worker in setup.workers:
        worker.health = error(404, {"detail": "Not Found"})
    async with asyncio.timeout(10):
        while (await setup.server.status("n2"))["status"] != "offline":  # noqa: ASYNC110 - no event for us
            await asyncio.sleep(0.02)
    assert (await setup.server.status("n1"))["status"] == "healthy"


async def test_failures_degrade_a_node(schedule: Schedule) -> None:
    """A fifth of at least five requests within a minute."""
    setup = await schedule(1, "--breaker-failure-threshold", "0")
    for _ in range(4):
        await setup.server.chat()
    assert (await setup.server.status("n1"))["status"] == "healthy"
    setup.n1.then(error(500, {"error": "boom"}))
    await setup.server.chat()
    assert (await setup.server.status("n1"))["status"] == "degraded"


async def test_health_and_models_are_as_everywhere(schedule: Schedule) -> None:
    """/health is 200 while a node is usable, /v1/models the union of what they serve."""
    setup = await schedule(2, nodes={"n2": {"models": ["k"]}})
    assert (await raw.get(setup.server.url, "/health")).status == 200
    listed = (await raw.get(setup.server.url, "/v1/models")).json()["data"]
    assert sorted(card["id"] for card in listed) == ["k", "m"]
    for name in ("n1", "n2"):
        await setup.server.admin(name, "drain")
    assert (await raw.get(setup.server.url, "/health")).status == 503


async def test_a_stalled_node_is_shown(schedule: Schedule) -> None:
    """In /status, in the list of workers and as a metric; it gets no new work."""
    setup = await schedule(2)
    server = setup.server._server
    member = server.registry.member("n1")
    assert member is not None
    server.registry.stall(member, True, "nothing moves")
    node = await setup.server.status("n1")
    assert (node["stalled"], node["status"]) == (True, "degraded")
    workers = (await raw.get(setup.server.url, "/v1/workers")).json()["workers"]
    assert [(row["status"], row["stalled"]) for row in workers] == [("stalled", True), ("active", False)]
    assert (await setup.server.metrics())['inferact_node_stalled{node="n1"}'] == 1
    assert {(await setup.server.chat()).get("x-infera-worker") for _ in range(4)} == {"n2"}
    server.registry.stall(member, False)
    assert (await setup.server.status("n1"))["status"] == "healthy"


# ── reload ───────────────────────────────────────────────────────────────────────────────────────────
async def test_a_reload_changes_weights_and_touches_nothing_in_flight(schedule: Schedule) -> None:
    """SIGHUP: the open request ends well, later ones follow the new weights, counters go on."""
    setup = await schedule(2)
    gate = asyncio.Event()
    setup.n1.then([gate, *unary({"ok": "slow"})])
    running = asyncio.create_task(setup.server.chat(node_affinity="n1"))
    await setup.busy(1)
    setup.server.say({"n1": {"weight": 0}})
    await setup.server.reload()
    assert {(await setup.server.chat()).get("x-infera-worker") for _ in range(4)} == {"n2"}
    gate.set()
    assert (await running).json() == {"ok": "slow"}
    assert (await setup.server.status("n1"))["weight"] == 0
    assert (await setup.server.status("n1"))["requests_total"] == 1


async def test_nodes_come_and_go_by_reload(schedule: Schedule) -> None:
    """One that is no longer named finishes what it has; a new name is a new node."""
    setup = await schedule(2)
    gate = asyncio.Event()
    setup.n1.then([gate, *unary({"ok": "slow"})])
    running = asyncio.create_task(setup.server.chat(node_affinity="n1"))
    await setup.busy(1)
    setup.server.say({"n1": {"id": None}})
    await setup.server.reload()
    assert [node["id"] for node in (await setup.server.status())["nodes"]] == ["n2"]
    gate.set()
    assert (await running).json() == {"ok": "slow"}
    setup.server.say({"n1": {"id": "fresh"}})
    await setup.server.reload()
    assert [node["id"] for node in (await setup.server.status())["nodes"]] == ["n2", "fresh"]
    assert (await setup.server.chat(node_affinity="fresh")).status == 200


async def test_a_bad_file_is_refused_and_the_old_one_stays(schedule: Schedule) -> None:
    """The fleet serves on; /health says that the file is stale."""
    setup = await schedule(1)
    setup.server.say(kv_cache={"policy": "lru-ish"})
    await setup.server.reload()
    assert (await setup.server.chat()).status == 200
    health = await setup.server.health()
    assert health["sources"] == [{"name": "scheduler.yaml", "stale": True}]
    setup.server.say(batching={"max_batch_size": 3})
    await setup.server.reload()
    assert (await setup.server.health())["stale"] is False
    assert (await setup.server.status("n1"))["cap"] == 3


async def test_endpoints_with_a_prefix_and_v1(schedule: Schedule) -> None:
    """`http://host:port/llm/v1/` is served below `/llm`."""
    setup = await schedule(1)
    setup.server.say({"n1": {"endpoint": f"http://{setup.n1.address}/llm/v1/"}})
    await setup.server.reload()
    assert (await setup.server.chat()).status == 200
    asked = next(seen for seen in setup.n1.calls if seen.head.method == "POST")
    assert asked.head.path == "/llm/v1/chat/completions"
    assert sent_body(asked)["model"] == "m"


async def off_the_file(setup: Scheduled, client: raw.Client, go_on: asyncio.Event) -> asyncio.Task[raw.Response]:
    """A stream by `client` that delivers and a request that waits, both on n1, which the file no longer names."""
    first, *rest = words(2)
    await setup.server.admin("n2", "drain")
    setup.n1.then([*chunked([first], end=False), go_on, *(chunk(one) for one in rest), LAST], [Step.HANG])
    await client.post(raw.CHAT, {"model": "m", "messages": [], "stream": True})
    assert (await client.head()).get("x-infera-worker") == "n1"
    assert await anext(client.body()) == first
    waiting = asyncio.create_task(setup.server.chat())
    await setup.n1.called(2)
    await setup.server.admin("n2", "restore")
    setup.server.say({"n1": {"id": None}})
    await setup.server.reload()
    return waiting


async def ends_well(client: raw.Client, go_on: asyncio.Event) -> bool:
    """Whether the rest of the stream comes, all of it."""
    go_on.set()
    response = await client.rest()
    return response.whole and response.body == b"".join(words(2))


async def test_r110_what_waits_on_a_dead_node_moves_when_the_file_forgets_it(schedule: Schedule) -> None:
    """It does not even answer a probe: its unanswered request is served elsewhere within 5 s, its stream may end."""
    setup, go_on = await schedule(2, "--health-interval", "60"), asyncio.Event()
    setup.n1.health = [Step.HANG]
    async with await raw.Client.connect(setup.server.url) as client:
        waiting = await off_the_file(setup, client, go_on)
        assert (await asyncio.wait_for(waiting, 5)).get("x-infera-worker") == "n2"
        assert await ends_well(client, go_on)


async def test_what_waits_on_a_live_node_stays_when_the_file_forgets_it(schedule: Schedule) -> None:
    """It still answers probes, so it is left to end what it has, answered or not."""
    setup, go_on = await schedule(2, "--health-interval", "60"), asyncio.Event()
    async with await raw.Client.connect(setup.server.url) as client:
        waiting = await off_the_file(setup, client, go_on)
        asked = len(setup.n1.probes)
        async with asyncio.timeout(5):
            while len(setup.n1.probes) == asked:  # noqa: ASYNC110 - a probe has no event for us
                await asyncio.sleep(0.02)
        assert await ends_well(client, go_on)
        assert (waiting.done(), setup.n2.calls) == (False, [])
        waiting.cancel()
