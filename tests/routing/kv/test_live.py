"""The books of `kv-aware` over a fleet that is probed, read again and changes (R094; S52, S53)."""

from __future__ import annotations

from collections import Counter

import pytest
from prometheus_client.parser import text_string_to_metric_families

from infera_cli.blocks import chain
from infera_cli.config.serve import load_serve
from infera_cli.events import Bus, WorkerChanged
from infera_cli.fleet.registry import Registry
from infera_cli.gateway.kv.dispatch import KvDispatcher
from infera_cli.gateway.kv.figures import Picks
from infera_cli.gateway.ports import Lease
from infera_cli.routing.catalogue import POLICIES
from infera_cli.routing.prompt import Prompt
from infera_cli.routing.sessions import Pins
from infera_cli.routing.types import Ask, WorkerSpec
from infera_cli.telemetry.cache import write_cache
from infera_cli.telemetry.page import Page
from infera_cli.wiring.cache import CacheAware
from tests.routing.kv.worlds import SIZE, tokens_of


class Live:
    """Workers w0… of one file, under the policy; `now` is the clock."""

    def __init__(self, count: int) -> None:
        self.now = 0.0
        self.names = [f"w{n}" for n in range(count)]
        bus = Bus()
        self.registry = Registry(bus, pins=Pins(600.0))
        settings = load_serve({"sim": "1", "router_policy": "kv-aware"}, {}).settings
        self.cache = CacheAware(settings, self.registry)
        bus.subscribe(self.cache.on_event, WorkerChanged)
        self.read_again()
        aware = self.cache.aware
        dispatcher = KvDispatcher(
            self.registry, POLICIES["kv-aware"], slack=8, clock=lambda: self.now, scorer=aware
        )
        self.dispatcher = dispatcher.over(aware, Picks())

    def read_again(self, *names: str) -> None:
        """The file is read, and names these workers, else all."""
        specs = [
            WorkerSpec(id=name, host=name, port=1, kv_block_size=SIZE, engine="vllm", source="file")
            for name in names or self.names
        ]
        self.registry.replace_source("file", specs)

    def probe(self) -> None:
        """One is found unwell, and well again; the others are well."""
        for number, member in enumerate(self.registry.members()):
            while member.ready and not number:
                self.registry.probed(member, False, self.now)
            while not member.ready:
                self.registry.probed(member, True, self.now)
            self.registry.probed(member, True, self.now)

    def send(self, tokens: list[int]) -> Lease:
        chains = {kind: chain(tokens, kind[1]) for kind in self.cache.book.kinds()}
        prompt = Prompt(chains=chains, lengths={"vllm": len(tokens)})
        return self.dispatcher.route(Ask(work=prompt), self.now)[1]

    def store(self, name: str, tokens: list[int]) -> None:
        """Its engine announces all blocks."""
        member = self.registry.member(name)
        assert member is not None
        (slot,) = self.cache.slots(member.worker, None)
        self.cache.index.store(slot, None, list(chain(tokens, SIZE)), tokens, SIZE)

    def shown(self, metric: str) -> dict[str, float]:
        """The metric as `/metrics` has it, by worker."""
        page = Page(openmetrics=False)
        write_cache(page, self.cache.numbers())
        families = text_string_to_metric_families(page.text())
        samples = [sample for family in families for sample in family.samples if sample.name == metric]
        return {sample.labels["worker_id"]: sample.value for sample in samples}

    def active(self) -> dict[str, float]:
        return self.shown("infera_policy_active_blocks")


@pytest.mark.parametrize("tick", ["probe", "read_again", "both"])
def test_r094_neither_probes_nor_refreshes_forget_what_is_in_flight(tick: str) -> None:
    """No hits, a request each 0.1 s that takes 1 s, something due each second: loads stay true and spread."""
    live = Live(3)
    open_now: list[tuple[float, str, Lease]] = []
    for step in range(150):
        live.now = step / 10
        for at, _, lease in [one for one in open_now if one[0] <= live.now]:
            lease.settle(at)
        open_now = [one for one in open_now if one[0] > live.now]
        if step % 10 == 5:
            if tick != "read_again":
                live.probe()
            if tick != "probe":
                live.read_again()
        lease = live.send(tokens_of(6, step))
        open_now.append((live.now + 1.0, lease.worker.id, lease))
        held = Counter(name for _, name, _ in open_now)
        assert max(held.values()) - min(held[name] for name in live.names) <= 2
        for member in live.registry.members():
            assert member.outstanding == held[member.id]
        assert live.active() == {name: 6.0 * held[name] for name in live.names}


def test_s52_the_gauge_of_active_blocks_rises_and_falls() -> None:
    """With every request that begins and ends; blocks that two of them share count once."""
    live = Live(1)
    assert live.active() == {"w0": 0.0}
    shared = tokens_of(4)
    first = live.send([*shared, *tokens_of(1, 1)])
    assert live.active() == {"w0": 5.0}
    second = live.send([*shared, *tokens_of(2, 2)])
    assert live.active() == {"w0": 7.0}
    first.settle(1.0)
    assert live.active() == {"w0": 6.0}
    second.settle(2.0)
    assert live.active() == {"w0": 0.0}


def test_s53_a_removed_worker_leaves_no_series() -> None:
    """Nothing on the page is of it any more, also when its last request ends later; another one of its name is new."""
    live = Live(2)
    leases = [live.send(tokens_of(5, n)) for n in range(4)]
    for name in live.names:
        live.store(name, tokens_of(3, 9))
    metrics = ("infera_policy_active_blocks", "infera_policy_cache_view_size", "infera_kv_events_received_total",
               "infera_kv_events_unused_total", "infera_kv_stream_total")  # fmt: skip
    assert all(set(live.shown(metric)) == {"w0", "w1"} for metric in metrics)
    live.read_again("w0")
    for lease in leases:
        assert all(set(live.shown(metric)) == {"w0"} for metric in metrics)
        lease.settle(1.0)
    assert live.active() == {"w0": 0.0}
    assert live.shown("infera_policy_cache_view_size") == {"w0": 3.0}
    live.read_again()
    assert live.shown("infera_policy_cache_view_size") == {"w0": 3.0, "w1": 0.0}
