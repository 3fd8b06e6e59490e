"""What the benchmark's table may claim (rulings 28)."""

from __future__ import annotations

import math

import pytest

from bench.bars import BARS, Bar
from bench.results import Results

RATIO = Bar("cost against them", 0.6, lambda results: results.compare("unary", "ours", "theirs"))


def results(ours: list[float], theirs: list[float]) -> Results:
    found = Results()
    for name, values in (("ours", ours), ("theirs", theirs)):
        for value in values:
            found.add("unary", name, value)
    return found


def test_a_ratio_is_the_median_of_the_rounds_own_ratios() -> None:
    """A round in which the machine was slow for both counts no more than any other."""
    assert results([30, 90, 36], [60, 180, 60]).compare("unary", "ours", "theirs") == 0.5


@pytest.mark.parametrize(("ours", "verdict"), [(36.0, "met"), (36.1, "missed")])
def test_a_bar_is_met_up_to_its_limit(ours: float, verdict: str) -> None:
    """The limit itself is still met."""
    assert RATIO.verdict(results([ours], [60]))[1] == verdict


@pytest.mark.parametrize(("ours", "theirs"), [([30.0], []), ([], [60.0]), ([], [])])
def test_what_was_not_measured_is_never_met(ours: list[float], theirs: list[float]) -> None:
    """Without one of the two there is no figure and no claim."""
    assert RATIO.verdict(results(ours, theirs)) == ("–", "NOT MEASURED")


def test_nothing_measured_meets_no_bar() -> None:
    """Every bar of the table says so when nothing at all was measured."""
    assert {bar.verdict(Results())[1] for bar in BARS} == {"NOT MEASURED"}
    assert math.isnan(Results().value("unary 2 KB", "infera"))
