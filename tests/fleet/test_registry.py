"""The live registry: who is in it, who is ready, what is told of it (replica-router §1.7, §1.10)."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infera_cli.errors import NoRoutableWorker, NotFound
from infera_cli.fleet.member import Member
from infera_cli.gateway import ports
from infera_cli.routing.health import Score
from tests.fleet.fleets import Fleet, broken, spec


def test_the_registry_is_what_the_gateway_asks_for() -> None:
    """Registry, Member and Lease fulfil the gateway's protocols, also for the type checker."""
    fleet = Fleet("a")
    registry: ports.Fleet = fleet.registry
    member: ports.Member = fleet["a"]
    lease: ports.Lease = fleet.send()
    assert (registry.members(), lease.worker) == ((member,), member.worker)
    assert (member.ready, member.draining, member.owned, member.routable) == (True, False, False, True)
    assert (member.outstanding, member.routed, member.failures) == (1, 1, 0)
    assert (member.breaker, member.breaker_trips, member.models) == ("closed", 0, ())


def test_workers_are_listed_in_the_order_they_came() -> None:
    """Table order is the order of adding; each arrival is told with its URL."""
    fleet = Fleet("a", "b")
    assert fleet.names() == ["a", "b"]
    assert fleet.told("added") == ["a", "b"]
    assert fleet.events[0].detail == "http://a:8001"


def test_a_static_worker_starts_ready_a_launched_one_does_not() -> None:
    """Only what was launched has to prove itself first."""
    fleet = Fleet("static")
    launched = fleet.registry.add(spec("launched"), ready=False, owned=True)
    assert launched is not None
    assert (fleet["static"].ready, launched.ready, launched.owned) == (True, False, True)
    assert fleet.serve(10) == {"static": 10}
    fleet.probe("launched", ok=True)
    assert fleet.serve(10) == {"static": 5, "launched": 5}


def test_a17_removing_a_worker_closes_the_gap() -> None:
    """Places close up and the rotation counter is taken modulo the new count."""
    fleet = Fleet("a", "b", "c")
    assert [fleet.visit() for _ in range(2)] == ["a", "b"]
    fleet.registry.remove("a")
    assert [fleet.visit() for _ in range(4)] == ["b", "c", "b", "c"]


def test_removal_drops_pins_and_lets_open_leases_settle() -> None:
    """A worker that left has no pins; its open requests end as ever and touch nobody else."""
    fleet = Fleet("a", "b")
    lease = fleet.send("s")
    assert lease.worker.id == "a"
    fleet.registry.remove("a")
    assert fleet.registry.counters()["sessions"] == 0
    again = fleet.registry.add(spec("a"))
    lease.settle(9.0)
    assert again is not None
    assert (again.outstanding, again.routed, fleet.pins.find("s", 9.0)) == (0, 0, None)


def test_r074_a_worker_that_left_and_came_back_keeps_a_true_count() -> None:
    """Removing and adding a worker during a request never makes a count negative; the spread stays even."""
    fleet = Fleet("a", "b", "c", "d")
    lease = fleet.send()
    fleet.registry.remove(lease.worker.id)
    fleet.registry.add(spec("a"))
    lease.settle(1.0)
    with pytest.raises(RuntimeError):
        lease.settle(2.0)
    served = fleet.serve(200)
    assert min(member.outstanding for member in fleet.registry.members()) == 0
    assert all(40 <= count <= 60 for count in served.values())
    assert len(served) == 4


def test_removing_an_unknown_worker_is_not_found() -> None:
    """The error names the worker."""
    with pytest.raises(NotFound, match="'nope'"):
        Fleet("a").registry.remove("nope")


def test_r175_a_removed_worker_is_gone_from_every_listing() -> None:
    """Members, counters and explanations speak only of workers in the table (S53)."""
    fleet = Fleet("a", "b")
    fleet.serve(4)
    lease = fleet.send()
    fleet.registry.remove("a")
    assert fleet.names() == ["b"]
    assert fleet.registry.counters()["routed"] == 2
    assert [c.worker for c in fleet.registry.explain(None, 0.0)] == ["b"]
    assert fleet.registry.member("a") is None
    lease.settle(0.0)


