"""Probes wake in groups, which is what makes many of them cheap."""

from __future__ import annotations

from infera_cli.events import Bus
from infera_cli.fleet.probe import Prober
from infera_cli.fleet.registry import Registry
from infera_cli.routing.sessions import Pins
from infera_cli.routing.types import WorkerSpec
from tests.fleet.virtual_time import VirtualTime


class Fine:
    """A complete answer."""

    status = 200
    body = b'{"object":"list","data":[{"id":"m"}]}'


async def test_probes_are_spread_over_twenty_moments_of_an_interval() -> None:
    """Two hundred workers are probed in groups of about ten, each once an interval."""
    clock, moments = VirtualTime(), []
    registry = Registry(Bus(), pins=Pins(600.0))
    for number in range(200):
        registry.add(WorkerSpec(id=str(number), host="h", port=number + 1, models=("m",)))

    async def fetch(spec: WorkerSpec, path: str, *, timeout: float) -> Fine:  # noqa: ASYNC109 - the interface
        if path == "/health":
            moments.append(round(clock.now, 6))
        return Fine()

    prober = Prober(registry, fetch, interval=5.0, relearn=1e9, clock=clock, sleep=clock.sleep)
    prober.start()
    await clock.advance(20)
    moments.clear()
    await clock.advance(5)
    await prober.stop()
    assert 199 <= len(moments) <= 210
    assert len(set(moments)) <= 21
    assert max(moments.count(moment) for moment in set(moments)) <= 20
