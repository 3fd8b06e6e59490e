"""What a benchmark must not hide: failures past the router, cut-off searches, loads that were never sent."""

from __future__ import annotations

import gzip
import socket
import time
from pathlib import Path
from typing import Any

import pytest

from infera_cli.errors import ConfigError, UsageError
from infera_cli.loadtest.bench import Bench, Plan
from infera_cli.loadtest.job import DatasetSpec, Progress
from infera_cli.loadtest.meter import Meter
from infera_cli.loadtest.options import Options, arrivals
from infera_cli.loadtest.target import base
from infera_cli.workload import gates, goodput
from infera_cli.workload.arrivals import ClosedLoop
from tests.loadtest.runs import SHORT, Quiet, document, run
from tests.support.timed_target import Script, TimedTarget, stream


def refused() -> str:
    """An address where nobody listens."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{sock.getsockname()[1]}"


def test_failures_past_the_router_are_failures() -> None:
    """The router answers, the worker 500 or nothing: exit 1, and each class is counted in the direct half."""
    with TimedTarget(lambda _got: stream(0.005, 0.0, 1)) as router, TimedTarget(
            lambda _got: Script([(0.0, b'{"error": "broken"}')], status=500, kind="application/json")) as worker:
        answered = run(router.url, rate=60.0, count=10, direct=(worker.url,))
        nobody = run(router.url, rate=60.0, count=10, direct=(refused(),))
    assert (answered.verdict.exit_code, nobody.verdict.exit_code) == (1, 1)
    assert answered.direct is not None
    assert nobody.direct is not None
    assert (answered.direct.counts.failures, nobody.direct.counts.failures) == ({"http_500": 5}, {"connect": 5})


class Impatient(Quiet):
    """Presses Ctrl-C when cell `number` is about to start."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number

    def begins(self, plan: Plan) -> None:
        super().begins(plan)
        if len(self.plans) == self.number:
            raise KeyboardInterrupt


def test_a_search_that_is_cut_off_between_two_runs_says_so() -> None:
    """What was found until then is kept, not finished, interrupted."""
    with TimedTarget(lambda _got: stream(0.005, 0.0, 1)) as target:
        found = document(target.url, watcher=Impatient(3), find_max="concurrency", count=80,
                         slos=goodput.parse(["ttft:2000"]))
    assert len(found.runs) == 2
    assert found.findings["interrupted"] is True
    search = found.findings["find_max"]
    assert (search["passed"], search["finished"], search["interrupted"]) == (2, False, True)


def test_a_ramp_needs_no_number_of_requests() -> None:
    """10 to 30 requests/s in half a second: 10 requests."""
    with TimedTarget(lambda _got: stream(0.005, 0.0, 1)) as target:
        found = run(target.url, ramp_shape="linear", ramp_start=10.0, ramp_end=30.0, duration=0.5)
    assert (found.figures.counts.sent, found.verdict.exit_code) == (10, 0)


def test_arrivals_that_are_due_long_ago_are_given_up() -> None:
    """A rate that cannot be sent: the load ends when its time and grace are over, and is INVALID."""
    with TimedTarget(lambda _got: stream(0.0, 0.0, 1)) as target:
        begin = time.monotonic()
        found = run(target.url, rate=100_000.0, duration=1.0, grace=0.5)
        assert time.monotonic() - begin < 20
    assert found.verdict.status == "INVALID"
    assert any("of the planned requests were sent" in said for said in found.verdict.reasons)


@pytest.mark.parametrize(("options", "words"), [
    ({"rate": 1e9, "duration": 10.0}, "1,000,000,000 requests/s are more than can be sent"),
    ({"concurrency": 10**9, "count": 5}, "1,000,000,000 callers are too many"),
    ({"concurrency": 10**9, "duration": 5.0, "processes": 2}, "at most 20,000"),
])
def test_a_load_that_no_machine_drives_is_refused(options: dict[str, Any], words: str) -> None:
    """Before anything is sent."""
    with pytest.raises(ConfigError, match=words):
        Bench(Options("http://127.0.0.1:9", dataset=SHORT, **options), Quiet())


def test_so_many_callers_as_processes_drive_are_fine() -> None:
    """20,000 a process."""
    assert arrivals(Options("http://x", concurrency=40_000, count=5, processes=2)) == ClosedLoop(40_000, count=5)


@pytest.mark.parametrize("url", ["http://127.0.0.1:99999", "http://127.0.0.1:port", "http://[::1"])
def test_an_address_that_cannot_be_is_refused_in_its_own_words(url: str) -> None:
    """A port out of range is told as such, without a traceback."""
    with pytest.raises(UsageError, match=r"is no address: .*(range|integer|ipv6)"):
        base(url)


