"""Choosing by cost and by prefixes (replica-router §2.5, §2.6, §2.9; R178)."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from infera_cli.errors import AllFull, NoRoutableWorker
from infera_cli.protocol.hardware import HARDWARE
from infera_cli.routing.catalogue import POLICIES
from infera_cli.routing.cost import Speed
from infera_cli.routing.ledger import Ledger
from infera_cli.routing.nodes import Measured, NodeProfile, Nodes, Role, Rules
from infera_cli.routing.pipeline import decide
from infera_cli.routing.scheduler import CostScorer
from infera_cli.routing.sessions import Pins
from infera_cli.routing.types import Ask, Decision, Pool, View, Worker, WorkerSpec
from infera_cli.routing.work import Work


def speed(name: str) -> Speed:
    row = HARDWARE[name]
    return Speed.of(row.tflops, row.bandwidth_gbps, row.vram_gb)


class Fleet:
    """Nodes `n0`, `n1`, … on that hardware."""

    def __init__(
        self, *hardware: str, policy: str = "cost", rules: Rules | None = None, weights: dict[int, float] | None = None,
        roles: dict[int, Role] | None = None, cap: int | None = None,
    ) -> None:  # fmt: skip
        self.ledger = Ledger()
        profiles = {
            f"n{at}": NodeProfile(
                speed=speed(name), weight=(weights or {}).get(at, 1.0), role=(roles or {}).get(at, "both"), cap=cap)
            for at, name in enumerate(hardware)
        }
        specs = [WorkerSpec(id=f"n{at}", host="h", port=at) for at in range(len(hardware))]
        self.workers = [Worker(spec, self.ledger.open()) for spec in specs]
        self.nodes = Nodes(NodeProfile(speed=speed("a6000")), profiles, rules)
        self.policy = POLICIES[policy]
        self.scorer = CostScorer(self.nodes, self.policy, random.Random(1))
        self.pins = Pins(600)
        self.turn = 0
        self.now = 0.0

    def load(self, at: int, count: int) -> None:
        for _ in range(count):
            self.ledger.reserve(self.workers[at])

    def decide(self, work: Work | None = None, *, out: tuple[int, ...] = (), **more: Any) -> Decision:
        work = work if work is not None else Work(prompt=1000, output=200)
        work.known = self.nodes.residency.known(work.chain)
        places = [at for at in range(len(self.workers)) if at not in out]
        pool = Pool([self.workers[at] for at in places], places, len(self.workers))
        view = View(pool, self.ledger.outstanding, self.pins, self.turn)
        ask = Ask(work=work, session=more.pop("session", None), tried=more.pop("tried", ()))
        return decide(ask, view, self.policy, now=self.now, dice=random.Random(1), slack=8, scorer=self.scorer, **more)

    def pick(self, work: Work | None = None, **more: Any) -> str:
        return self.decide(work, **more).worker.id

    def send(self, work: Work | None = None) -> str:
        decision = self.decide(work)
        self.ledger.reserve(decision.worker)
        self.turn = decision.turn if decision.turn is not None else self.turn
        return decision.worker.id


# ── cost ─────────────────────────────────────────────────────────────────────────────────────────────
def test_the_fastest_idle_node_serves() -> None:
    """An idle H100 is cheaper than an idle A100, and that than a 4090."""
    assert Fleet("rtx-4090", "h100-80g", "a100-80g").pick() == "n1"
    assert Fleet("rtx-4090", "a100-40g", "a100-80g").pick() == "n2"


def test_the_h100_is_left_alone_at_twenty_two() -> None:
    """With about 22 in flight it costs as much as an idle A100-80G."""
    fleet = Fleet("h100-80g", "a100-80g")
    fleet.load(0, 21)
    assert fleet.pick() == "n0"
    fleet.load(0, 3)
    assert fleet.pick() == "n1"


def test_within_one_percent_the_fewest_in_flight_wins_then_rotation() -> None:
    """Equal nodes are used in turn; a busier one is not."""
    fleet = Fleet("a6000", "a6000", "a6000")
    assert [fleet.send() for _ in range(6)] == ["n0", "n1", "n2", "n0", "n1", "n2"]
    tied = Fleet("a6000", "a6000", weights={0: 0.995})
    tied.turn = 1
    assert tied.pick() == "n1"
    tied.turn = 0
    assert tied.pick() == "n0"


def test_weight_nought_serves_only_by_affinity() -> None:
    """Such a node is no candidate, unless the request names it."""
    fleet = Fleet("h100-80g", "a6000", weights={0: 0.0})
    assert fleet.pick() == "n1"
    assert fleet.pick(Work(affinity="n0")) == "n0"
    with pytest.raises(NoRoutableWorker):
        fleet.pick(out=(1,))


def test_affinity_never_leads_elsewhere() -> None:
    """A named node that cannot be used is no reason to use another."""
    fleet = Fleet("h100-80g", "a6000")
    assert fleet.pick(Work(affinity="n1")) == "n1"
    with pytest.raises(NoRoutableWorker):
        fleet.pick(Work(affinity="n1"), out=(1,))


@pytest.mark.parametrize("trouble", ["none", "pressure", "failures", "out of memory"])
@pytest.mark.parametrize("open_requests", [0, 7, 40, 300])
@pytest.mark.parametrize("held", [0, 300, 1000])
def test_what_decides_is_what_is_explained(open_requests: int, held: int, trouble: str) -> None:
    """The short way of a decision, of calm nodes and others, gives the cost that `infera explain` shows."""
    fleet = Fleet("h100-80g", "a6000", policy="prefix-aware", weights={1: 0.7})
    node = fleet.nodes.of(fleet.workers[1])
    fleet.load(1, open_requests)
    if trouble == "pressure":
        fleet.nodes.measure(fleet.workers[1], Measured(at=0.0, kv_used=0.97))
    for _ in range(5 if trouble == "failures" else 0):
        node.outcome(False, 0.0)
    if trouble == "out of memory":
        node.out_of_memory(1000, 0.0)
    assert (node.calm is None) is (trouble != "none")
    work = Work(prompt=1000, output=200, chain=(5,), sizes=(held,))
    if held:
        fleet.nodes.residency.learn(1, work)
    work.known = fleet.nodes.residency.known(work.chain)
    pool = Pool(fleet.workers)
    outstanding = fleet.ledger.outstanding
    shown = fleet.scorer.terms(Ask(work=work), pool, outstanding, 1.0)
    totals = fleet.scorer._totals(work, fleet.nodes.row(pool), work.known, outstanding, 1.0, "both")
    assert totals == pytest.approx([parts["cost"] for _refused, parts in shown])


def test_a_node_is_calm_again_when_its_trouble_is_over() -> None:
    """Failures that are a minute old, a cap that has grown back and a cache that emptied count no more."""
    fleet = Fleet("h100-80g", cap=4)
    node = fleet.nodes.of(fleet.workers[0])

    def is_calm() -> bool:
        return node.calm is not None

    node.outcome(False, 0.0)
    assert not is_calm()
    assert not node.degraded(61.0)
    node.outcome(True, 61.0)
    assert is_calm()
    node.out_of_memory(4, 100.0)
    assert [node.cap(now) for now in (100.0, 131.0, 159.9)] == [2, 3, 3]
    assert not is_calm()
    assert node.cap(160.0) == 4
    assert is_calm()
    for _ in range(3):
        fleet.nodes.measure(fleet.workers[0], Measured(at=200.0, kv_used=0.99))
    assert not is_calm()
    fleet.nodes.measure(fleet.workers[0], Measured(at=205.0, kv_used=0.1))
    assert is_calm()


def test_degraded_nodes_cost_twice_and_pressure_counts() -> None:
    """A full cache or a cool-down sends work to the next best."""
    fleet = Fleet("h100-80g", "a100-80g")
    fleet.nodes.of(fleet.workers[0]).out_of_memory(1, 0.0)
    assert fleet.pick() == "n1"
    fleet.now = 31.0
    assert fleet.pick() == "n0"
    fleet.nodes.measure(fleet.workers[0], Measured(at=31.0, kv_used=1.0))
    assert fleet.pick() == "n1"


def test_nothing_is_sent_to_a_node_at_its_cap() -> None:
    """Full nodes are left out; when all are full the request waits."""
    fleet = Fleet("h100-80g", "a6000", cap=2)
    assert [fleet.send() for _ in range(4)] == ["n0", "n0", "n1", "n1"]
    with pytest.raises(AllFull):
        fleet.decide()
    with pytest.raises(AllFull):
        fleet.decide(Work(affinity="n0"))


@pytest.mark.parametrize("policy", ["session", "round-robin", "least-loaded", "random", "power-of-two"])
def test_other_policies_keep_to_caps_too(policy: str) -> None:
    """Under every policy a full node gets nothing, not even by a pin."""
    fleet = Fleet("h100-80g", "a6000", "a6000", policy=policy, cap=3)
    fleet.load(0, 3)
    fleet.pins.pin("s", "n0", 0.0)
    assert {fleet.pick(session="s") for _ in range(20)} <= {"n1", "n2"}
    fleet.load(1, 3)
    fleet.load(2, 3)
    with pytest.raises(AllFull):
        fleet.decide(session="s")


def test_r178_a_burst_is_spread_although_metrics_say_nobody_works() -> None:
    """Forty requests before any scrape: each of two equal workers gets 18 to 22."""
    fleet = Fleet("a6000", "a6000")
    for worker in fleet.workers:
        fleet.nodes.measure(worker, Measured(at=0.0, kv_used=0.0, waiting=0))
    sent = Counter(fleet.send() for _ in range(40))
    assert all(18 <= count <= 22 for count in sent.values())


def test_after_an_out_of_memory_the_roomiest_node_is_preferred() -> None:
    """VRAM · (1 − used), whatever it costs."""
    fleet = Fleet("rtx-4090", "a100-40g", "a100-80g")
    fleet.nodes.measure(fleet.workers[2], Measured(at=0.0, kv_used=0.6))
    assert fleet.pick(Work(roomiest=True), tried=(fleet.workers[0],)) == "n1"
    fleet.nodes.measure(fleet.workers[2], Measured(at=0.0, kv_used=0.4))
    assert fleet.pick(Work(roomiest=True), tried=(fleet.workers[0],)) == "n2"


# ── prefixes ─────────────────────────────────────────────────────────────────────────────────────────
CONVERSATION = Work(prompt=1000, output=20, chain=(1, 2, 3), sizes=(200, 500, 1000), pinned=1)


def test_the_holder_wins_unless_it_costs_half_as_much_again() -> None:
    """Load beyond 1.5 times the cheapest sends the conversation elsewhere."""
    fleet = Fleet("a6000", "a6000", policy="prefix-aware")
    fleet.nodes.residency.learn(1, Work(chain=(1, 2), sizes=(200, 500)))
    decision = fleet.decide(CONVERSATION)
    assert (decision.worker.id, decision.why) == ("n1", "prefix-aware:prefix")
    fleet.load(1, 4)
    assert fleet.pick(CONVERSATION) == "n1"
    fleet.load(1, 60)
    decision = fleet.decide(CONVERSATION)
    assert (decision.worker.id, decision.why) == ("n0", "prefix-aware:spread")


def test_the_longest_known_prefix_leads() -> None:
    """Who holds two turns is preferred to who holds the system prompt alone."""
    fleet = Fleet("a6000", "a6000", "a6000", policy="prefix-aware")
    for at in (0, 2):
        fleet.nodes.residency.learn(at, Work(chain=(1,), sizes=(200,)))
    fleet.nodes.residency.learn(1, Work(chain=(1, 2), sizes=(200, 500)))
    assert fleet.pick(CONVERSATION) == "n1"


def test_holders_of_the_same_prefix_share_the_work() -> None:
    """One system prompt known everywhere makes nobody hot."""
    fleet = Fleet("a6000", "a6000", policy="prefix-aware")
    for at in (0, 1):
        fleet.nodes.residency.learn(at, CONVERSATION)
    assert Counter(fleet.send(CONVERSATION) for _ in range(10)) == {"n0": 5, "n1": 5}


def test_lru_has_no_prefix_term() -> None:
    """`cost` does not look at what a node holds."""
    fleet = Fleet("a6000", "a6000", policy="cost")
    fleet.nodes.residency.learn(1, CONVERSATION)
    assert fleet.pick(CONVERSATION) == "n0"
    assert fleet.decide(CONVERSATION, explain=True).candidates[1].terms["cached_tokens"] == 0


def test_adaptive_follows_prefixes_only_while_they_are_often_known() -> None:
    """As lru at first, as prefix-aware above 40 %, and it says which."""
    fleet = Fleet("a6000", "a6000", policy="adaptive")
    fleet.nodes.residency.learn(1, CONVERSATION)
    decision = fleet.decide(CONVERSATION)
    assert (decision.worker.id, decision.why) == ("n0", "adaptive:lru")
    for _ in range(20):
        fleet.scorer.switch.note(True, 0.0)
    decision = fleet.decide(CONVERSATION)
    assert (decision.worker.id, decision.why) == ("n1", "adaptive:prefix")


# ── split ────────────────────────────────────────────────────────────────────────────────────────────
LONG, SHORT = Work(prompt=1600, output=200), Work(prompt=1599, output=200)


def test_long_prompts_with_short_answers_go_to_the_prefill_pool() -> None:
    """P ≥ 8·O belongs to the prefill pool, all else to the decode pool."""
    fleet = Fleet("a6000", "h100-80g", rules=Rules(split=True), roles={0: "prefill", 1: "decode"})
    assert (fleet.decide(LONG).worker.id, fleet.decide(LONG).why) == ("n0", "cost:prefill-pool")
    assert (fleet.decide(SHORT).worker.id, fleet.decide(SHORT).why) == ("n1", "cost:decode-pool")


def test_each_pool_is_compared_by_its_own_term() -> None:
    """Prefill nodes by compute, decode nodes by bandwidth."""
    fleet = Fleet("a6000", "rtx-4090", "a100-40g", rules=Rules(split=True))
    by_prefill = fleet.decide(LONG, explain=True).candidates
    assert all(candidate.terms["step"] == 0 for candidate in by_prefill)
    by_decode = fleet.decide(SHORT, explain=True).candidates
    assert all(candidate.terms["prefill"] == 0 for candidate in by_decode)


def test_an_empty_pool_falls_back_to_any_node_and_says_so() -> None:
    """A pool without a usable node is no reason to refuse."""
    fleet = Fleet("a6000", "h100-80g", rules=Rules(split=True), roles={0: "prefill", 1: "decode"})
    decision = fleet.decide(LONG, out=(0,))
    assert (decision.worker.id, decision.why) == ("n1", "cost:no-prefill-pool")


# ── explaining ───────────────────────────────────────────────────────────────────────────────────────
def test_an_explanation_has_every_part_of_the_cost() -> None:
    """Seconds, tokens and factors of each candidate, and why one is left out."""
    fleet = Fleet("a100-80g", "a6000", cap=1)
    fleet.load(0, 1)
    first, second = fleet.decide(explain=True).candidates
    assert first.dropped == "at its cap of 1"
    assert second.dropped is None
    assert second.terms["prefill"] == pytest.approx(0.20672, abs=1e-5)
    assert second.terms["step"] == pytest.approx(0.029762, abs=1e-6)
    assert second.terms["cost"] == pytest.approx(6.1591, abs=1e-4)
    assert (second.terms["prompt_tokens"], second.terms["output_tokens"]) == (1000, 200)
    assert first.terms["queue"] == pytest.approx(first.terms["service"])
