"""Reserve, settle, and numbers of workers that come and go (design.md §4)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from infera_cli.routing.ledger import Lease, Ledger
from infera_cli.routing.sessions import Pins
from infera_cli.routing.types import Worker, WorkerSpec


def worker(ledger: Ledger, name: str = "a") -> Worker:
    return Worker(WorkerSpec(id=name, host="127.0.0.1", port=8001), ledger.open())


def test_a_reserved_request_counts_until_it_is_settled() -> None:
    """Outstanding rises when a request is reserved and falls when it is settled; routed only rises."""
    ledger = Ledger()
    a = worker(ledger)
    lease = ledger.reserve(a)
    assert (ledger.outstanding[a.number], ledger.routed[a.number]) == (1, 1)
    lease.settle(1.0)
    assert (ledger.outstanding[a.number], ledger.routed[a.number]) == (0, 1)


def test_r074_a_second_settle_raises_and_changes_nothing() -> None:
    """A lease is settled exactly once; the count is never taken down twice."""
    ledger = Ledger()
    a = worker(ledger)
    first, _second = ledger.reserve(a), ledger.reserve(a)
    first.settle(1.0)
    with pytest.raises(RuntimeError, match="already settled"):
        first.settle(2.0)
    assert ledger.outstanding[a.number] == 1


def test_r074_late_settle_of_a_removed_worker_leaves_its_successor_alone() -> None:
    """A number is handed out again only when no lease is open on it."""
    ledger = Ledger()
    old = worker(ledger)
    lease = ledger.reserve(old)
    ledger.close(old.number)
    new = worker(ledger)
    assert new.number != old.number
    lease.settle(1.0)
    assert ledger.outstanding[new.number] == 0
    assert worker(ledger).number == old.number


def test_a_reused_number_starts_at_zero() -> None:
    """A worker that comes later under a used number has routed nothing yet (replica-router §1.7)."""
    ledger = Ledger()
    old = worker(ledger)
    ledger.reserve(old).settle(0.0)
    ledger.close(old.number)
    new = worker(ledger)
    assert new.number == old.number
    assert (ledger.outstanding[new.number], ledger.routed[new.number]) == (0, 0)


@pytest.mark.parametrize("busy", [True, False])
def test_a_number_is_closed_once(busy: bool) -> None:
    """Closing a closed number raises, whether or not requests are still open on it."""
    ledger = Ledger()
    a = worker(ledger)
    if busy:
        ledger.reserve(a)
    ledger.close(a.number)
    with pytest.raises(RuntimeError, match="already closed"):
        ledger.close(a.number)


def test_b31_a_pin_lives_as_long_as_its_answer() -> None:
    """A pin outlives a generation longer than the TTL, sweeps included, and the TTL counts from its end."""
    ledger, pins = Ledger(), Pins(2.0)
    a = worker(ledger)
    pins.pin("s", a.id, 0.0, held=True)
    lease = ledger.reserve(a, "s", pins)
    assert pins.sweep(4.0) == 0
    lease.settle(5.0)
    assert pins.find("s", 7.0) == "a"
    assert pins.find("s", 7.001) is None


class LedgerMachine(RuleBasedStateMachine):
    """Workers come and go while requests open and settle in any order."""

    @initialize()
    def begin(self) -> None:
        self.ledger = Ledger()
        self.workers: list[Worker] = []
        self.open: list[Lease] = []
        self.count: dict[Worker, int] = {}

    @rule()
    def come(self) -> None:
        new = worker(self.ledger)
        self.workers.append(new)
        self.count[new] = 0

    @precondition(lambda self: self.workers)
    @rule(data=st.data())
    def go(self, data: st.DataObject) -> None:
        gone = data.draw(st.sampled_from(self.workers))
        self.workers.remove(gone)
        self.ledger.close(gone.number)

    @precondition(lambda self: self.workers)
    @rule(data=st.data())
    def reserve(self, data: st.DataObject) -> None:
        chosen = data.draw(st.sampled_from(self.workers))
        self.open.append(self.ledger.reserve(chosen))
        self.count[chosen] += 1

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def settle(self, data: st.DataObject) -> None:
        lease = data.draw(st.sampled_from(self.open))
        self.open.remove(lease)
        lease.settle(0.0)
        self.count[lease.worker] -= 1

    @invariant()
    def counts_are_true(self) -> None:
        numbers = [w.number for w in self.workers]
        assert len(set(numbers)) == len(numbers)
        assert all(self.ledger.outstanding[w.number] == self.count[w] for w in self.workers)
        assert min(self.ledger.outstanding, default=0) >= 0
        assert sum(self.ledger.outstanding) == len(self.open)


TestLedgerMachine = LedgerMachine.TestCase
"""Whatever the order: counts are exact, never negative, and no two workers share a number."""


@given(st.lists(st.booleans()))
def test_columns_do_not_grow_without_need(comings: list[bool]) -> None:
    """The columns are as long as the largest number of workers there was at one time."""
    ledger = Ledger()
    here: list[int] = []
    most = 0
    for comes in comings:
        if comes:
            here.append(ledger.open())
        elif here:
            ledger.close(here.pop())
        most = max(most, len(here))
    assert len(ledger.outstanding) == most
