"""Which node holds which prefixes (replica-router §2.6)."""

from __future__ import annotations

from infera_cli.routing.residency import KEPT, Residency
from infera_cli.routing.work import Work


def work(*names: int, pinned: int = 0) -> Work:
    return Work(chain=names, sizes=tuple(10 * (place + 1) for place in range(len(names))), pinned=pinned)


def test_the_longest_known_prefix_counts() -> None:
    """Each holder with the tokens of the longest prefix that it has."""
    book = Residency()
    book.learn(0, work(1, 2))
    book.learn(1, work(1, 2, 3))
    assert book.known((1, 2, 3, 4)) == {0: 20, 1: 30}
    assert book.known((1, 9)) == {0: 10, 1: 10}
    assert book.known((9,)) == {}


def test_at_most_4096_prefixes_are_kept_of_a_node() -> None:
    """The least recently used leaves first; using one again keeps it."""
    assert KEPT == 4096
    book = Residency(kept=3)
    for name in (1, 2, 3):
        book.learn(0, work(name))
    book.learn(0, work(1))
    book.learn(0, work(4))
    assert book.known((2,)) == {}
    assert book.known((1,)) == {0: 10}
    assert book.count(0) == 3


def test_pinned_system_prompts_outlive_others() -> None:
    """They leave only when nothing else is left, oldest first."""
    book = Residency(kept=2)
    book.learn(0, work(1, pinned=1))
    book.learn(0, work(2, pinned=1))
    book.learn(0, work(3))
    assert (book.known((1,)), book.known((3,))) == ({0: 10}, {})
    book.learn(0, work(4, pinned=1))
    assert book.known((1,)) == {}
    assert book.known((2,)) == {0: 10}


def test_without_pinning_all_are_alike() -> None:
    """`pin_system_prompts: false` makes a system prompt leave like any other prefix."""
    book = Residency(pin=False, kept=1)
    book.learn(0, work(1, pinned=1))
    book.learn(0, work(2))
    assert book.known((1,)) == {}


def test_a_prefix_once_pinned_stays_pinned() -> None:
    """Meeting the same prefix in another place does not unpin it."""
    book = Residency()
    book.learn(0, work(1, pinned=1))
    book.learn(0, work(1))
    assert book.is_pinned(0, 1)
    book.learn(0, work(2))
    book.learn(0, work(2, pinned=1))
    assert book.is_pinned(0, 2)
    assert book.count(0) == 2


def test_over_the_threshold_the_oldest_tenth_is_forgotten() -> None:
    """A tenth of what is not pinned, rounded up, at most every 30 s."""
    book = Residency()
    book.learn(0, work(*range(100, 110), pinned=10))
    for name in range(15):
        book.learn(0, work(name))
    assert book.shed(0, 100.0) == 2
    assert book.known((0,)) == book.known((1,)) == {}
    assert book.known((2,)) == {0: 10}
    assert book.shed(0, 129.9) == 0
    assert book.shed(0, 130.0) == 2
    assert book.count(0) == 21
    assert book.shed(7, 0.0) == 0


def test_a_node_can_be_forgotten() -> None:
    """Offline, restarted or out of memory: nothing is known of it any more, the others stay."""
    book = Residency()
    book.learn(0, work(1, 2, pinned=1))
    book.learn(1, work(1))
    book.forget(0)
    assert book.known((1, 2)) == {1: 10}
    assert book.count(0) == 0