def test_a19_two_strikes_out_one_success_in() -> None:
    """Pins survive while a worker is not ready, and each change is told once."""
    fleet = Fleet("a", "b")
    fleet.send("s").settle(0.0)
    fleet.probe("a", ok=False)
    assert fleet.routable() == ["a", "b"]
    fleet.probe("a", ok=False)
    fleet.probe("a", ok=False)
    assert fleet.routable() == ["b"]
    assert fleet.pins.find("s", 0.0) == "a"
    fleet.probe("a", ok=True)
    assert (fleet["a"].ready, fleet["a"].failures) == (True, 0)
    assert (fleet.told("not_ready"), fleet.told("ready")) == (["a"], ["a"])


def test_b25_a_slow_probe_of_a_removed_worker_does_not_promote_its_successor() -> None:
    """A result belongs to the member that was probed."""
    fleet = Fleet("a")
    probed = fleet["a"]
    fleet.registry.remove("a")
    successor = fleet.registry.add(spec("a"), ready=False)
    fleet.registry.probed(probed, True, 1.0)
    fleet.registry.models_learned(probed, [{"id": "m"}])
    assert successor is not None
    assert (successor.ready, successor.models) == (False, ())


def test_b40_only_an_unreachable_worker_is_out_at_once() -> None:
    """Time-outs, local limits and 5xx leave readiness alone; a refused connection does not."""
    fleet = Fleet("a", "b")
    fleet.score("a", Score.NEUTRAL)
    fleet.score("a", Score.FAULT)
    assert fleet.routable() == ["a", "b"]
    fleet.score("a", Score.UNREACHABLE)
    assert fleet.routable() == ["b"]
    assert fleet.serve(4) == {"b": 4}


def test_arriving_bytes_keep_a_worker_in() -> None:
    """Probes that fail between moving streams take nobody out (rulings 12)."""
    fleet = Fleet("a")
    for _ in range(3):
        fleet.probe("a", ok=False)
        fleet.registry.alive(fleet["a"].worker, 7.0)
    assert fleet["a"].ready
    assert fleet["a"].last_alive == 7.0


def test_a16_draining_drops_pins_at_once() -> None:
    """The next turn of a session goes elsewhere, although its TTL is not over."""
    fleet = Fleet("a", "b")
    open_turn = fleet.send("s")
    fleet.registry.drain("a")
    open_turn.settle(1.0)
    assert fleet.registry.counters()["sessions"] == 0
    assert fleet.visit("s") == "b"


def test_r112_drain_is_sticky_and_idempotent() -> None:
    """Drained twice is drained once; probes do not undo it; restore does."""
    fleet = Fleet("n1", "n2")
    assert fleet.registry.drain("n1") is fleet.registry.drain("n1")
    for ok in (True, False, False, True):
        fleet.probe("n1", ok=ok)
    assert fleet.serve(20) == {"n2": 20}
    fleet.registry.restore("n1")
    fleet.registry.restore("n1")
    assert 8 <= fleet.serve(20)["n1"] <= 12
    assert (fleet.told("draining"), fleet.told("restored")) == (["n1"], ["n1"])
    for verb in (fleet.registry.drain, fleet.registry.restore):
        with pytest.raises(NotFound, match="nope"):
            verb("nope")


def test_r112_with_the_last_worker_drained_nothing_is_routable() -> None:
    """New requests find nobody, an open one ends as ever."""
    fleet = Fleet("n1")
    lease = fleet.send()
    fleet.registry.drain("n1")
    with pytest.raises(NoRoutableWorker, match="only worker is draining"):
        fleet.send()
    lease.settle(1.0)
    assert fleet["n1"].outstanding == 0


def test_r064_a_worker_that_joins_moves_no_session() -> None:
    """300 sessions over three workers stay where they are when a fourth comes."""
    fleet = Fleet("a", "b", "c")
    homes = {f"s{n}": fleet.visit(f"s{n}") for n in range(300)}
    fleet.registry.add(spec("d"))
    assert {session: fleet.visit(session) for session in homes} == homes
    assert fleet.registry.counters()["affinity_hits"] == 300


