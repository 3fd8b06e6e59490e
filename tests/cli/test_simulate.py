"""`infera simulate` from the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Infera

SMALL = ("--dataset-name", "multi-turn", "--rate", "10", "-n", "60", "--isl", "100", "--osl", "16")


def test_policies_side_by_side(infera: Infera) -> None:
    """A line a policy, and the one that keeps conversations together finds more in its caches."""
    found = infera("simulate", "--workers", "4", "--policy", "session,round-robin", *SMALL, "-o", "json")
    assert found.code == 0
    session, turns = json.loads(found.out)["outcomes"]
    assert (session["policy"], turns["policy"]) == ("session", "round-robin")
    assert session["requests"] == turns["requests"] == 180
    assert session["hit_rate"] > 1.5 * turns["hit_rate"]


def test_the_same_seed_gives_the_same_bytes(infera: Infera) -> None:
    """Two simulations with one seed print the same JSON, another seed another."""
    first, again, other = (infera("simulate", *SMALL, "--random-range-ratio", "0.5", "-o", "json", "--seed", seed).out
                           for seed in ("1", "1", "2"))
    assert first == again
    assert first != other


def test_a_range_of_workers_answers_how_many(infera: Infera) -> None:
    """With limits, the fewest workers that keep them are found and said; one fewer does not keep them."""
    found = infera("simulate", "--workers", "1..16", "--goodput", "ttft:500", "tpot:12", *SMALL, "-o", "json")
    document = json.loads(found.out)
    fewest = document["replicas"]["session"]
    good = {one["workers"]: one["attainment"]["good"] / one["attainment"]["judged"] for one in document["outcomes"]}
    assert found.code == 0
    assert good[fewest] >= 0.95
    assert good.get(fewest - 1, 0.0) < 0.95


def test_limits_that_nobody_keeps_fail(infera: Infera) -> None:
    """When not even the most workers keep the limits, the sentence says so and the exit code is 1."""
    found = infera("simulate", "--workers", "1..2", "--goodput", "ttft:0.1", *SMALL)
    assert found.code == 1
    assert "session: no number of workers that was allowed keeps the limits" in found.out


def test_a_page_and_a_picture_are_written(infera: Infera, tmp_path: Path) -> None:
    """--html is one page without network assets, --plot an SVG, --result-filename the JSON."""
    page, plot, result = (tmp_path / name for name in ("a.html", "a.svg", "a.json"))
    found = infera("simulate", "--policy", "session,cost", *SMALL, "--html", str(page), "--plot", str(plot),
                   "--result-filename", str(result))
    assert found.code == 0
    text = page.read_text()
    assert text.count("<img") == 2
    assert 'src="http' not in text
    assert plot.read_text().startswith("<?xml")
    assert json.loads(result.read_bytes())["kind"] == "infera-simulation"


@pytest.mark.parametrize(("argv", "code", "said"), [
    (("--workers", "many"), 2, "--workers must look like 8 or 4..64, not 'many'"),
    (("--workers", "8..4"), 1, "--workers are at least 1"),
    (("--policy", "best"), 2, "--policy must be one of session,"),
    (("-c", "4", "-d", "10"), 1, "for callers say how many requests"),
    (("--dataset-name", "mooncake"), 1, "give --dataset-path"),
    (("--max-num-batched-tokens", "128"), 1, "such an engine cannot be"),
    (("--rate", "0"), 1, "--rate must be above 0"),
    (("-n", "10", "--blocks", "2"), 1, "not one request was served"),
    (("--html", "/nowhere/a.html"), 1, "there is no folder /nowhere"),
])
def test_what_cannot_be_simulated_is_refused(infera: Infera, argv: tuple[str, ...], code: int, said: str) -> None:
    """Bad input ends in one sentence and the exit code of rulings 5."""
    found = infera("simulate", *argv)
    assert found.code == code
    assert said in found.err


def test_a_simulation_has_no_verbs_in_its_usage(infera: Infera) -> None:
    """The first line of its help asks for options only."""
    assert infera("simulate", "--help").out.splitlines()[0] == "Usage: infera simulate [OPTIONS]"


def test_other_tools_names_of_a_trace_are_a_trace(infera: Infera, tmp_path: Path) -> None:
    """`timed_trace` is replayed at its own times, whole, as `mooncake` is."""
    trace = tmp_path / "trace.jsonl"
    row = {"input_length": 64, "output_length": 4, "hash_ids": []}
    trace.write_text("".join(json.dumps({"timestamp": 1000 * at, **row}) + "\n" for at in range(5)))
    found = infera("simulate", "--dataset-name", "timed_trace", "--dataset-path", str(trace), "-o", "json")
    assert json.loads(found.out)["outcomes"][0]["requests"] == 5


def test_a_trace_is_replayed_with_its_hits(infera: Infera, tmp_path: Path) -> None:
    """Rows of a Mooncake trace that share their first page find it cached the second time."""
    trace = tmp_path / "trace.jsonl"
    row = '{{"timestamp": {0}000, "input_length": 1024, "output_length": 8, "hash_ids": [7, 10{0}]}}\n'
    trace.write_text("".join(row.format(number) for number in range(1, 6)))
    data = ("--dataset-name", "mooncake", "--dataset-path", str(trace))
    found = infera("simulate", "--workers", "1", *data, "-o", "json")
    outcome = json.loads(found.out)["outcomes"][0]
    assert outcome["requests"] == 5
    assert outcome["cached_tokens"] == 4 * 512


def test_rows_of_a_trace_that_ask_for_nothing_are_told(infera: Infera, tmp_path: Path) -> None:
    """A row without output tokens is left out, and the report says so."""
    trace = tmp_path / "trace.csv"
    trace.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n2026-01-01 00:00:00,10,5\n2026-01-01 00:00:01,10,0\n")
    found = infera("simulate", "--dataset-name", "azure", "--dataset-path", str(trace))
    assert found.code == 0
    assert "1 rows of the trace" in found.out


@pytest.mark.parametrize("text", ["", ",", " , "])
def test_no_policy_is_none(infera: Infera, text: str) -> None:
    """An empty list of policies is not the default one: exit 2."""
    found = infera("simulate", "--policy", text)
    assert (found.code, found.out) == (2, "")
    assert "--policy must be one of" in found.err


def test_fewer_workers_may_keep_limits_that_more_do_not(infera: Infera) -> None:
    """With turns each of many workers has to see the common prefix once, which is slow: one worker is the answer."""
    load = ("--dataset-name", "prefix", "--prefix-groups", "1", "--prefix-len", "4000", "--isl", "10", "--osl", "5",
            "--rate", "1", "-n", "100", "--goodput", "ttft:100", "--policy", "round-robin", "-o", "json")
    found = infera("simulate", "--workers", "1..64", *load)
    assert found.code == 0
    assert json.loads(found.out)["replicas"] == {"round-robin": 1}
    assert infera("simulate", "--workers", "64", *load).out.count('"good"') == 1


def test_pauses_of_callers_take_their_time(infera: Infera) -> None:
    """Two callers with ten requests each and five seconds between them: more than 45 seconds."""
    load = ("simulate", "--workers", "2", "-c", "2", "-n", "20", "--isl", "100", "--osl", "10", "-o", "json")
    without, with_them = (json.loads(infera(*load, *more).out)["outcomes"][0]["window_s"]
                          for more in ((), ("--think-time", "5")))
    assert without < 5
    assert with_them == pytest.approx(without + 45, abs=1)


@pytest.mark.parametrize(("speed", "seconds"), [("1", 60), ("4", 15)])
def test_rows_of_a_session_keep_their_times(infera: Infera, tmp_path: Path, speed: str, seconds: float) -> None:
    """Its three rows at 0, 30 and 60 seconds are no load of one after the other."""
    trace = tmp_path / "trace.jsonl"
    row = {"session_id": "s", "input_length": 64, "output_length": 4}
    trace.write_text("".join(json.dumps({"timestamp": at, **row}) + "\n" for at in (0, 30_000, 60_000)))
    found = infera("simulate", "--workers", "1", "--dataset-name", "mooncake", "--dataset-path", str(trace),
                   "--speed", speed, "-o", "json")
    assert json.loads(found.out)["outcomes"][0]["window_s"] == pytest.approx(seconds, abs=1)


def test_a_dataset_that_is_sent_again_is_told_and_is_no_cache_hit(infera: Infera, tmp_path: Path) -> None:
    """Rows of a trace without ids have nothing in common, however often they come."""
    trace = tmp_path / "trace.csv"
    trace.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n" + "2026-01-01 00:00:00,900,5\n" * 2)
    load = ("simulate", "--workers", "1", "--dataset-name", "azure", "--dataset-path", str(trace), "-c", "1",
            "-n", "20")
    assert json.loads(infera(*load, "-o", "json").out)["outcomes"][0]["cached_tokens"] == 0
    assert "the dataset has 2 rows and was sent again after the last" in infera(*load).out


def test_limits_that_are_kept_by_a_hair_are_kept(infera: Infera, tmp_path: Path) -> None:
    """A hundred requests of a thousand fit no engine: with 90 % wanted, all others within the limit are enough."""
    trace = tmp_path / "trace.jsonl"
    trace.write_text("".join(json.dumps({
        "timestamp": 50 * number, "input_length": 500_000 if number < 100 else 1000, "output_length": 100}) + "\n"
        for number in range(1000)))
    found = infera("simulate", "--workers", "1..8", "--policy", "round-robin", "--dataset-name", "mooncake",
                   "--dataset-path", str(trace), "--goodput", "e2el:1500", "--attainment", "0.9", "-o", "json")
    document = json.loads(found.out)
    good = {one["workers"]: one["attainment"]["good"] for one in document["outcomes"]}
    assert (document["replicas"], good[3], good[2] < 900) == ({"round-robin": 3}, 900, True)


@pytest.mark.parametrize(("asked", "load"), [
    (("-n", "30"), "load: 30, all at once · random, 1024 tokens and 128 of answer · seed 1"),
    (("--rate", "5", "-d", "10", "--isl", "64"), "load: requests, 5 a second for 10 s · random, 64 tokens"),
    (("-c", "2", "-n", "5", "--seed", "3"), "load: 5 from 2 callers · random, 1024 tokens and 128 of answer · seed 3"),
    (("--ramp-up-strategy", "linear", "--ramp-up-start-rps", "1", "--ramp-up-end-rps", "9", "-n", "9"),
     "load: 9, 1 to 9 a second"),
])
def test_the_table_says_what_was_simulated(infera: Infera, asked: tuple[str, ...], load: str) -> None:
    """Load, engines and limits stand above it."""
    found = infera("simulate", *asked, "--goodput", "ttft:500").out
    assert found.startswith(load)
    assert "engines: 20,000 prompt tokens/s, a step 8 ms and 0.1 ms a sequence, 8,192 blocks of 16 tokens" in found
    assert "limits: ttft ≤ 500 ms, for 95% of the requests" in found
