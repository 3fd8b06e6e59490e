"""When the simulation counts as proven: close figures, the same order, and policies that differ."""

from __future__ import annotations

import json
from itertools import pairwise

from bench import simulation_talks
from bench.simulation_proof import DIFFERENT, TIE, Pair, holds, simulated, swapped, table, ties, told_apart


def pairs(*ttfts: tuple[float, float]) -> list[Pair]:
    """Policies with these TTFTs, measured and simulated."""
    return [Pair(f"p{number}", real, simulated, 0.5, 0.5) for number, (real, simulated) in enumerate(ttfts)]


FIVE = ((100, 100), (120, 118), (150, 151), (180, 190), (240, 230))


def test_the_same_order_of_different_policies_holds() -> None:
    """Five that are told apart both ways."""
    assert holds(pairs(*FIVE))
    assert told_apart(pairs(*FIVE)) == DIFFERENT


def test_a_swap_is_only_let_pass_when_both_ways_see_a_tie() -> None:
    """2 % measured and 2 % simulated is a tie, 2 % and 4 % is none, whichever of them it is."""
    tied = pairs(*FIVE, (300, 306), (306, 300))
    assert (swapped(tied), ties(tied)) == ([], [("p5", "p6")])
    assert holds(tied)
    for one, other in (((300, 312), (306, 300)), ((300, 306), (312, 300)), ((300, 300), (312, 300))):
        apart = pairs(*FIVE, one, other)
        assert swapped(apart) == [("p5", "p6")]
        assert not holds(apart)
        assert "NOT THE SAME: p5 and p6" in table(apart, [])


def test_policies_that_hardly_differ_prove_nothing() -> None:
    """An order of ties is none; neither is one of policies that only the simulation tells apart."""
    assert not holds(pairs((100, 100), (101, 101), (102, 102), (103, 103), (104, 104)))
    assert told_apart(pairs((100, 100), (101, 120), (102, 140))) == 1
    assert "TOO FEW" in table(pairs((100, 100), (101, 101)), [])


def test_figures_that_are_further_apart_than_a_tenth_do_not_hold() -> None:
    """Of TTFT as of hit rate."""
    assert not holds(pairs(*FIVE, (300, 335)))
    hits = [*pairs(*FIVE), Pair("hits", 300, 300, 0.5, 0.56)]
    assert not holds(hits)


def test_the_workload_tells_its_policies_apart() -> None:
    """In simulated time no two policies are near a tie."""
    ordered = sorted(ttft for ttft, _hits in simulated().values())
    assert all(later / before > 1 + 3 * TIE for before, later in pairwise(ordered))


def test_conversations_are_the_same_each_time_and_share_what_their_group_does() -> None:
    """The measurement and the simulation get one file."""
    lines = simulation_talks.conversations().split("\n")
    assert lines == simulation_talks.conversations().split("\n")
    systems = {json.loads(line)["messages"][0]["content"] for line in lines}
    assert len(lines) == simulation_talks.COUNT
    assert len(systems) == simulation_talks.GROUPS
