"""Gaps, repeats, restarts and replays, without sockets (engines §1.8.7; R083, R086; C25, C26)."""

from __future__ import annotations

from infera_cli.fleet.kv_feed.counters import FeedCounters
from infera_cli.fleet.kv_feed.follower import Follower


class World:
    """A follower, what it applied since its last reset, what it asked for and said."""

    def __init__(self, *, replay: bool = True) -> None:
        self.applied: list[bytes] = []
        self.resets = 0
        self.asked: list[int] = []
        self.said: list[str] = []
        self.counters = FeedCounters()
        self.follower = Follower(
            self, self.counters, ask=self.asked.append if replay else None, tell=self.said.append
        )

    def apply(self, payload: bytes) -> None:
        self.applied.append(payload)

    def reset(self) -> None:
        self.resets += 1
        self.applied.clear()

    def live(self, *numbers: int) -> None:
        for number in numbers:
            self.follower.live(number, b"%d" % number)

    def replayed(self, *numbers: int, end: bool = True) -> None:
        for number in numbers:
            self.follower.replayed(number, b"%d" % number)
        if end:
            self.follower.end_of_replay()

    @property
    def held(self) -> list[int]:
        return [int(payload) for payload in self.applied]


def test_s67_s68_first_contact_replays_from_the_beginning_at_once() -> None:
    """What was published before is asked for; live batches wait and follow in order."""
    world = World()
    world.follower.start()
    assert world.asked == [0]
    world.live(5, 6)
    assert world.held == []
    world.replayed(0, 1, 2, 3, 4, 5)
    assert world.held == [0, 1, 2, 3, 4, 5, 6]
    world.live(7)
    assert world.held[-1] == 7


def test_a_replay_that_begins_late_is_taken_as_it_is() -> None:
    """At first contact older batches may be gone from the buffer; what is there counts."""
    world = World()
    world.follower.start()
    world.replayed(40, 41)
    world.live(42)
    assert world.held == [40, 41, 42]
    assert world.said == []


def test_without_replay_the_first_batch_is_the_beginning() -> None:
    """Nothing can be asked for, so believing starts with whatever comes."""
    world = World(replay=False)
    world.follower.start()
    world.live(17, 18)
    assert world.held == [17, 18]


def test_a_gap_is_repaired_by_replay() -> None:
    """Missing numbers are asked for, later ones wait; nothing is dropped."""
    world = World()
    world.follower.start()
    world.replayed(0, 1)
    world.live(4, 5)
    assert world.asked == [0, 2]
    assert world.held == [0, 1]
    world.replayed(2, 3, 4)
    assert world.held == [0, 1, 2, 3, 4, 5]
    assert (world.resets, world.counters.gaps, len(world.said)) == (1, 1, 1)


def test_a_gap_that_cannot_be_filled_starts_the_view_over() -> None:
    """When the replay begins beyond what was wanted, earlier beliefs are void."""
    world = World()
    world.follower.start()
    world.replayed(0, 1)
    world.live(9)
    world.replayed(6, 7, 8, 9)
    assert world.held == [6, 7, 8, 9]
    assert world.resets == 2


def test_r086_repeats_and_late_batches_without_replay() -> None:
    """1,2,3,3,5,4,6: the repeat has no effect, the gap is told once, the late one is not applied."""
    world = World(replay=False)
    world.follower.start()
    world.live(1, 2, 3, 3)
    assert world.held == [1, 2, 3]
    world.live(5, 4, 6)
    assert world.held == [5, 6]
    assert (world.counters.gaps, world.counters.duplicates, world.counters.restarts) == (1, 2, 0)
    assert len(world.said) == 1


def test_r083_numbers_that_begin_again_are_a_restart() -> None:
    """After 0…20 comes 0: the view holds exactly what the new process says."""
    world = World(replay=False)
    world.follower.start()
    world.live(*range(21))
    world.follower.live(0, b"100")
    assert world.held == [100]
    world.live(1, 2, 3)
    assert world.held == [100, 1, 2, 3]
    assert world.counters.restarts == 1


def test_r083_a_restart_is_replayed_from_its_beginning() -> None:
    """With a replay service the new process is asked for all it said."""
    world = World()
    world.follower.start()
    world.replayed(*range(5))
    world.live(1)
    assert world.asked == [0, 0]
    world.replayed(0, 1)
    assert world.held == [0, 1]
    world.live(2)
    assert world.held == [0, 1, 2]


def test_a_restart_after_a_single_batch_is_told_from_a_repeat() -> None:
    """The same number with the same content is a repeat, with other content a new process."""
    world = World(replay=False)
    world.follower.start()
    world.follower.live(0, b"1")
    world.follower.live(0, b"1")
    assert world.counters.duplicates == 1
    world.follower.live(0, b"2")
    assert (world.held, world.counters.restarts) == ([2], 1)


def test_a_replay_without_an_end_is_asked_for_again() -> None:
    """From the last number on, three times in all; then live events have to do."""
    world = World()
    world.follower.start()
    world.replayed(0, 1, end=False)
    world.follower.no_end()
    world.follower.no_end()
    assert world.asked == [0, 2, 2]
    world.live(2)
    world.follower.no_end()
    assert world.held == [0, 1, 2]
    assert world.counters.replays_failed == 1
    world.live(3)
    assert world.held == [0, 1, 2, 3]


def test_a_silent_tail_is_found_by_asking() -> None:
    """A batch that was lost and that nothing followed comes with the next look at the tail."""
    world = World()
    world.follower.start()
    world.replayed(0)
    world.follower.check_tail()
    assert world.asked == [0, 1]
    world.replayed(1, 2)
    assert world.held == [0, 1, 2]
    world.follower.check_tail()
    world.replayed()
    assert world.held == [0, 1, 2]
    assert world.said == []


def test_batches_without_numbers_are_applied_as_they_come() -> None:
    """Engines that do not number cannot be checked (engines §3)."""
    world = World(replay=False)
    world.follower.start()
    world.follower.live(None, b"1")
    world.follower.live(None, b"1")
    assert world.held == [1, 1]


def test_answers_to_an_older_request_are_ignored() -> None:
    """What was applied already comes again without effect."""
    world = World()
    world.follower.start()
    world.replayed(0, 1, 2)
    world.follower.check_tail()
    world.replayed(1, 2, 3)
    assert world.held == [0, 1, 2, 3]
    world.follower.replayed(9, b"9")
    assert world.held == [0, 1, 2, 3]
