"""One load against a target of known timing: every script is one request, measured from outside."""

from __future__ import annotations

import json
import statistics
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from infera_cli.loadtest.job import Limits
from infera_cli.workload.result import Run
from tests.loadtest.runs import prompts, rows, run
from tests.support.timed_target import (
    CLOSE,
    DONE,
    FINISH,
    RESET,
    Got,
    Script,
    TimedTarget,
    event,
    stream,
    text,
    usage,
)

Row = dict[str, Any]
BUSY = 2    # tolerances of the cases, times this, for a machine that does other things too


def role(*members: Any) -> bytes:
    return event({"choices": [{"index": 0, "delta": {"role": "assistant", **dict(members)}}]})


def after_role(head: bytes) -> Script:
    tokens = [(0.3 + 0.02 * n, text(f" t{n}")) for n in range(10)]
    return Script([(0.01, head), *tokens, (0.48, FINISH + usage(10) + DONE)])


def long_lines() -> Script:
    line = text("x" * 200_000).replace(b"\n\n", b"\r\n\r\n")
    return Script([
        (0.05, line[:90_001]), (0.06, line[90_001:] + b": comment\r\n\r\n"), (0.1, event({"choices": []})),
        (0.15, text("a") + text("b")), (0.2, FINISH + usage(3) + DONE),
    ])