@pytest.mark.parametrize("path", ["", "/", "/v1", "/v1/", "/v1/chat/completions", "/v1/completions", "/v1/messages"])
def test_an_address_is_taken_as_other_tools_have_it(path: str) -> None:
    """With `/v1`, or with the whole path of an endpoint."""
    assert base(f"http://127.0.0.1:8000{path}") == "http://127.0.0.1:8000"


def test_workers_to_measure_are_given_by_their_own_option() -> None:
    """The sentence names the option that takes addresses."""
    with TimedTarget(lambda _got: stream(0.0, 0.0, 1)) as target, pytest.raises(ConfigError, match="--direct-url"):
        document(target.url, count=2, direct=())


def test_an_answer_that_is_no_stream_is_shown_behind_a_colon() -> None:
    """What came instead is told apart from what was expected."""
    with TimedTarget(lambda _got: Script([(0.0, b'{"id": 1}')], kind="application/json")) as target:
        found = run(target.url, count=2, concurrency=1)
    said = found.figures.counts.examples["not_streamed"]
    assert said == 'asked for a stream, got application/json: {"id": 1}'


def test_rows_left_out_of_a_trace_are_in_the_report(tmp_path: Any) -> None:
    """A row without a token to answer with is not sent and not forgotten."""
    path = tmp_path / "trace.jsonl"
    path.write_text('{"timestamp": 0, "input_length": 9, "output_length": 0}\n'
                    '{"timestamp": 5, "input_length": 9, "output_length": 2}\n')
    with TimedTarget(lambda _got: stream(0.0, 0.0, 1)) as target:
        found = run(target.url, dataset=DatasetSpec(name="mooncake", path=str(path)))
        assert [got.body["max_tokens"] for got in target.got] == [2]
    assert any(said.startswith("1 rows of the trace") for said in found.verdict.warnings)


def test_a_few_busy_milliseconds_are_no_busy_process() -> None:
    """A share of a core is one of at least a second."""
    meter = Meter()
    meter.restart()
    until = time.process_time() + 0.05
    while time.process_time() < until:
        pass
    found: Progress = meter.progress("done", 0)
    assert 0.04 < found.cpu_max < 0.5


def test_a_rate_that_places_held_back_was_not_reached() -> None:
    """Fifty a second through one place that each holds for 50 ms: INVALID, the gate is missed, and 0.98 is not met."""
    with TimedTarget(lambda _got: stream(0.05, 0.0, 1)) as target:
        found = run(target.url, rate=50.0, count=25, max_concurrency=1, gates=gates.parse(["rate:0.98"]))
    assert found.figures.counts.arrived == found.figures.counts.planned == 25
    assert (found.verdict.status, found.verdict.exit_code) == ("INVALID", 1)
    assert "--max-concurrency held them back" in found.verdict.reasons[-1]
    assert found.verdict.missed[0].startswith("rate is 0.")


def test_what_still_waits_for_a_place_at_the_end_is_no_failure() -> None:
    """Forty a second through one place that each holds for 0.2 s: at the end most were never sent, and none failed."""
    with TimedTarget(lambda _got: stream(0.2, 0.0, 1)) as target:
        found = run(target.url, rate=40.0, duration=0.5, grace=0.2, max_concurrency=1)
    counts = found.figures.counts
    assert (counts.failed, counts.failures, found.figures.adjusted) == (0, {}, {})
    assert counts.unsent > 10
    assert counts.sent + counts.unsent == counts.planned
    assert found.verdict.status == "INVALID"
    assert f"{counts.unsent} requests still waited for a free place at the end" in " ".join(found.verdict.warnings)


def test_a_trace_shorter_than_asked_is_told(tmp_path: Path) -> None:
    """Fifty of a trace of three rows: three are sent, the report speaks of three, and a note of fifty."""
    path = tmp_path / "t.jsonl"
    path.write_text('{"timestamp": 0, "input_length": 8, "output_length": 2}\n' * 3)
    spec = DatasetSpec(name="mooncake", path=str(path))
    with TimedTarget(lambda _got: stream(0.0, 0.0, 1)) as target:
        short = run(target.url, dataset=spec, count=50)
        whole = run(target.url, dataset=spec, count=2)
    assert (short.figures.counts.sent, short.options["count"]) == (3, 3)
    assert "the trace ends after 3 of the 50 requests asked for" in short.verdict.warnings
    assert (whole.figures.counts.sent, whole.options["count"]) == (2, 2)
    assert not any("the trace ends" in said for said in whole.verdict.warnings)


def test_an_encoded_answer_is_refused_as_such() -> None:
    """Compressed though identity was asked for: a failure of its own, whose words name the encoding."""
    packed = gzip.compress(b'data: {"choices": []}\n\ndata: [DONE]\n\n')
    with TimedTarget(lambda _got: Script([(0.0, packed)], headers={"Content-Encoding": "gzip"})) as target:
        counts = run(target.url, count=2).figures.counts
    assert counts.failures == {"encoded": 2}
    assert counts.examples["encoded"] == "the answer is gzip, though identity was asked for (Accept-Encoding)"