def test_r065_a_pinned_session_survives_its_worker() -> None:
    """Refused by its worker, a session goes to one other and stays there."""
    fleet = Fleet("a", "b", "c")
    assert fleet.visit("s1") == "a"
    fleet.score("a", Score.UNREACHABLE)
    served = [fleet.visit("s1") for _ in range(11)]
    assert len(set(served)) == 1
    assert served[0] != "a"


def test_explain_gives_every_worker_its_reason() -> None:
    """In table order, with open requests; no reason means it may be chosen. Asking changes nothing."""
    fleet = Fleet("ok", "drained", "down", "broken")
    fleet.registry.add(spec("other", models=("y",)))
    lease = fleet.send()
    fleet.registry.drain("drained")
    fleet.score("down", Score.UNREACHABLE)
    for _ in range(3):
        fleet.score("broken", Score.FAULT)
    before = fleet.events[:]
    told = {c.worker: (c.outstanding, c.dropped) for c in fleet.registry.explain("x", 0.0)}
    assert told == {
        "ok": (1, None), "drained": (0, "draining"), "down": (0, "not ready"), "broken": (0, "breaker open"),
        "other": (0, "serves other models"),
    }  # fmt: skip
    assert fleet.events == before
    lease.settle(0.0)


def test_explain_tells_of_a_trial_under_way() -> None:
    """A half-open worker whose trial is out is not to be had."""
    fleet = broken("a", "b")
    fleet.now = 5.0
    fleet.until("a")
    assert "trial is under way" in str(fleet.registry.explain(None, 5.0)[0].dropped)


def test_the_counters() -> None:
    """Sessions pinned, requests routed, hits, and what found nobody."""
    fleet = Fleet("a", "b")
    for session in ("s", "t", "s", None):
        fleet.send(session)
    fleet.registry.reject()
    assert fleet.registry.counters() == {"sessions": 2, "routed": 4, "affinity_hits": 1, "rejected": 1}
    assert fleet.registry.sweep(9999.0) == 0, "their requests are open"


def test_a_sweep_forgets_expired_pins() -> None:
    """Sessions that were silent for longer than the TTL are forgotten."""
    fleet = Fleet("a")
    fleet.visit("s")
    assert fleet.registry.sweep(3601.0) == 1
    assert fleet.registry.counters()["sessions"] == 0


steps = st.lists(
    st.tuples(
        st.sampled_from([
            "add", "remove", "drain", "restore", "ok", "fail", "send", "settle", "success", "fault",
            "neutral", "unreachable", "reload", "learn", "wait",
        ]),
        st.sampled_from("abcd"),
    ),
    max_size=50,
)  # fmt: skip


@given(steps)
def test_whatever_happens_the_view_is_true(script: Sequence[tuple[str, str]]) -> None:
    """In every history: exactly the available workers are candidates, and counts are exact."""
    fleet = Fleet("a", "b")
    leases: list[ports.Lease] = []
    for what, name in script:
        fleet.step(what, name, leases)
        members = fleet.registry.members()
        available = [m for m in members if m.available]
        for member in members:
            assert member.outstanding == sum(lease.worker is member.worker for lease in leases)
        if not available:
            with pytest.raises(NoRoutableWorker):
                fleet.registry.view(None, fleet.now)
            continue
        view = fleet.registry.view(None, fleet.now)
        allowed = [m for m in available if m.circuit.allows(fleet.now)] or available
        assert list(view.pool.workers) == [m.worker for m in allowed]
        assert view.pool.size == len(members)
        assert [members[place].worker for place in view.pool.places] == list(view.pool.workers)
        assert 0 <= view.turn < view.pool.size


def test_members_are_compared_by_identity() -> None:
    """Two of one name are two."""
    fleet = Fleet("a")
    old: Member = fleet["a"]
    fleet.registry.remove("a")
    fleet.registry.add(spec("a"))
    assert old != fleet["a"]
    assert repr(old) == "Member('a')"