STREAM_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
SCRIPTS: dict[str, Script] = {
    "first": stream(0.0, 0.0, 1),    # pays for all that happens once
    "role-empty": after_role(role(("content", ""))),
    "role-null": after_role(role(("content", None))),
    "role-alone": after_role(role()),
    "spaces": Script([*((0.1 + 0.03 * n, text(" " * 15)) for n in range(7)), (0.29, FINISH + usage(7) + DONE)]),
    "no-usage": Script([*((0.1 + 0.01 * n, text("w")) for n in range(20)), (0.3, FINISH + DONE)]),
    "four-a-chunk": Script([*((0.04 * n, text("w w w w")) for n in range(1, 51)), (2.0, FINISH + usage(200) + DONE)]),
    "late-usage": Script([
        *((0.02 * n, text("w")) for n in range(1, 6)), (0.11, FINISH), (0.4, usage(5)), (0.5, DONE)]),
    "error-data": Script([(0.02, event({"error": {"message": "out of memory"}})), (0.03, CLOSE)]),
    "error-event": Script([(0.02, text("a")), (0.04, event({"message": "gone"}, "error"))]),
    "created": Script(stream(0.02, 0.01, 3).steps, status=201),
    "long-lines": long_lines(),
    "cut": Script([(0.02, text("a")), (0.05, CLOSE)]),
    "reset": Script([(0.02, text("a") + text("b") + text("c")), (0.05, RESET)]),
    "clean-cut": Script([(0.02, text("a"))]),
    "empty": Script([(0.02, FINISH + usage(0) + DONE)]),
    "http-500": Script([(0.005, b'{"error": {"message": "boom"}}')], status=500, kind="application/json"),
    "not-streamed": Script([(0.02, b'{"choices": []}')], kind="application/json"),
    "one-625": Script([(0.625, text("x") + FINISH + usage(1) + DONE)]),
    "until-close": Script([(0.0, STREAM_HEAD + b"\r\n"), (0.05, text("a") + FINISH + DONE)], raw=True),
    "early-hints": Script([
        (0.0, b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n"),
        (0.02, STREAM_HEAD + b"Content-Length: %d\r\n\r\n" % len(text("a") + DONE) + text("a") + DONE)], raw=True),
    "no-answer": Script([], raw=True),
    "half-a-head": Script([(0.0, b"HTTP/1.1 200 OK\r\nContent-")], raw=True),
    "no-http": Script([(0.0, b"hello, who is there?\r\n\r\n")], raw=True),
    "stops": Script([(0.02, text("a")), (3.0, text("late"))]),
    "reset-after-done": Script([(0.02, text("a") + FINISH + usage(1) + DONE), (0.3, RESET)]),
    "cut-in-event": Script([(0.0, STREAM_HEAD + b"\r\n"), (0.02, text("a")), (0.05, text("b")[:20])], raw=True),
    "error-object": Script([
        (0.02, text("a")), (0.04, event({"object": "error", "message": "oom", "code": 500})), (0.05, DONE)]),
    "byte-order-mark": Script([(0.1, b"\xef\xbb\xbf" + text("a")), (0.2, text("b") + FINISH + usage(2) + DONE)]),
    "cr-only": Script([(at, part.replace(b"\n", b"\r")) for at, part in (
        (0.1, text("a")), (0.2, text("b")), (0.4, FINISH + usage(2) + DONE))]),
    "capitals": Script([(0.02, text("a") + FINISH + usage(1) + DONE)], kind="Text/Event-Stream; charset=utf-8"),
    "usage-of-none": Script([(0.02, text("a") + text("b") + text("c")), (0.05, FINISH + usage(0) + DONE)]),
    "usage-of-many": Script([(0.02, text("a")), (0.05, FINISH + usage(10**30) + DONE)]),
    "no-duration": Script(stream(0.02, 0.0, 1).steps, headers={"Server-Timing": "upstream;dur=nan"}),
    "no-json": Script([(0.02, event("<html>login</html>") + DONE)]),
    "silent": Script([(3.0, text("late"))]),
}


class Measured(NamedTuple):
    run: Run
    rows: dict[str, Row]
    got: dict[str, Got]


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Measured:
    """All scripts at once, each request under its script's name."""
    folder = tmp_path_factory.mktemp("scripted")
    names = list(SCRIPTS)
    details = folder / "requests.jsonl"
    with TimedTarget(lambda got: SCRIPTS[got.prompt()]) as target:
        found = run(target.url, details=details, dataset=prompts(folder, names), cache="as-is", rate=20.0,
                    burstiness=float("inf"), count=len(names), limits=Limits(first_token=2.5, idle=1.5))
        log = {got.prompt(): got for got in target.got}
    return Measured(found, dict(zip(names, rows(details), strict=True)), log)


def ttft(row: Row) -> float:
    return float(row["first"] - row["sent"])


@pytest.mark.parametrize("name", ["role-empty", "role-null", "role-alone"])
def test_r152_ttft_is_the_first_text_not_the_role_chunk(measured: Measured, name: str) -> None:
    """Role chunk at 10 ms, text from 300 ms every 20 ms: TTFT 300 ms, ITL 20 ms, 10 tokens."""
    row = measured.rows[name]
    assert ttft(row) == pytest.approx(0.3, abs=0.02 * BUSY)
    assert statistics.fmean(row["gaps_s"]) == pytest.approx(0.02, abs=0.003 * BUSY)
    assert row["output"] == 10


def test_r154_tokens_come_from_usage_or_are_called_estimated(measured: Measured) -> None:
    """Seven chunks of spaces are the 7 tokens of usage; 20 chunks without usage are an estimate."""
    spaces, untold = measured.rows["spaces"], measured.rows["no-usage"]
    assert (spaces["output"], spaces["events"]) == (7, 7)
    assert (spaces["last"] - spaces["first"]) / 6 == pytest.approx(0.03, abs=0.003 * BUSY)
    assert (untold["output"], untold["events"]) == (None, 20)
    assert measured.run.figures.counts.sources["chunks"] == 5    # of which two had usage that cannot be
    assert any("estimated" in warning for warning in measured.run.verdict.warnings)


def test_r155_chunks_of_four_tokens(measured: Measured) -> None:
    """50 chunks of 40 ms, 200 tokens: TPOT 9.8 ms, inter-chunk 40 ms."""
    row = measured.rows["four-a-chunk"]
    assert (row["last"] - row["first"]) / 199 == pytest.approx(0.00985, abs=0.0005 * BUSY)
    assert statistics.median(row["gaps_s"]) == pytest.approx(0.04, abs=0.003 * BUSY)
    rates = measured.run.figures.rates
    assert rates.peak_output_tokens >= rates.overall_output_tokens


def test_r161_latency_ends_with_the_last_token(measured: Measured) -> None:
    """Usage at 400 ms and [DONE] at 500 ms do not belong to an answer of 100 ms."""
    row = measured.rows["late-usage"]
    assert row["outcome"] == "ok"
    assert row["last"] - row["sent"] == pytest.approx(0.1, abs=0.02 * BUSY)
    assert row["end"] - row["sent"] == pytest.approx(0.5, abs=0.05)


@pytest.mark.parametrize(("name", "outcome"), [
    ("error-data", "error_event"), ("error-event", "error_event"), ("created", "ok"), ("cut", "truncated"),
    ("reset", "reset"), ("clean-cut", "truncated"), ("empty", "empty"), ("http-500", "http_500"),
    ("not-streamed", "not_streamed"), ("silent", "timeout_first_token"), ("stops", "timeout_idle"),
    ("until-close", "ok"), ("early-hints", "ok"), ("no-answer", "closed"), ("half-a-head", "closed"),
    ("no-http", "malformed"), ("reset-after-done", "ok"), ("cut-in-event", "truncated"),
    ("error-object", "error_event"), ("capitals", "ok"), ("no-json", "malformed"),
])
def test_r161_outcomes(measured: Measured, name: str, outcome: str) -> None:
    """Errors in the stream, cuts, resets, silence and refusals fail by their kind; 201 with a good stream does not."""
    assert measured.rows[name]["outcome"] == outcome


def test_r163_hard_but_right_streams_are_read(measured: Measured) -> None:
    """A 200 kB line, empty choices, comments, CRLF, split lines and two events in a packet: 3 tokens, no failure."""
    row = measured.rows["long-lines"]
    assert (row["outcome"], row["events"], row["output"]) == ("ok", 3, 3)


def test_marks_and_lone_crs_hold_nothing_back(measured: Measured) -> None:
    """An event behind a byte order mark counts, one whose lines end in CR comes when it comes."""
    for name in ("byte-order-mark", "cr-only"):
        row = measured.rows[name]
        assert (row["outcome"], row["events"]) == ("ok", 2)
        assert ttft(row) == pytest.approx(0.1, abs=0.02 * BUSY)
        assert row["gaps_s"][0] == pytest.approx(0.1, abs=0.02 * BUSY)


def test_usage_that_cannot_be_is_passed_over_and_told(measured: Measured) -> None:
    """No token for three chunks, or 10^30 of them: chunks are counted, and a note says how often and why."""
    few, many = measured.rows["usage-of-none"], measured.rows["usage-of-many"]
    assert [(row["outcome"], row["tokens"], row["tokens_from"]) for row in (few, many)] == [
        ("ok", 3, "chunks"), ("ok", 1, "chunks")]
    assert any(said.startswith("2 answers had usage that cannot be") for said in measured.run.verdict.warnings)


def test_a_duration_that_is_none_makes_no_row(measured: Measured) -> None:
    """Server-Timing with nan: no figure of it, and the result can be read again."""
    assert measured.rows["no-duration"]["timing"] == {}
    assert measured.run.figures.router == {}


def test_r169_one_request_of_625_ms(measured: Measured) -> None:
    """A single request is measured to the millisecond, in no bucket."""
    assert ttft(measured.rows["one-625"]) == pytest.approx(0.625, abs=0.012 * BUSY)


def test_times_agree_with_the_targets_own_log(measured: Measured) -> None:
    """Gaps are those of the target's writes: half of them within 2 ms, 95 % within 20 ms."""
    errors = []
    for name in ("role-alone", "spaces", "no-usage", "four-a-chunk", "created"):
        writes = measured.got[name].writes[1 if name == "role-alone" else 0:]
        truth = [later - earlier for earlier, later in pairwise(writes)]
        errors += [abs(gap - true) for gap, true in zip(measured.rows[name]["gaps_s"], truth, strict=False)]
    errors.sort()
    assert errors[len(errors) // 2] < 0.002
    assert errors[int(len(errors) * 0.95)] < 0.02


def test_failures_say_what_the_server_said(measured: Measured) -> None:
    """The report has the first words of each kind of failure."""
    examples = measured.run.figures.counts.examples
    assert "boom" in examples["http_500"]
    assert "out of memory" in examples["error_event"]
    assert "asked for a stream" in examples["not_streamed"]
    assert examples["malformed"]
    assert measured.rows["no-json"]["error"] == "no JSON: <html>login</html>"


def test_counts_are_exact(measured: Measured) -> None:
    """Every script is one request: sent, ok and failed are what was scripted."""
    counts = measured.run.figures.counts
    good = {"first", "role-empty", "role-null", "role-alone", "spaces", "no-usage", "four-a-chunk", "late-usage",
            "created", "long-lines", "one-625", "until-close", "early-hints", "reset-after-done", "byte-order-mark",
            "cr-only", "capitals", "usage-of-none", "usage-of-many", "no-duration"}
    assert (counts.sent, counts.ok, counts.failed) == (len(SCRIPTS), len(good), len(SCRIPTS) - len(good))
    assert counts.output_tokens == 10 * 3 + 7 + 20 + 200 + 5 + 3 + 3 + 1 + 1 + 1 + 1 + 1 + 2 + 2 + 1 + 3 + 1 + 1
    assert measured.run.verdict.exit_code == 1


def anthropic(kind: dict[str, str]) -> Script:
    start = {"type": "message_start", "message": {"usage": {"input_tokens": 25, "output_tokens": 1}}}
    return Script([
        (0.005, event(start, "message_start")), (0.05, event({"type": "ping"}, "ping")),
        (0.1, event({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}, "c")),
        (0.3, event({"type": "content_block_delta", "index": 0, "delta": kind}, "content_block_delta")),
        (0.35, event({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 7}},
                     "message_delta")),
        (0.36, event({"type": "message_stop"}, "message_stop")),
    ])


def test_r172_messages_are_measured_from_their_first_delta(tmp_path: Path) -> None:
    """Anthropic: TTFT 300 ms for text and for a tool call, 25 input and 7 output tokens."""
    kinds = {"text": {"type": "text_delta", "text": "hi"}, "tool": {"type": "input_json_delta", "partial_json": "{"}}

    def reply(got: Got) -> Script:
        assert got.path == "/v1/messages"
        return anthropic(kinds[got.prompt()])

    details = tmp_path / "requests.jsonl"
    with TimedTarget(reply) as target:
        run(target.url, details=details, dialect="messages", dataset=prompts(tmp_path, list(kinds)), cache="as-is",
            count=2)
        assert json.loads(json.dumps(target.got[0].body))["max_tokens"] > 0
    for row in rows(details):
        assert ttft(row) == pytest.approx(0.3, abs=0.02 * BUSY)
        assert (row["input"], row["output"], row["outcome"]) == (25, 7, "ok")
