"""Whole runs: rates, windows, processes, cache policies, stalls."""

from __future__ import annotations

import math
import os
from pathlib import Path
from threading import Thread, Timer
from time import perf_counter
from typing import Any

import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

from infera_cli.errors import ConfigError, InferaError, ServerUnreachable, UsageError
from infera_cli.loadtest.bench import Bench
from infera_cli.loadtest.job import DatasetSpec
from infera_cli.loadtest.options import Options, seed_for
from infera_cli.report import rows as report
from infera_cli.workload.figures import imbalance
from infera_cli.workload.goodput import parse
from infera_cli.workload.measures import Tally
from infera_cli.workload.result import Client, Run
from infera_cli.workload.verdict import Circumstances, judge
from tests.loadtest.runs import SHORT, Quiet, document, prompts, rows, run
from tests.support.timed_target import DONE, FINISH, RESET, Got, Script, TimedTarget, stream, text, usage
from tests.workload.samples import sample


def repeated_prefixes(got: list[Got], words: int = 64) -> int:
    """How many prompts begin with 64 tokens that were sent before."""
    beginnings = [" ".join(one.prompt().split()[:words]) for one in got]
    return len(beginnings) - len(set(beginnings))


def test_r157_failed_requests_are_apart() -> None:
    """80 ok of 100 ms, 10 answers of 500 after 5 ms, 10 resets after 3 tokens: latency over the 80, 800 tokens."""

    def reply(got: Got) -> Script:
        if got.number % 10 == 3:
            return Script([(0.005, b"{}")], status=500, kind="application/json")
        if got.number % 10 == 7:
            return Script([(0.02, text("a") + text("b") + text("c")), (0.05, RESET)])
        return Script([(0.1, b"".join(text("w") for _ in range(10))), (0.1, FINISH + usage(10) + DONE)])

    with TimedTarget(reply) as target:
        found = run(target.url, rate=100.0, burstiness=math.inf, count=100)
    counts, latency = found.figures.counts, found.figures.latency
    assert (counts.ok, counts.failed, counts.output_tokens) == (80, 20, 800)
    assert counts.failures == {"http_500": 10, "reset": 10}
    assert latency["ttft"].n == latency["e2el"].n == 80
    assert latency["e2el"].min >= 0.1


def test_r158_tokens_of_open_streams_count() -> None:
    """Ten endless streams of 50 tok/s cut off at the end: 500 tok/s, 0 complete, 10 incomplete, 0 failed."""
    endless = Script([(0.02 * n, text("w")) for n in range(1, 1000)])
    with TimedTarget(lambda _got: endless) as target:
        found = run(target.url, concurrency=10, duration=2.0, grace=0.0)
    counts, rates = found.figures.counts, found.figures.rates
    assert (counts.ok, counts.failed, counts.incomplete) == (0, 0, 10)
    assert rates.overall_output_tokens == pytest.approx(500, abs=25)
    assert rates.overall_requests == 0
    assert found.verdict.exit_code in (0, 4)


def test_r160_overall_and_steady_rate_have_their_own_names() -> None:
    """20 at once, the first done at 0.5 s and then one every 50 ms: 20/1.45 overall, 20 between completions."""

    def reply(got: Got) -> Script:
        return stream(0.5 + 0.05 * got.number, 0.0, 1)

    with TimedTarget(reply) as target:
        rates = run(target.url, count=20).figures.rates
    assert rates.overall_requests == pytest.approx(20 / 1.45, rel=0.05)
    assert rates.between_completions == pytest.approx(20, rel=0.05)


def test_r164_prompts_of_runs_and_sweep_points_are_new() -> None:
    """Two runs with the same options and the three points of a sweep share no 64-token prefix; of one seed they do."""
    spec = DatasetSpec(input_len=80, output_len=2)
    with TimedTarget(lambda _got: stream(0.001, 0.0, 1)) as target:
        for _ in range(2):
            run(target.url, dataset=spec, count=10, concurrency=10)
        swept = document(target.url, dataset=spec, count=10, sweep=("concurrency", (2.0, 5.0, 10.0)))
        assert len(target.got) == 50
        assert repeated_prefixes(target.got) == 0
        assert [found.cell for found in swept.runs] == ["concurrency=2", "concurrency=5", "concurrency=10"]
        for _ in range(2):
            run(target.url, dataset=spec, count=10, concurrency=10, seed=5)
        assert repeated_prefixes(target.got) == 10


