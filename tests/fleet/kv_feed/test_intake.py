"""Events that go on where the one before ended are taken in as one, and nothing else is (engines §2.5)."""

from __future__ import annotations

import random

import pytest

from infera_cli.fleet.kv_feed.intake import joined
from infera_cli.protocol.kv_events import Cleared, KvEvent, Removed, Stored
from infera_cli.routing.prefix import PrefixIndex, Slot

SIZE = 16


def page(number: int, parent: int | None, **more: object) -> Stored:
    """A page as SGLang tells it: one hash an event."""
    tokens = [number * SIZE + place for place in range(SIZE)]
    return Stored([number], parent, tokens, SIZE, **more)  # type: ignore[arg-type]


def test_pages_in_a_row_are_one_event() -> None:
    """A prompt of five pages is one run; a removal in between ends it."""
    pages = [page(number, number - 1 or None) for number in range(1, 6)]
    (one,) = joined(pages)
    assert isinstance(one, Stored)
    assert (one.hashes, one.parent, len(one.tokens)) == ([1, 2, 3, 4, 5], None, 5 * SIZE)
    cut: list[KvEvent] = [*pages[:2], Removed([2]), *pages[2:], Cleared()]
    assert [type(event) for event in joined(cut)] == [Stored, Removed, Stored, Cleared]


@pytest.mark.parametrize(
    "second",
    [page(2, None), page(2, 9), page(2, 1, salt="s"), page(2, 1, adapter="a"), page(2, 1, group=1),
     page(2, 1, extras=[["image"]]), Stored([2], 1, [1, 2], SIZE), Stored([], 1, [], SIZE),
     Stored([2], 1, list(range(32)), 32)],
)  # fmt: skip
def test_what_does_not_go_on_stays_an_event_of_its_own(second: Stored) -> None:
    """Another parent, salt, adapter, group or page, images, and what does not add up."""
    assert list(joined([page(1, None), second])) == [page(1, None), second]


def store(index: PrefixIndex, slot: Slot, events: list[KvEvent]) -> None:
    for event in events:
        if isinstance(event, Stored):
            index.store(slot, event.parent, event.hashes, event.tokens, event.block_size, salt=event.salt)
        elif isinstance(event, Removed):
            index.remove(slot, event.hashes)
        else:
            index.clear(slot)


@pytest.mark.parametrize("seed", range(30))
def test_the_view_is_the_same_either_way(seed: int) -> None:
    """Random pages, removals, repeats and clears, one by one and joined."""
    dice = random.Random(seed)
    events: list[KvEvent] = []
    for _ in range(dice.randrange(1, 60)):
        kind = dice.random()
        number = dice.randrange(1, 12)
        if kind < 0.8:
            events.append(page(number, number - 1 or None, salt=dice.choice((None, None, "s"))))
        else:
            events.append(Removed([number]) if kind < 0.97 else Cleared())
    views = []
    for told in (events, list(joined(events))):
        index = PrefixIndex()
        slot = index.open("w")
        store(index, slot, told)
        views.append((slot.blocks, slot.copies, {key: bits != 0 for key, bits in index._holders.items()}, index.size))
    assert views[0] == views[1]
