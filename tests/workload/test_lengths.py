"""Requests as lengths and names of blocks."""

from __future__ import annotations

import json
from itertools import islice

import pytest

from infera_cli.workload import traces
from infera_cli.workload.lengths import conversations, random_lengths, shared_prefixes, trace
from infera_cli.workload.synthetic import Lengths


def test_unrelated_prompts_share_no_block() -> None:
    """Random prompts have as many names as full blocks of prompt and answer, all different."""
    made = [talk.turns[0] for talk in islice(random_lengths(1, Lengths(100, 0.5), Lengths(20), prefix=0, block=16), 50)]
    names = [name for part in made for name in part.chain]
    assert all(len(part.chain) == (part.prompt + part.output) // 16 for part in made)
    assert len(set(names)) == len(names)
    assert all(50 <= part.prompt <= 150 for part in made)


def test_prompts_of_a_group_share_its_prefix() -> None:
    """Two prompts of a group agree in exactly the full blocks of the prefix; those of two groups in none."""
    made = shared_prefixes(1, Lengths(64), Lengths(8), groups=2, prefix=128, alpha=0.0, block=16)
    parts = [talk.turns[0] for talk in islice(made, 20)]
    groups = {tuple(part.chain[:8]) for part in parts}
    assert len(groups) == 2
    assert len({part.chain[8] for part in parts}) == 20
    assert all(part.prompt == 192 for part in parts)


def test_a_turn_begins_with_all_before_it() -> None:
    """The blocks of a turn's prompt are those of the previous prompt and answer, and more."""
    made = conversations(1, Lengths(40), Lengths(24), turns=Lengths(3), system=32, think=0.0, block=16)
    first, second = islice(made, 2)
    for before, after in zip(first.turns, first.turns[1:], strict=False):
        assert list(after.chain)[: len(before.chain)] == list(before.chain)
        assert after.prompt == before.prompt + before.output + 40
    assert set(first.turns[2].chain) & set(second.turns[2].chain) == set(first.turns[0].chain[:2])


def test_the_pages_of_a_trace_are_cut_into_blocks() -> None:
    """A repeated id of 512 tokens repeats its 32 blocks; a partial page gives its full blocks only."""
    rows = ['{"timestamp": 0, "input_length": 600, "output_length": 9, "hash_ids": [4, 5]}',
            '{"timestamp": 1500, "input_length": 512, "output_length": 9, "hash_ids": [4]}']
    found = traces.mooncake(rows, "trace", 1)
    one, two = islice(trace(found.sessions, page=found.page, block=16), 2)
    assert list(one.turns[0].chain[:32]) == list(two.turns[0].chain[:32])
    assert len(one.turns[0].chain) == 609 // 16
    assert two.at == 1.5


@pytest.mark.parametrize("block", [8, 16, 24, 32, 64])
def test_blocks_of_any_size_are_equal_where_the_pages_are(block: int) -> None:
    """Two prompts with 100 of their 200 pages of 16 tokens in common share the blocks that lie in these alone."""
    lines = [json.dumps({"input_length": 3200, "output_length": 1, "block_size": 16,
                         "hash_ids": [*range(100), *range(start, start + 100)]}) for start in (1000, 2000)]
    found = traces.mooncake(lines, "trace", 1)
    one, two = islice(trace(found.sessions, page=found.page, block=block), 2)
    same = [a == b for a, b in zip(one.turns[0].chain, two.turns[0].chain, strict=True)]
    assert same == [True] * (1600 // block) + [False] * (len(same) - 1600 // block)


def test_a_page_is_the_same_only_after_the_same_pages() -> None:
    """An id that comes again behind another page names another beginning of a prompt."""
    lines = [json.dumps({"input_length": 1024, "output_length": 1, "hash_ids": ids}) for ids in ([1, 7], [2, 7])]
    found = traces.mooncake(lines, "trace", 1)
    one, two = islice(trace(found.sessions, page=512, block=16), 2)
    assert not set(one.turns[0].chain) & set(two.turns[0].chain)


def test_a_second_round_through_a_trace_repeats_ids_alone() -> None:
    """What a row has for itself is new every time, as the prompts of a benchmark are."""
    lines = [json.dumps({"input_length": 1024, "output_length": 16, "hash_ids": [7]})]
    found = traces.mooncake(lines, "trace", 1)
    one, two = islice(trace(found.sessions, page=512, block=16), 2)
    same = [a == b for a, b in zip(one.turns[0].chain, two.turns[0].chain, strict=True)]
    assert same == [True] * 32 + [False] * 33