def test_r166_what_is_sent_is_as_long_as_asked() -> None:
    """Input 256 behind a prefix of 128: 384 tokens, the first 128 common; the report has both lengths."""
    with TimedTarget(lambda _got: stream(0.001, 0.0, 1, prompt=390)) as target:
        found = run(target.url, dataset=DatasetSpec(input_len=256, prefix_len=128, output_len=2), count=20)
    sent = [got.prompt().split() for got in target.got]
    assert {len(words) for words in sent} == {384}
    assert len({tuple(words[:128]) for words in sent}) == 1
    assert len({tuple(words[128:]) for words in sent}) == 20
    assert found.figures.sizes["asked_input_tokens"].mean == 384
    assert found.figures.sizes["input_tokens"].mean == 390


def test_r167_a_stall_is_in_the_figures() -> None:
    """Open loop 50 req/s for 4 s, frozen for 0.8 s: all 200 are sent, from-schedule p90 and max show the stall."""
    watcher = Quiet()
    with TimedTarget(lambda _got: stream(0.01, 0.0, 1)) as target:
        first: list[float] = []

        def reply(_got: Got) -> Script:
            if not first:
                first.append(perf_counter())
                target.freeze(first[0] + 1.6, first[0] + 2.4)
            return stream(0.01, 0.0, 1)

        target._reply = reply
        found = document(target.url, watcher=watcher, rate=50.0, burstiness=math.inf, duration=4.0).runs[0]
    late = found.figures.latency["e2el_sched"]
    assert found.figures.counts.sent == 200
    assert late.p90 >= 0.38
    assert late.max >= 0.77
    assert watcher.plans[0].requests == 200


def test_r173_two_processes_are_merged() -> None:
    """With two processes every planned request is sent once, and percentiles are those of all samples."""
    with TimedTarget(lambda got: stream(0.4 if got.number % 10 == 0 else 0.05, 0.0, 1)) as target:
        found = run(target.url, rate=50.0, burstiness=math.inf, count=100, processes=2)
    ttft = found.figures.latency["ttft"]
    assert (found.figures.counts.sent, found.client.processes) == (100, 2)
    assert len({got.prompt() for got in target.got}) == 100
    assert ttft.p50 == pytest.approx(0.05, abs=0.03)
    assert ttft.p95 == pytest.approx(0.4, abs=0.05)


def test_conversations_feed_answers_back(tmp_path: Path) -> None:
    """The second turn carries the first answer, keeps the session id and waits its pause."""
    details = tmp_path / "requests.jsonl"
    with TimedTarget(lambda _got: stream(0.02, 0.01, 3)) as target:
        spec = DatasetSpec(name="multi-turn", input_len=5, output_len=3, turns=2, think=0.2)
        found = run(target.url, details=details, dataset=spec, concurrency=2, count=2)
    second = [got for got in target.got if len(got.body["messages"]) == 3]
    assert found.figures.counts.sent == 4
    assert {got.body["messages"][1]["content"] for got in second} == {" w0 w1 w2"}
    assert len({got.headers["x-session-id"] for got in target.got}) == 2
    turns = [row for row in rows(details) if row["turn"] == 1]
    assert all(row["due"] >= 0.2 for row in turns)


def test_a_cap_on_open_requests_shows_the_wait() -> None:
    """At 40 req/s with two places and answers of 0.1 s, waiting is in the queue and from-schedule figures."""
    with TimedTarget(lambda _got: stream(0.1, 0.0, 1)) as target:
        found = run(target.url, rate=40.0, burstiness=math.inf, count=20, max_concurrency=2)
    latency = found.figures.latency
    assert found.figures.concurrency.peak == 2
    assert latency["queue"].max == pytest.approx(0.5, abs=0.1)
    assert latency["ttft"].max < 0.2
    assert latency["ttft_sched"].max > 0.4
    assert any("waited for a free place" in warning for warning in found.verdict.warnings)


def test_warm_up_and_warm_cache_are_not_measured() -> None:
    """Warm-up sends other prompts, the warm policy the very ones; only the plan is in the figures."""
    spec = DatasetSpec(input_len=70, output_len=2)
    with TimedTarget(lambda _got: stream(0.001, 0.0, 1)) as target:
        found = run(target.url, dataset=spec, count=5, warmups=3, cache="warm")
    assert found.figures.counts.sent == 5
    assert len(target.got) == 13
    assert repeated_prefixes(target.got) == 5


