"""Who waits, and who is next (replica-router §2.7; rulings 20)."""

from __future__ import annotations

import random

import pytest

from infera_cli.errors import TooManyRequests
from infera_cli.routing.queue import Queue


def taken(queue: Queue[str], now: float, node: str | None = "n", models: tuple[str | None, ...] = ("m",)) -> str | None:
    found = queue.take(models, node, now)
    return None if found is None else found.item


def test_priority_nine_overtakes_priority_one() -> None:
    """The higher priority goes first, whenever it came."""
    queue: Queue[str] = Queue()
    queue.put("low", "m", 1, 0.0)
    queue.put("high", "m", 9, 1.0)
    assert [taken(queue, 2.0), taken(queue, 2.0), taken(queue, 2.0)] == ["high", "low", None]


def test_equals_are_served_as_they_came() -> None:
    """First in, first out among equal priorities."""
    queue: Queue[str] = Queue()
    for name in "abc":
        queue.put(name, "m", 5, 0.0)
    assert [taken(queue, 1.0) for _ in range(3)] == ["a", "b", "c"]


@pytest.mark.parametrize(("waited", "first"), [(9.9, "high"), (39.9, "high"), (40.0, "low"), (500.0, "low")])
def test_waiting_raises_the_priority_by_one_every_ten_seconds(waited: float, first: str) -> None:
    """Effective = priority + floor(waited ÷ 10 s): priority 5 reaches a new 9 after 40 s, and goes first then."""
    queue: Queue[str] = Queue()
    queue.put("low", "m", 5, 0.0)
    queue.put("high", "m", 9, waited)
    assert taken(queue, waited) == first


def test_effective_priority_is_at_most_ten() -> None:
    """After a long wait everybody is a ten, and arrival decides."""
    queue: Queue[str] = Queue()
    waiting = queue.put("low", "m", 0, 0.0)
    queue.put("ten", "m", 10, 5.0)
    assert (waiting.effective(9.9), waiting.effective(10.0), waiting.effective(1e6)) == (0, 1, 10)
    assert taken(queue, 99.9) == "ten"
    queue.put("ten", "m", 10, 99.95)
    assert taken(queue, 100.0) == "low"


def test_nobody_starves() -> None:
    """Under an endless stream of priority nine, a priority nought is served within 100 s."""
    queue: Queue[str] = Queue()
    queue.put("low", "m", 0, 0.0)
    for second in range(101):
        queue.put("high", "m", 9, float(second))
        if taken(queue, float(second)) == "low":
            break
    else:
        pytest.fail("it starved")
    assert second >= 90


def test_an_affinity_to_another_node_holds_nobody_up() -> None:
    """A slot on node n goes to the best request that n may serve."""
    queue: Queue[str] = Queue()
    queue.put("elsewhere", "m", 10, 0.0, only="x")
    queue.put("mine", "m", 3, 0.0, only="n")
    queue.put("any", "m", 2, 0.0)
    assert [taken(queue, 0.0), taken(queue, 0.0), taken(queue, 0.0)] == ["mine", "any", None]
    assert taken(queue, 0.0, node=None) == "elsewhere"


def test_queues_are_by_model() -> None:
    """A node takes requests for the models it serves, the best of all of them first."""
    queue: Queue[str] = Queue()
    queue.put("m", "m", 4, 0.0)
    queue.put("k", "k", 6, 0.0)
    queue.put("other", "o", 10, 0.0)
    assert [taken(queue, 0.0, models=("m", "k")) for _ in range(3)] == ["k", "m", None]
    assert (len(queue), queue.models, queue.count("o"), queue.count("m")) == (1, ["o"], 1, 0)


def test_1024_may_wait_for_a_model() -> None:
    """One more gets 429 with Retry-After 1; another model has a queue of its own."""
    queue: Queue[int] = Queue()
    for number in range(1024):
        queue.put(number, "m", 5, 0.0)
    with pytest.raises(TooManyRequests) as fault:
        queue.put(1024, "m", 5, 0.0)
    assert (fault.value.status, fault.value.retry_after) == (429, 1.0)
    queue.put(0, "k", 5, 0.0)
    assert len(queue) == 1025


def test_who_leaves_is_out_of_the_queue() -> None:
    """Dropping takes a place away once, also from the middle, and makes room."""
    queue: Queue[str] = Queue(3)
    waits = [queue.put(name, "m", 5, 0.0) for name in "abc"]
    queue.drop(waits[1])
    queue.drop(waits[1])
    assert len(queue) == 2
    queue.put("d", "m", 5, 0.0)
    assert [taken(queue, 0.0) for _ in range(4)] == ["a", "c", "d", None]
    queue.drop(waits[0])
    assert (len(queue), queue.everybody()) == (0, [])


def test_who_is_put_back_keeps_its_place() -> None:
    """A request that was taken and found no place is first again."""
    queue: Queue[str] = Queue()
    for name in "ab":
        queue.put(name, "m", 5, 0.0)
    first = queue.take(("m",), "n", 0.0)
    assert first is not None
    queue.put_back(first)
    assert [taken(queue, 0.0), taken(queue, 0.0)] == ["a", "b"]


def test_order_is_that_of_sorting_everybody() -> None:
    """Whatever was put, taken and dropped, the next is the one that a full sort finds."""
    dice = random.Random(7)
    queue: Queue[int] = Queue(10_000)
    model: list[tuple[int, int, float]] = []
    waits = {}
    now = 0.0
    for number in range(3000):
        now += dice.random() * 2
        move = dice.random()
        if move < 0.5:
            priority = dice.randrange(11)
            waits[number] = queue.put(number, "m", priority, now)
            model.append((number, priority, now))
        elif move < 0.6 and model:
            gone = model.pop(dice.randrange(len(model)))
            queue.drop(waits[gone[0]])
        elif model:
            best = min(model, key=lambda one: (-min(10, one[1] + int((now - one[2]) // 10)), one[0]))
            model.remove(best)
            found = queue.take(("m",), "n", now)
            assert found is not None
            assert found.item == best[0]
    assert len(queue) == len(model)
