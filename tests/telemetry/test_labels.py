"""Label values of infera-wire §8: the router that a request took, the target that a pick chose."""

from __future__ import annotations

from dataclasses import replace

import pytest

from infera_cli.telemetry.cache import CacheNumbers, TargetNumbers
from tests.telemetry.world import World, done, member

DURATION = "infera_request_duration_seconds_count"


class Cache:
    """What a cache-aware policy would tell."""

    def __init__(self, *targets: TargetNumbers) -> None:
        self._targets = targets

    def numbers(self) -> CacheNumbers:
        return CacheNumbers(targets=self._targets)


def watch(world: World, cache: Cache, direct: int = 0) -> None:
    world.metrics.watched = replace(world.metrics.watched, cache=cache, direct=lambda: direct)


def test_requests_that_name_their_worker_are_direct() -> None:
    """By `why`; all others are mixed."""
    world = World()
    for why in ("direct", "direct", "session:hit", ""):
        world.bus.emit(done(why=why))
    world.bus.emit(done(why="direct", outcome="5xx", status=500))
    found = world.scrape()
    assert found[f'{DURATION}{{router="direct",outcome="ok"}}'] == 2
    assert found[f'{DURATION}{{router="direct",outcome="5xx"}}'] == 1
    assert found[f'{DURATION}{{router="mixed",outcome="ok"}}'] == 2
    assert found[f'{DURATION}{{router="mixed",outcome="5xx"}}'] == 0


def test_those_inside_are_told_apart_too() -> None:
    """The two add up to what is inside."""
    world = World(inside=5)
    watch(world, Cache(), direct=2)
    found = world.scrape()
    assert found['infera_request_inflight{router="mixed"}'] == 3
    assert found['infera_request_inflight{router="direct"}'] == 2


@pytest.mark.parametrize("names", [("a", "b"), ("w#dp1", "b")])
def test_picks_are_counted_by_target_where_ranks_are_chosen(names: tuple[str, str]) -> None:
    """A worker with ranks has a row each, any other one of its own, whatever it is called."""
    ranked, plain = names
    world = World([member(ranked, routed=7), member(plain, routed=3)])
    watch(world, Cache(
        TargetNumbers(key=f"{ranked}#dp0", worker=ranked, picks=2, active=0, blocks=0),
        TargetNumbers(key=f"{ranked}#dp1", worker=ranked, picks=5, active=0, blocks=0),
        TargetNumbers(key=plain, worker=plain, picks=1, active=0, blocks=0),
    ))  # fmt: skip
    picks = {key: value for key, value in world.scrape().items() if key.startswith("infera_router_picks_total")}
    assert picks == {
        f'infera_router_picks_total{{role="mixed",worker_id="{ranked}#dp0"}}': 2,
        f'infera_router_picks_total{{role="mixed",worker_id="{ranked}#dp1"}}': 5,
        f'infera_router_picks_total{{role="mixed",worker_id="{plain}"}}': 3,
    }