def test_direct_measures_the_workers_in_the_same_run() -> None:
    """Every second request goes past the router; both are reported, the router's with its split."""
    headers = {"X-Infera-Worker": "w1", "Server-Timing": "queue;dur=1.0, pick;dur=0.5, upstream;dur=50"}

    def routed(_got: Got) -> Script:
        return Script(stream(0.08, 0.01, 3).steps, headers=headers)

    with TimedTarget(routed) as router, TimedTarget(lambda _got: stream(0.05, 0.01, 3)) as worker:
        router.workers = [{"worker_id": "w1", "url": worker.url, "status": "active"}]
        found = run(router.url, count=20, rate=40.0, direct=())
    assert found.direct is not None
    assert (found.figures.counts.sent, found.direct.counts.sent) == (10, 10)
    assert found.figures.latency["ttft"].p50 - found.direct.latency["ttft"].p50 == pytest.approx(0.03, abs=0.015)
    assert found.figures.router["upstream"].mean == pytest.approx(0.05)
    assert found.figures.router["client_to_router"].p50 == pytest.approx(0.03, abs=0.015)
    assert imbalance(found.figures.workers) == 1


def test_the_direct_half_goes_its_own_way() -> None:
    """In step with a router that takes turns, each half would meet the other's requests: which of two arrivals goes
    past it, and to which worker, are dice of the seed, and every worker gets its share."""
    with TimedTarget(lambda _got: stream(0.001, 0.0, 1)) as router, TimedTarget(
            lambda _got: stream(0.001, 0.0, 1)) as one, TimedTarget(lambda _got: stream(0.001, 0.0, 1)) as two:
        run(router.url, count=80, concurrency=4, direct=(one.url, two.url), seed=1)
        shares = [len(target.got) for target in (router, one, two)]
        order = sorted((got.at, place) for place, each in enumerate((router, one, two)) for got in each.got)
    ways = [place for _at, place in order]
    assert shares[0] == 40
    assert min(shares[1:]) >= 10
    assert len({tuple(ways[at : at + 4]) for at in range(0, 80, 4)}) > 4


def test_hits_that_the_router_predicted_stand_beside_the_real_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a router of ours expected before and after the run; elsewhere nothing is claimed."""
    said = iter([100.0, 148.0])
    monkeypatch.setattr("infera_cli.loadtest.caches.predicted", lambda _options, _about: next(said))
    with TimedTarget(lambda _got: stream(0.0, 0.0, 2)) as target:
        found = run(target.url, count=4, concurrency=1)
        assert found.target["predicted_cached_tokens"] == 48.0
        shown = {fact.label: fact.value for fact in report.cache(found)}
        assert shown["prefix-cache hits, predicted by the router"] == 4800 / (found.figures.counts.input_tokens or 0)
        monkeypatch.undo()
        assert "predicted_cached_tokens" not in run(target.url, count=1, concurrency=1).target


def test_hits_predicted_during_the_warm_up_are_not_among_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan that is sent twice, --cache warm, would have more predicted hits than it has tokens."""
    with TimedTarget(lambda _got: stream(0.0, 0.0, 2)) as target:
        monkeypatch.setattr("infera_cli.loadtest.caches.predicted", lambda _options, _about: float(len(target.got)))
        found = run(target.url, count=4, concurrency=2, cache="warm", warmups=3)
        assert len(target.got) == 4 + 4 + 3
        assert found.target["predicted_cached_tokens"] == 4.0


def test_a_trace_is_replayed_at_its_times(tmp_path: Path) -> None:
    """Three rows at 0, 1 and 2 s at speed 5 arrive at 0, 0.2 and 0.4 s."""
    path = tmp_path / "trace.jsonl"
    path.write_text("".join(
        f'{{"timestamp": {at}, "input_length": 4, "output_length": 2, "hash_ids": [1]}}\n' for at in (0, 1000, 2000)))
    with TimedTarget(lambda _got: stream(0.001, 0.0, 1)) as target:
        found = run(target.url, dataset=DatasetSpec(name="mooncake", path=str(path)), speed=5.0)
    start = target.got[0].at
    assert [got.at - start for got in target.got] == pytest.approx([0, 0.2, 0.4], abs=0.03)
    assert found.figures.counts.planned == 3


@pytest.mark.parametrize(("speed", "took", "times"), [
    (1.0, 0.0, [0, 0.4, 0.8]), (4.0, 0.0, [0, 0.1, 0.2]), (1.0, 0.5, [0, 0.5, 1.0])])
