"""Made-up prompts."""

from __future__ import annotations

from collections import Counter

import pytest

from infera_cli.errors import ConfigError
from infera_cli.workload import text
from infera_cli.workload.synthetic import Conversations, Lengths, Popularity, RandomLengths, SharedPrefixes


def test_r166_a_shared_prefix_is_added_to_the_input_length() -> None:
    """Input 256 with prefix 128 are 384 tokens; the first 128 are common to all, the rest differs."""
    data = RandomLengths(1, Lengths(256), Lengths(8), prefix=128)
    prompts = [data.item(number).turns[0].text.split() for number in range(50)]
    assert {len(prompt) for prompt in prompts} == {384}
    assert len({tuple(prompt[:128]) for prompt in prompts}) == 1
    assert len({tuple(prompt[128:192]) for prompt in prompts}) == 50
    assert data.item(0).asked == 384


def test_a_tokenizer_makes_lengths_exact() -> None:
    """With a tokenizer the text is fitted until the count is what was asked for."""

    def count(words: str) -> int:
        return sum(1 + (len(word) > 4) for word in words.split())

    data = RandomLengths(1, Lengths(200), Lengths(8), count=count)
    assert [count(data.item(number).turns[0].text) for number in range(20)] == pytest.approx([200] * 20, abs=1)


def test_items_depend_on_seed_and_number_alone() -> None:
    """Item 7 is the same in whichever order and process it is made, and another under another seed."""
    first, second = (RandomLengths(3, Lengths(50, 0.5), Lengths(8)) for _ in range(2))
    late = [first.item(number) for number in (9, 8, 7)][-1]
    assert late == second.item(7)
    assert late != RandomLengths(4, Lengths(50, 0.5), Lengths(8)).item(7)


def test_lengths_vary_within_their_range() -> None:
    """A range ratio of 0.5 around 100 draws between 50 and 150, mean 100."""
    data = RandomLengths(1, Lengths(100, 0.5), Lengths(10, 0.5))
    lengths = [data.item(number).asked or 0 for number in range(500)]
    assert min(lengths) >= 50
    assert max(lengths) <= 150
    assert sum(lengths) / 500 == pytest.approx(100, abs=5)
    assert len({data.item(number).turns[0].output for number in range(200)}) == 11


def test_groups_share_their_prefix_and_nothing_else() -> None:
    """Items of one group have one system prompt, other groups have others, questions are all different."""
    data = SharedPrefixes(1, Lengths(20), Lengths(8), groups=4, prefix=64)
    by_group: dict[int, set[str]] = {}
    for number in range(100):
        by_group.setdefault(data.group(number), set()).add(data.item(number).system)
    assert sorted(by_group) == [0, 1, 2, 3]
    assert all(len(systems) == 1 for systems in by_group.values())
    assert len(set().union(*by_group.values())) == 4
    assert len({data.item(number).turns[0].text for number in range(100)}) == 100


def test_zipf_makes_the_first_group_the_most_popular() -> None:
    """With exponent 1 group 0 is drawn twice as often as group 1 and three times as often as group 2."""
    popularity = Popularity(10, 1.0)
    drawn = Counter(popularity.draw(text.dice(1, number)) for number in range(20_000))
    assert drawn[0] / drawn[1] == pytest.approx(2, rel=0.1)
    assert drawn[0] / drawn[2] == pytest.approx(3, rel=0.1)


def test_without_zipf_groups_are_equally_popular() -> None:
    """Exponent 0 draws every group alike."""
    drawn = Counter(Popularity(4).draw(text.dice(1, number)) for number in range(8000))
    assert [drawn[group] / 2000 for group in range(4)] == pytest.approx([1, 1, 1, 1], rel=0.07)


def test_no_group_at_all_is_refused() -> None:
    """Zero prefix groups end in words."""
    with pytest.raises(ConfigError):
        SharedPrefixes(1, Lengths(20), Lengths(8), groups=0, prefix=64)


def test_conversations_have_turns_a_session_and_pauses() -> None:
    """A conversation of three turns has one session id; the pause stands before the second and third."""
    item = Conversations(1, Lengths(10), Lengths(5), turns=Lengths(3), system=16, think=2.0).item(4)
    assert [turn.think for turn in item.turns] == [0.0, 2.0, 2.0]
    assert item.session == "conversation-4"
    assert len(item.system.split()) == 16


def test_text_does_not_depend_on_pythons_hash() -> None:
    """The text of a seed is fixed for ever, so that a replay sends the same tokens in any process."""
    assert text.words(4, text.dice(1, "block", 7)) == text.words(4, text.dice(1, "block", 7))
    assert text.dice(42, "x").getrandbits(32) == 69220135
