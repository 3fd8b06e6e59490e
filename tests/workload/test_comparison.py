"""Comparisons with confidence, and the search for the most load."""

from __future__ import annotations

import math
from random import Random

import pytest

from infera_cli.errors import ConfigError, InferaError, UsageError
from infera_cli.workload import text
from infera_cli.workload.arrivals import OpenLoop, planned
from infera_cli.workload.comparison import Row, compare, spread
from infera_cli.workload.figures import Figures
from infera_cli.workload.goodput import parse
from infera_cli.workload.measures import Tally
from infera_cli.workload.search import PATIENCE, Least, Search, least_level, wilson
from tests.workload.samples import failure, sample


def run(seed: int, scale: float = 1.0, requests: int = 800) -> Figures:
    dice = Random(seed)
    ttfts = [scale * dice.lognormvariate(-2, 0.5) for _ in range(requests)]
    return Tally().update(sample(n * 0.1, ttft, (0.02,)) for n, ttft in enumerate(ttfts)).figures()


def rows(a: list[Figures], b: list[Figures]) -> dict[tuple[str, str], Row]:
    return {(row.metric, row.statistic): row for row in compare(a, b, text.dice(1))}


def test_a_real_change_is_called_one() -> None:
    """15 % more TTFT is worse, 15 % less is better, and the interval holds the truth."""
    slower = rows([run(1)], [run(2, 1.15)])["ttft", "mean"]
    assert slower.verdict == "worse"
    assert slower.low is not None
    assert slower.high is not None
    assert slower.low < 0.15 < slower.high
    assert rows([run(1)], [run(2, 0.85)])["ttft", "p50"].verdict == "better"


def test_noise_is_not_called_a_change() -> None:
    """Two runs of the same thing differ clearly in few of many comparisons."""
    verdicts = [rows([run(2 * n)], [run(2 * n + 1)])["ttft", "mean"].verdict for n in range(6)]
    assert verdicts.count("no clear difference") >= 5


def test_a_comparison_follows_from_its_seed() -> None:
    """The same files and seed give the same intervals."""
    assert rows([run(1)], [run(2)]) == rows([run(1)], [run(2)])


def test_rates_need_repetitions_for_an_interval() -> None:
    """A single run has no spread of its throughput; three have."""
    assert rows([run(1)], [run(2)])["overall_requests", "rate"].verdict == "repeat for an interval"
    repeated = rows([run(n) for n in range(3)], [run(n + 9, requests=500) for n in range(3)])
    assert repeated["overall_requests", "rate"].low is not None


def test_the_spread_between_repetitions_widens_the_interval() -> None:
    """Repetitions that disagree make a difference unclear that single runs would call."""
    a = [run(1, 0.7), run(2, 1.0), run(3, 1.3)]
    b = [run(4, 0.8), run(5, 1.1), run(6, 1.4)]
    assert rows(a, b)["ttft", "mean"].verdict == "no clear difference"


def broken(ok: int, bad: int) -> Figures:
    return Tally().update([*(sample() for _ in range(ok)), *(failure("http_500") for _ in range(bad))]).figures()


def test_failures_are_compared() -> None:
    """None of 100 against 30 of 100 is worse by 30 points, Newcombe's 0.211 to 0.396; 1 of 100 is not clear."""
    found = rows([broken(100, 0)], [broken(70, 30)])["failed", "share"]
    assert (found.counts, found.verdict, found.change) == ((0, 100, 30, 100), "worse", 0.3)
    assert [found.low, found.high] == pytest.approx([0.211, 0.396], abs=0.002)
    assert rows([broken(70, 30)], [broken(100, 0)])["failed", "share"].verdict == "better"
    assert rows([broken(100, 0)], [broken(99, 1)])["failed", "share"].verdict == "no clear difference"


def test_failures_of_repetitions_count_together() -> None:
    """Three repetitions are one sample of requests, and a run of nothing but failures still has its row."""
    found = rows([broken(10, 0)] * 3, [broken(0, 10)] * 3)
    assert found["failed", "share"].counts == (0, 30, 30, 30)
    assert ("ttft", "mean") not in found


def test_spread_of_repetitions_is_students_interval() -> None:
    """1, 2, 3 is 2 ± 4.303 / √3; one value has none."""
    found = spread([1, 2, 3])
    assert found.mean == 2
    assert found.half_width == pytest.approx(4.303 / 3**0.5)
    assert spread([5]).half_width is None


@pytest.mark.parametrize(("words", "fault"), [
    ("ttft", UsageError), ("ttft:", UsageError), ("itl:5", UsageError), (":5", UsageError), ("ttft:0", ConfigError),
    ("ttft:-1", ConfigError), ("ttft:nan", ConfigError), ("ttft:inf", ConfigError),
])
def test_bad_limits_are_refused(words: str, fault: type[InferaError]) -> None:
    """A limit is a known name and a positive number of milliseconds; what is no limit does not parse."""
    with pytest.raises(fault):
        parse([words])


def test_wilson_intervals_are_known_values() -> None:
    """8 of 10 is 0.490 to 0.943; nothing observed says nothing."""
    assert wilson(8, 10) == pytest.approx((0.490, 0.943), abs=0.001)
    assert wilson(0, 0) == (0.0, 1.0)


@pytest.mark.parametrize("limit", [1, 3, 13, 37, 100])
def test_the_search_closes_in_on_the_limit(limit: int) -> None:
    """Levels up to the limit pass and those above fail: the interval found holds it, within a tenth."""
    search = Search(0.95)
    while (level := search.next_level) is not None:
        search.tell(1000 if level <= limit else 0, 1000)
    assert search.high is not None
    assert search.low <= limit < search.high
    assert search.high - search.low <= max(1, 0.1 * search.low + 0.5)