def test_turns_of_a_session_are_replayed_at_their_times(
    tmp_path: Path, speed: float, took: float, times: list[float]
) -> None:
    """At their own, or when the answer before has come: the wait for that is a figure of its own, no late send."""
    path = tmp_path / "trace.jsonl"
    path.write_text("".join(
        f'{{"timestamp": {at}, "input_length": 4, "output_length": 2, "session_id": "s"}}\n' for at in (0, 400, 800)))
    with TimedTarget(lambda _got: stream(took, 0.0, 1)) as target:
        found = run(target.url, dataset=DatasetSpec(name="mooncake", path=str(path)), speed=speed)
    start = target.got[0].at
    assert [got.at - start for got in target.got] == pytest.approx(times, abs=0.05)
    late = max(0.0, times[2] - 0.8 / speed)
    assert found.figures.latency["predecessor"].max == pytest.approx(late, abs=0.05)
    assert found.figures.latency["queue"].max == 0
    assert not any("free place" in said for said in found.verdict.warnings)
    assert found.figures.latency["ttft_sched"].max == pytest.approx(took + late, abs=0.08)


def test_itl_is_weighted_by_the_tokenizer(tmp_path: Path) -> None:
    """Three tokens in a later chunk, 90 ms after the first: ICL 90 ms, ITL 30 ms, and TPOT without the first's two."""
    vocabulary = Tokenizer(WordLevel({"a": 0, "b": 1, "[UNK]": 2}, unk_token="[UNK]"))
    vocabulary.pre_tokenizer = Whitespace()
    vocabulary.save(str(tmp_path / "tokenizer.json"))
    script = Script([(0.02, text("a b")), (0.11, text(" a a b")), (0.11, FINISH + usage(5) + DONE)])
    with TimedTarget(lambda _got: script) as target:
        latency = run(target.url, count=3, concurrency=1, tokenizer=str(tmp_path)).figures.latency
    found = [latency[name].p50 for name in ("icl", "itl", "tpot", "tpot_adj")]
    assert found == pytest.approx([0.09, 0.03, 0.0225, 0.03], abs=0.003)


def test_a_dataset_from_a_pipe_is_read_once(tmp_path: Path) -> None:
    """Two processes load what comes through a pipe; each would wait for ever for a second writer."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    content = '{"prompt": "hello"}\n{"prompt": "line\u2028separator"}\n'
    Thread(target=pipe.write_text, args=(content,), daemon=True).start()
    with TimedTarget(lambda _got: stream(0.001, 0.0, 1)) as target:
        found = run(target.url, dataset=DatasetSpec(name="openai", path=str(pipe)), processes=2, count=4, concurrency=2)
    assert found.figures.counts.ok == 4


def test_long_prompts_of_a_trace_are_made_for_who_sends_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever reads the times of a trace makes no text: it would take longer than a request may be late."""
    path = tmp_path / "trace.jsonl"
    path.write_text("".join(
        f'{{"timestamp": {at}, "input_length": 9, "output_length": 1}}\n' for at in (0, 10, 20)))
    made: list[int] = []
    monkeypatch.setattr("infera_cli.workload.traces.Trace.item", lambda _self, index: made.append(index))
    with TimedTarget(lambda _got: stream(0.001, 0.0, 1)) as target:
        found = run(target.url, dataset=DatasetSpec(name="mooncake", path=str(path)))
    assert (found.figures.counts.ok, made) == (3, [])


@pytest.mark.parametrize(("cache", "cell", "same"), [
    ("cold", "", True), ("cold", "rate=1", False), ("warm", "rate=1", False), ("as-is", "rate=1", True)])
def test_r164_a_given_seed_gives_the_same_prompts_again(cache: str, cell: str, same: bool) -> None:
    """A single run has the seed that was given, a sweep point one that follows from it, unless caches stay as-is."""
    options = Options("http://x", cache=cache)
    assert seed_for(options, 5, cell, 0) == seed_for(options, 5, cell, 0)
    assert (seed_for(options, 5, cell, 0) == 5) is same


def test_the_search_finds_the_most_load(monkeypatch: pytest.MonkeyPatch) -> None:
    """A target that keeps to the limit for up to five callers: the search says between five and six."""
    levels: list[int] = []

    def once(self: Bench, cell: str, repeat: int, options: Options) -> Run:
        levels.append(options.concurrency or 0)
        good = 0.1 if levels[-1] <= 5 else 0.9
        found = Tally(options.slos).update(sample(n, good) for n in range(200)).figures()
        return Run(cell, repeat, "", False, {}, {}, Client("", 1, 0, 0, ""), found, None, judge(found, Circumstances()))

    monkeypatch.setattr(Bench, "_once", once)
    with TimedTarget(lambda _got: stream(0.0, 0.0, 1)) as target:
        found = document(target.url, count=200, find_max="concurrency", slos=parse(["ttft:300"])).findings["find_max"]
    assert levels == [1, 2, 4, 8, 6, 5]
    assert (found["passed"], found["failed"], found["finished"]) == (5, 6, True)


