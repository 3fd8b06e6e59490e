"""Which labels a request leaves on the page, from end to end (infera-wire §4.3, §8)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.gateway.kv.test_serving import DIRECT, LONG
from tests.gateway.kv.worlds import serving
from tests.support import raw
from tests.support.local import LocalServer
from tests.support.stub import StubWorker


@pytest.mark.parametrize("policy", [("--router-policy", "round-robin"), ()])
async def test_a_named_worker_is_reached_directly(tmp_path: Path, policy: tuple[str, ...]) -> None:
    """Counted under `direct`, and told as that; without the header in the same mode: mixed."""
    async with StubWorker("u0") as one, StubWorker("u1") as two, LocalServer(
        [one, two], tmp_path, "--router-mode", "direct", *policy
    ) as server:
        for headers in ({DIRECT: "u1"}, {DIRECT: "u1"}, {}):
            assert (await raw.post(server.url, raw.CHAT, {}, headers)).status == 200
        found = await server.metrics()
        name = "infera_request_duration_seconds_count"
        assert found[f'{name}{{router="direct",outcome="ok"}}'] == 2
        assert found[f'{name}{{router="mixed",outcome="ok"}}'] == 1
        assert found['infera_request_inflight{router="direct"}'] == 0
        rows = (await raw.get(server.url, "/v1/admin/requests")).json()["requests"]
        assert [row["why"] == "direct" for row in rows] == [False, True, True]


async def test_a_pick_is_counted_for_the_rank_that_was_chosen(tmp_path: Path, model: Path) -> None:
    """The request went to rank 1, and its row grows, under the name that the other families have for it."""
    async with serving(tmp_path, model, count=2) as server:
        server.known_to_second_rank(LONG)
        await server.chat(LONG)
        found = await server.metrics()
        picks = {key: value for key, value in found.items() if key.startswith("infera_router_picks_total")}
        assert picks == {
            'infera_router_picks_total{role="mixed",worker_id="u0#dp0"}': 0,
            'infera_router_picks_total{role="mixed",worker_id="u0#dp1"}': 1,
            'infera_router_picks_total{role="mixed",worker_id="u1"}': 0,
        }
        assert 'infera_policy_active_blocks{worker_id="u0#dp1"}' in found
