"""Breakers in the live fleet (infera-wire §4.9)."""

from __future__ import annotations

from infera_cli.routing.health import Score
from tests.fleet.fleets import Fleet, broken, spec


def test_an_open_breaker_takes_a_worker_out_for_its_cooldown() -> None:
    """After three faults nothing goes there for five seconds, then one trial at a time."""
    fleet = broken("a", "b")
    assert not fleet["a"].routable
    assert fleet.serve(10) == {"b": 10}
    fleet.now = 5.0
    trial = next(lease for lease in (fleet.send(), fleet.send()) if lease.worker.id == "a")
    assert fleet.serve(10) == {"b": 10}
    fleet.registry.score(trial.worker, Score.SUCCESS, 5.5)
    assert fleet.serve(10) == {"a": 5, "b": 5}
    assert [e.detail for e in fleet.events if e.what == "breaker"] == ["open", "half_open", "closed"]


def test_s34_a_neutral_trial_lets_the_next_one_try() -> None:
    """A 4xx frees the trial's slot and leaves the breaker half open."""
    fleet = broken("a", "b")
    fleet.now = 5.0
    fleet.until("a")
    fleet.score("a", Score.NEUTRAL)
    assert fleet["a"].breaker == "half_open"
    fleet.until("a")
    assert not fleet["a"].routable


def test_a_trial_never_scored_blocks_for_a_minute_at_most() -> None:
    """The claim expires after 60 s, seen by one comparison when the next request looks."""
    fleet = broken("a", "b")
    fleet.now = 5.0
    fleet.until("a")
    fleet.now = 64.9
    assert fleet.serve(4) == {"b": 4}
    fleet.now = 65.0
    assert fleet.serve(4)["a"] == 1


def test_where_every_breaker_is_open_all_are_used() -> None:
    """A fleet of which everybody failed is not shut: all candidates are used, readiness still counts."""
    fleet = broken("a", "b", "c")
    for name in ("b", "c"):
        for _ in range(3):
            fleet.score(name, Score.FAULT)
    fleet.score("c", Score.UNREACHABLE)
    assert fleet.serve(10) == {"a": 5, "b": 5}
    assert [c.dropped for c in fleet.registry.explain(None, fleet.now)] == [None, None, "not ready"]


def test_r100_a_worker_that_fails_every_call_gets_one_trial_a_cooldown() -> None:
    """Fifty requests in thirty seconds: three faults, then one trial each time the cooldown is over."""
    fleet = Fleet("bad", "good", policy="round-robin")
    tried = 0
    for n in range(50):
        fleet.now = n * 30 / 50
        lease = fleet.send()
        if lease.worker.id == "bad":
            tried += 1
            fleet.score("bad", Score.FAULT)
        lease.settle(fleet.now)
    assert tried == 5
    assert fleet["bad"].breaker_trips == 3


def test_a_quiet_router_shows_the_breaker_as_it_is() -> None:
    """Sweeps and probes move an open breaker on, without a request."""
    fleet = broken("a", "b")
    fleet.registry.sweep(6.0)
    assert (fleet["a"].breaker, fleet["a"].routable) == ("half_open", True)


def test_an_attempt_on_a_worker_that_left_is_nobody_s_business() -> None:
    """Late scores and bytes of a removed worker change nothing and raise nothing."""
    fleet = Fleet("a", "b")
    gone = fleet["a"].worker
    fleet.registry.remove("a")
    fleet.registry.add(spec("a"))
    for _ in range(3):
        fleet.registry.score(gone, Score.FAULT, 0.0)
    fleet.registry.score(gone, Score.UNREACHABLE, 0.0)
    fleet.registry.alive(gone, 1.0)
    assert (fleet["a"].breaker, fleet["a"].ready, fleet["a"].last_alive) == ("closed", True, -1.0)