def test_a_sweep_of_rates_may_be_limited_by_time() -> None:
    """The rates are those of the sweep, so a duration is enough; a rate that cannot be is told before any load."""
    with TimedTarget(lambda _got: stream(0.0, 0.0, 1)) as target:
        found = document(target.url, sweep=("rate", (20.0, 40.0)), duration=0.3, allow_degraded=True)
        assert [(one.cell, one.figures.counts.planned) for one in found.runs] == [("rate=20", 6), ("rate=40", 12)]
        sent = len(target.got)
        with pytest.raises(ConfigError, match="above 0"):
            document(target.url, sweep=("rate", (20.0, 0.0)), duration=0.3)
        assert len(target.got) == sent


def test_an_unreachable_target_is_told_before_the_load() -> None:
    """Nobody listens: one sentence with the address."""
    with pytest.raises(ServerUnreachable, match=r"cannot reach 127\.0\.0\.1:9"):
        run("http://127.0.0.1:9", count=1)


@pytest.mark.parametrize(("options", "fault", "words"), [
    ({"model": "other"}, ConfigError, "does not serve 'other', but m"),
    ({"rate": 1.0, "concurrency": 1, "count": 1}, ConfigError, "rate or"),
    ({"dataset": DatasetSpec(name="nope")}, UsageError, "no dataset 'nope'"),
    ({"direct": (), "count": 1}, ConfigError, "list its workers"),
    ({"dataset": DatasetSpec(name="openai")}, ConfigError, "give --dataset-path"),
    ({"find_max": "rate", "count": 1}, ConfigError, "--goodput"),
    ({"dataset": DatasetSpec(name="openai", path="/nowhere/x")}, ConfigError, "cannot read"),
    ({"dataset": DatasetSpec(name="openai", path="rows", content='{"messages": [{"role": "user"}]}'),
      "dialect": "completions"}, ConfigError, "rows: request 1 has messages"),
    ({"cache": "warm", "concurrency": 2, "duration": 1.0}, ConfigError, "to warm the cache"),
    ({"rate": 0.01, "duration": 1.0}, ConfigError, "not one request is due"),
    ({"tokenizer": "/nowhere"}, ConfigError, "tokenizer"),
])
def test_bad_input_is_told_before_the_load(options: dict[str, Any], fault: type[InferaError], words: str) -> None:
    """Wrong models, datasets, rates and missing limits end in words of the right class; nothing is sent."""
    with TimedTarget(lambda _got: stream(0.0, 0.0, 1)) as target:
        with pytest.raises(fault, match=words):
            run(target.url, **options)
        assert target.got == []


def test_a_target_that_dies_in_mid_run_is_a_failure(tmp_path: Path) -> None:
    """Streams that break off when the target ends are failures, and later requests cannot connect."""
    with TimedTarget(lambda _got: stream(0.02, 0.05, 40)) as target:
        url = target.url

        class Killer(Quiet):
            def goes(self, progress: list[object]) -> None:  # type: ignore[override]
                if any(one.state == "running" and one.open for one in progress):  # type: ignore[attr-defined]
                    target.close()

        found = document(url, watcher=Killer(), rate=20.0, duration=1.5, dataset=SHORT).runs[0]
    assert found.figures.counts.ok == 0
    assert found.figures.counts.failed == found.figures.counts.sent
    assert "connect" in found.figures.counts.failures
    assert found.verdict.exit_code == 1


def test_file_prompts_are_salted_in_a_cold_run(tmp_path: Path) -> None:
    """Prompts of a file begin with a salt of the run, so that the next run finds no cache."""
    with TimedTarget(lambda _got: stream(0.001, 0.0, 1)) as target:
        run(target.url, dataset=prompts(tmp_path, ["a", "b"]), count=2)
        salts = {got.body["messages"][0]["content"] for got in target.got}
        run(target.url, dataset=prompts(tmp_path, ["a", "b"]), count=2)
    assert len(salts) == 1
    assert target.got[-1].body["messages"][0]["content"] not in salts


def test_a_target_without_models_yet_is_waited_for() -> None:
    """A router whose workers are still coming up lists no model: within the patience given it is asked again."""
    with TimedTarget(lambda _got: stream(0.01, 0.01, 3), models=()) as target:
        soon = Timer(1.0, target.serves, ("m",))
        soon.start()
        found = Bench(Options(target.url, count=2, concurrency=1), Quiet(), patience=20.0).run()
        soon.join()
    assert found.runs[0].options["model"] == "m"
