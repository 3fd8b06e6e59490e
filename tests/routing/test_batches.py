"""Static batching: the gate before a node (replica-router §2.8)."""

from __future__ import annotations

from infera_cli.routing.batches import FLUSH_SECONDS, BatchGate


def gate(size: int = 3) -> BatchGate[str]:
    return BatchGate(size)


def test_a_full_batch_leaves_together() -> None:
    """Nobody is sent before the batch has all its members."""
    batch = gate()
    batch.collect("a", 0.0)
    batch.collect("b", 0.1)
    assert batch.release(0.2) == []
    batch.collect("c", 0.3)
    assert batch.release(0.3) == ["a", "b", "c"]
    assert batch.running == 3


def test_the_tail_of_a_job_leaves_after_two_seconds() -> None:
    """The oldest has waited 2 s: what is there is sent."""
    assert FLUSH_SECONDS == 2.0
    batch = gate()
    batch.collect("a", 0.0)
    batch.collect("b", 1.5)
    assert batch.release(1.99) == []
    assert batch.release(2.0) == ["a", "b"]


def test_the_gate_opens_again_when_all_have_finished() -> None:
    """A full batch waits for the last member of the one before it."""
    batch = gate(2)
    first, second, third, fourth = "abcd"
    batch.collect(first, 0.0)
    batch.collect(second, 0.0)
    batch.release(0.0)
    batch.collect(third, 0.1)
    batch.collect(fourth, 0.1)
    batch.finished(first)
    assert batch.release(9.0) == []
    batch.finished(second)
    batch.finished(second)
    assert batch.release(9.0) == [third, fourth]


def test_no_batch_is_larger_than_its_size() -> None:
    """More than fit wait for the next one."""
    batch = gate(2)
    for name in "abc":
        batch.collect(name, 0.0)
    assert batch.is_full
    assert batch.release(0.0) == ["a", "b"]
    assert batch.collected == ["c"]


def test_what_was_not_sent_can_go_elsewhere() -> None:
    """A node that drains gives its waiting members back; one that leaves is no longer among them."""
    batch = gate()
    first, second, third = "abc"
    for name in (first, second):
        batch.collect(name, 0.0)
    batch.finished(first)
    batch.collect(third, 0.5)
    assert batch.evict() == [second, third]
    assert batch.release(100.0) == []
