"""A replay service that does not answer, and numbers that no engine counts up to (rulings 17; engines §1.8.7)."""

from __future__ import annotations

from infera_cli.fleet.kv_feed import follower
from tests.fleet.kv_feed.test_follower import World


def started(*numbers: int) -> World:
    world = World()
    world.follower.start()
    world.replayed(*numbers)
    return world


def test_a_look_at_the_tail_holds_nothing_back() -> None:
    """Live batches in sequence count at once, whether it is answered or not."""
    world = started(0, 1)
    world.follower.check_tail()
    world.live(2, 3)
    assert world.held == [0, 1, 2, 3]
    world.replayed(2, 3)
    world.live(4)
    assert world.held == [0, 1, 2, 3, 4]
    assert (world.resets, world.counters.duplicates, world.counters.restarts, world.said) == (1, 0, 0, [])


def test_what_a_look_at_the_tail_brought_may_come_live_too() -> None:
    """The two sockets have no order between them: a batch that came twice is a repeat, other content a restart."""
    world = started(0)
    world.follower.check_tail()
    world.replayed(1, 2, 3)
    world.live(1, 2, 3, 4)
    assert world.held == [0, 1, 2, 3, 4]
    assert (world.counters.duplicates, world.counters.restarts) == (3, 0)
    world.follower.live(2, b"200")
    assert world.counters.restarts == 1


def test_an_unanswered_look_is_repeated_ever_more_seldom() -> None:
    """One line, once; the live view goes on all the time; an answer makes it as it was."""
    world = started(0)
    asked = []
    for look in range(300):
        before = len(world.asked)
        world.follower.check_tail()
        world.live(look + 1)
        assert world.held[-1] == look + 1
        if len(world.asked) > before:
            asked.append(look)
            world.follower.no_end()
    assert asked == [0, 2, 6, 14, 30, 62, 126, 254]
    assert world.counters.replays_failed == len(asked)
    assert len(world.said) == 1
    for _ in range(follower.SKIPPED_MOST + 1):
        world.follower.check_tail()
    world.replayed()
    world.follower.check_tail()
    world.follower.check_tail()
    assert world.asked[-2:] == [301, 301]


def test_a_gap_is_asked_for_even_then() -> None:
    """But only once, since nobody answered before; then it goes on live."""
    world = started(0)
    world.follower.check_tail()
    world.follower.no_end()
    world.live(1, 4)
    assert world.asked == [0, 1, 2]
    assert world.held == [0, 1]
    world.follower.no_end()
    assert world.held == [4]
    assert world.counters.gaps == 1
    world.live(5)
    assert world.held == [4, 5]


def test_a_gap_in_the_middle_of_a_look_is_a_gap() -> None:
    """Live batches wait from there on, and nothing is lost."""
    world = started(0)
    world.follower.check_tail()
    world.live(1, 3)
    assert (world.asked, world.held) == ([0, 1, 2], [0, 1])
    world.replayed(2, 3)
    assert world.held == [0, 1, 2, 3]


def test_a_look_that_began_to_be_answered_is_asked_to_go_on() -> None:
    """From the last number on."""
    world = started(0)
    world.follower.check_tail()
    world.replayed(1, 2, end=False)
    world.follower.no_end()
    assert world.asked == [0, 1, 3]
    world.replayed(3)
    assert (world.held, world.counters.replays_failed) == ([0, 1, 2, 3], 0)


def test_what_waits_for_a_replay_has_a_limit_of_bytes() -> None:
    """Then it goes on live."""
    world = World()
    world.follower.start()
    for number in range(5):
        world.follower.live(number, b"0" * (follower.HELD_BYTES // 4))
    assert len(world.applied) == 5
    assert not world.follower.replaying
    assert world.counters.replays_failed == 1


def test_a_number_far_ahead_does_not_make_the_true_ones_late() -> None:
    """After the absurd number the true ones are a new process, not stragglers for ever."""
    world = World(replay=False)
    world.follower.start()
    world.live(5, (1 << 63) - 1, 6, 7, 8)
    assert world.held == [6, 7, 8]
    assert (world.counters.gaps, world.counters.restarts) == (1, 1)