@pytest.mark.parametrize("limit", [0.9, 0.4, 0.02])
def test_a_rate_below_one_is_found(limit: float) -> None:
    """Half as much while it fails, then the middle: 0.4 requests a second have an interval, too."""
    search = Search(0.95, least=least_level("rate", None))
    levels = []
    while (level := search.next_level) is not None:
        levels.append(level)
        search.tell(1000 if level <= limit else 0, 1000)
    assert levels[:2] == [1, 0.5]
    assert len(levels) <= 11
    assert search.high is not None
    assert search.low <= limit < search.high
    assert search.high - search.low <= 0.1 * search.low


@pytest.mark.parametrize(("kind", "duration", "least"), [
    ("concurrency", None, 1), ("concurrency", 4.0, 1), ("rate", None, 1 / 64), ("rate", 8.0, 1 / 2),
    ("rate", 7.0, 0.572), ("rate", 600.0, 1 / 64)])
def test_a_search_goes_down_to_what_a_probe_can_show(kind: str, duration: float | None, least: float) -> None:
    """Callers are whole; of a rate, a probe must hold some requests; what keeps no limit at the least keeps none."""
    assert least_level(kind, duration).level == least
    search = Search(0.95, least=least_level(kind, duration))
    while search.next_level is not None:
        search.tell(0, 100)
    assert (search.low, search.high) == (0, least)


@pytest.mark.parametrize("duration", [0.01, 0.5, 1.5, 2.0, 3.0, 4.0, 7.0, 10.0, 60.0, 300.0])
@pytest.mark.parametrize("limit", [0.02, 0.3, 0.7, 1.0, 2.5, 9.5, 300])
def test_no_two_probes_of_rates_are_the_same_requests(duration: float, limit: float) -> None:
    """Of 4 s, 0.25 and 0.375 requests a second are one request each: a search has nothing to compare there."""
    search = Search(0.95, least=least_level("rate", duration))
    plans = []
    while (level := search.next_level) is not None:
        plans.append(planned(OpenLoop(level, duration=duration)))
        assert level == int(level) or level < 1
        search.tell(1000 if level <= limit else 0, 1000)
    assert min(plans) >= 4
    assert len(set(plans)) == len(plans)
    assert search.low <= limit < (search.high or math.inf)


def test_a_search_of_all_requests_passes_where_all_were_good() -> None:
    """Of 100%: a level passes when all requests of its probes were good, and one that was not fails it."""
    search = Search(1.0, ceiling=4)
    assert [search.tell(100, 100) for _ in range(PATIENCE)] == ["again", "again", "pass"]
    assert search.tell(100, 100) == "again"
    assert search.tell(99, 100) == "fail"
    assert (search.low, search.high, search.next_level) == (1, 2, None)


@pytest.mark.parametrize("many", range(1, 500))
def test_an_interval_of_all_or_none_ends_exactly_there(many: int) -> None:
    """Rounding leaves no gap between all good requests and 100%, nor between none and 0%."""
    assert wilson(many, many)[1] == 1.0
    assert wilson(0, many)[0] == 0.0


def test_sound_probes_decide_when_others_were_spoiled() -> None:
    """Twice 97% of 200 and one INVALID probe: by the sound ones 95% is kept, and by these 94% is not."""
    for good, verdict in ((194, "pass"), (188, "fail")):
        search = Search(0.95)
        probes = [(good, True), (good, True), (200, False)]
        assert [search.tell(many, 200, sound=sound) for many, sound in probes] == ["again", "again", verdict]


@pytest.mark.parametrize("sound", [True, False])
def test_a_probe_of_which_nothing_could_be_judged_is_repeated(sound: bool) -> None:
    """All answers were cut off: again, at most three times in all; then the level has not passed, for no reason."""
    search = Search(0.95)
    assert [search.tell(0, 0, sound=sound) for _ in range(PATIENCE)] == ["again", "again", "fail"]
    assert (search.evidence[1].judged, search.evidence[1].empty, search.next_level) == (0, PATIENCE, None)
    once = Search(0.5)
    assert [once.tell(0, 0, sound=sound), once.tell(100, 100)] == ["again", "pass"]
    assert Least().level == 1


def test_a_probe_that_the_load_generator_spoiled_shows_of_no_level_that_it_is_kept() -> None:
    """INVALID: once more, at most three times in all, then it counts as not kept; what it missed, it missed."""
    search = Search(0.95)
    probes = [(100, True), (100, False), (100, True)]
    assert [search.tell(good, 100, sound=sound) for good, sound in probes] == ["pass", "again", "pass"]
    assert (search.low, search.evidence[2].judged) == (2, 100)
    assert [search.tell(100, 100, sound=False) for _ in range(3)] == ["again", "again", "fail"]
    assert (search.high, search.next_level) == (4, 3)
    assert search.tell(0, 100, sound=False) == "fail"


def test_an_undecided_level_is_probed_again() -> None:
    """Evidence that straddles the target is added to, at most three times, then the share decides."""
    search = Search(0.9)
    assert [search.tell(9, 10) for _ in range(3)] == ["again", "again", "pass"]
    assert search.evidence[1].judged == 30


def test_a_search_ends_when_nothing_passes_or_nothing_fails() -> None:
    """A first level that fails ends it; without a failure the ceiling does."""
    hopeless = Search(0.95)
    hopeless.tell(0, 100)
    assert (hopeless.next_level, hopeless.low, hopeless.high) == (None, 0, 1)
    easy = Search(0.5, ceiling=4)
    while easy.next_level is not None:
        easy.tell(100, 100)
    assert (easy.low, easy.high) == (4, None)
    with pytest.raises(ValueError, match="over"):
        easy.tell(1, 1)
