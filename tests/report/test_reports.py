"""What people and programs get to read."""

from __future__ import annotations

import base64
import csv
import re
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from infera_cli.report import compared, console, files, page, plots, rows, tables, words
from infera_cli.workload import text
from infera_cli.workload.comparison import compare
from infera_cli.workload.figures import Figures
from infera_cli.workload.gates import parse as parse_gates
from infera_cli.workload.goodput import parse
from infera_cli.workload.measures import Tally
from infera_cli.workload.result import Client, Document, Run, decode, encode
from infera_cli.workload.verdict import Circumstances, judge
from tests.workload.samples import failure, sample

TIMING = {"queue": 0.001, "pick": 0.0001, "upstream": 0.09}


def figures(scale: float = 1.0, count: int = 100) -> Figures:
    tally = Tally(parse(["ttft:120"]))
    for n in range(count):
        tally.add(sample(n * 0.1, scale * (0.1 + 0.0005 * (n % 50)), (0.02,) * 4, worker=f"w{n % 3 // 2}",
                         cached=4, timing=TIMING))
    tally.add(failure("http_500", 1.0, 1.1, error="<boom>"))
    return tally.figures(planned=count + 1, offered=10.0)


def run(cell: str = "", repeat: int = 0, scale: float = 1.0, **options: Any) -> Run:
    found = figures(scale)
    around = Circumstances(max_error_rate=0.1)
    return Run(cell, repeat, "2026-01-01T10:00:00+00:00", False,
               {"model": "m", "rate": 10.0, "dataset": {"name": "random"}, "seed": 1, "cache": "cold", **options},
               {"url": "http://x", "workers": {"w0": "u", "w1": "u"},
                "router": {"version": "1.2.3", "policy": "session", "config": "0123abcd"}},
               Client("here", 1, 0.1, 0.1, "same host"), found, None, judge(found, around))


def test_the_console_report_has_every_part() -> None:
    """Header, latency, split, rates, workers, failures and, last, the verdict."""
    told = console.report(Document((run(),), "0"))
    for said in ("target   http://x", "open loop, Poisson 10.0 req/s", "TTFT from schedule", "client → router → worker",
                 "worker, to the first token", "the means but for “to its first byte” add up to E2EL",
                 "client ↔ router", "completed, between first and last completion", "prefix-cache hits", "imbalance",
                 "router   infera 1.2.3, policy session, settings 0123abcd", "workers  2: w0, w1",
                 "input and output, whole run", "sent, between first and last request",
                 "TTFT, failures as ∞", "within all limits", "1 × http_500: <boom>",
                 "requests 101 sent, 100 ok, 1 failed, 0 incomplete"):
        assert said in told
    assert re.search(r"^tokens\n +mean +p50 +p90 +p95 +p99 +p99.9 +max +n$", told, re.MULTILINE)
    assert re.search(r"^output tokens +5.00 .* 100$", told, re.MULTILINE)
    assert told.rstrip().splitlines()[-1] == "VALID"
    assert "\x1b" not in told


def test_failures_are_in_the_adjusted_rows_of_every_report() -> None:
    """With a failure in 101 the adjusted p50 is a time and the adjusted p99.9 is endless, on the page, too."""
    found = {row.key: row.cells for row in rows.adjusted(figures())}
    assert found["ttft"]["p999"] == "∞"
    assert 100 < float(found["ttft"]["p50"]) < 125
    assert "TTFT, failures as ∞" in page.report(Document((run(),), "0"))


def test_tokens_of_the_steady_part_are_shown_together() -> None:
    """Input and output, as over the whole run; neither where the server does not tell the input."""
    told = Tally().update(sample(0, 0.1, (0.1,) * 9) for _ in range(3)).figures()
    shown = {fact.label: fact.value for fact in rows.rates(replace(run(), figures=told))}
    both = [shown[f"{part}, steady part"] or 0.0 for part in ("input", "output")]
    assert shown["input and output, steady part"] == pytest.approx(sum(both))
    untold = Tally().update(sample(0, 0.1, (0.1,) * 9, input=None, worker="w") for _ in range(3)).figures()
    shown = {fact.label: fact.value for fact in rows.rates(replace(run(), figures=untold))}
    assert "output, steady part" in shown
    assert not [label for label in shown if "input" in label]
    assert next(iter(rows.workers(untold)))[4] == "-"


def test_parts_that_do_not_add_up_are_not_said_to() -> None:
    """A whole answer has no first token: the table stands, without the sentence under it."""
    whole = Tally().update([sample(first=None, first_content=None, timing=TIMING)]).figures()
    assert rows.router(whole)
    assert rows.router_sum(whole) == ""
    document = Document((replace(run(), figures=whole),), "0")
    for shown in (console.report(document), page.report(document)):
        assert "client → router → worker" in shown
        assert "add up" not in shown


def test_a_missed_gate_is_told() -> None:
    """In the console and on the page, and what was kept is not named."""
    gates = parse_gates(["lag_p99:5", "http_500:0"])
    judged = judge(figures(), Circumstances(max_error_rate=0.1, gates=gates))
    document = Document((replace(run(), verdict=judged),), "0")
    for told in (console.report(document), page.report(document)):
        assert "http_500 is 0.009901, asked was ≤ 0" in told
        assert "lag_p99" not in told


def test_percentiles_with_few_samples_are_marked() -> None:
    """100 samples carry p90 and not p99: the mark stands behind those that are few for it."""
    row = next(row for row in rows.latencies(figures()) if row.key == "ttft")
    assert rows.milliseconds(row.figures, "p90") == rows.milliseconds(row.figures, "p90").rstrip("~")
    assert rows.milliseconds(row.figures, "p99").endswith("~")


def test_chosen_metrics_and_percentiles_are_shown() -> None:
    """--percentile-metrics and --metric-percentiles choose rows and columns."""
    told = console.report(Document((run(),), "0"), metrics=("tpot",), statistics=("mean", "p75"))
    assert "p75" in told
    assert "p90" not in told
    assert "E2EL" not in told.split("client → router → worker")[0]


def test_colour_only_when_asked_for() -> None:
    """With colour the verdict is green; without there is no escape."""
    assert "\x1b[32mVALID" in console.report(Document((run(),), "0"), colour=True)


def test_several_runs_have_an_overview() -> None:
    """A sweep ends in one line per run, and the search in a sentence."""
    document = Document((run("rate=1"), run("rate=2", 1)), "0", {"find_max": {
        "kind": "rate", "passed": 2, "failed": 3, "attainment": 0.95}})
    told = console.report(document)
    assert "all runs" in told
    assert "rate=2 #2" in told
    assert "most load with 95% of requests within the limits: rate between 2 (kept) and 3 (not kept)" in told


@pytest.mark.parametrize(("found", "said"), [
    ({"kind": "rate", "passed": 0, "failed": 1, "attainment": 0.9}, "not even rate 1 keeps 90%"),
    ({"kind": "rate", "passed": 0, "failed": 0.015625, "attainment": 0.9}, "not even rate 0.015625 keeps 90%"),
    ({"kind": "concurrency", "passed": 64, "failed": None, "attainment": 0.9}, "concurrency 64 keeps"),
])
def test_a_search_without_an_interval_says_so(found: dict[str, object], said: str) -> None:
    """Nothing passed, or nothing failed: both are said."""
    assert said in words.find_max(found)


CUT = {"kind": "concurrency", "passed": 0, "failed": None, "attainment": 0.95, "finished": False, "evidence": {}}


@pytest.mark.parametrize(("known", "said"), [
    ({}, "no level was decided; wanted are 95% of requests within the limits"),
    ({"evidence": {"1": {"good": 9, "judged": 10, "probes": 1}}},
     "wanted are 95% of requests within the limits; concurrency 1 is undecided (9 of 10 requests within"),
    ({"passed": 8}, "so far concurrency 8 keeps 95% of requests within the limits, more is not known"),
    ({"passed": 8, "failed": 16, "evidence": {"8": {"good": 9, "judged": 9}, "16": {"good": 0, "judged": 9}}},
     "so far concurrency 8 keeps 95% of requests within the limits and 16 does not"),
    ({"failed": 4}, "so far concurrency 4 does not keep 95% of requests within the limits, less is not known"),
    ({"failed": 0.5, "evidence": {"0.25": {"good": 9, "judged": 10}}}, "concurrency 0.25 is undecided (9 of 10"),
])
def test_a_search_that_was_cut_off_says_what_it_knew(known: dict[str, object], said: str) -> None:
    """Ctrl-C in a search: interrupted, and no judgement of a level that was not judged."""
    told = words.find_max({**CUT, **known})
    assert told.startswith("the search was interrupted: ")
    assert said in told
    assert "not even" not in told
    assert "no level was found" not in told


def test_a_search_that_rests_on_invalid_runs_says_so() -> None:
    """An end of the interval that was judged on a run of an overloaded client is in doubt, on page and console."""
    late = judge(figures(), Circumstances(cpu=1.0, max_error_rate=0.1))
    assert late.status == "INVALID"
    bad = replace(run("rate=3"), verdict=late)
    found = {"find_max": {"kind": "rate", "passed": 2, "failed": 3, "attainment": 0.95, "finished": True}}
    document = Document((run("rate=2"), bad), "0", found)
    for told in (console.report(document, width=300), page.report(document)):
        assert "rate between 2 (kept) and 3 (not kept); but rate 3 was judged on INVALID runs" in told
        assert "rate 2 was judged" not in told


@pytest.mark.parametrize(("options", "said"), [
    ({"concurrency": 4, "count": 9}, "closed loop, 4 callers, 9 requests"), ({"count": 9}, "all at once, 9 requests"),
    ({"rate": 2.0, "burstiness": "inf", "duration": 5.0}, "open loop, constant 2.0 req/s, 5 s"),
    ({"rate": 2.0, "burstiness": 0.5}, "gamma 0.5"),
    ({"dataset": {"name": "azure"}, "speed": 2.0}, "trace at speed 2.0"), ({"dataset": {"name": "azure"}}, "speed 1.0"),
    ({"ramp_shape": "linear", "ramp_start": 1, "ramp_end": 9, "duration": 5.0}, "linear ramp 1→9 req/s, 5 s"),
])
def test_arrivals_in_words(options: dict[str, object], said: str) -> None:
    """The header says how requests arrived."""
    assert said in words.arrivals(options)
    assert ", ," not in words.arrivals(options)
    assert not words.arrivals(options).endswith(", ")


def test_a_document_survives_its_file() -> None:
    """What is saved is what is read, infinite adjusted percentiles included."""
    document = Document((run(),), "0")
    assert decode(encode(document), "f") == msgspec.json.decode(encode(document), type=Document)
    assert decode(encode(document), "f").runs[0].figures.adjusted["ttft"]["p999"] is None


@pytest.mark.parametrize(("runs", "names"), [
    ([run()], ["v.json"]), ([run("rate=0.5")], ["v-rate-0.5.json"]),
    ([run(), run("", 1)], ["v-run-1.json", "v-run-2.json"]),
    ([run("rate=1"), run("rate=2"), run("rate=2", 1)], ["v-rate-1.json", "v-rate-2-run-1.json", "v-rate-2-run-2.json"]),
])
def test_files_for_vllm_are_named_by_their_run(runs: list[Run], names: list[str]) -> None:
    """One file a run, none of which overwrites another."""
    document = Document(tuple(runs), "0")
    assert [files.vllm_name(Path("v.json"), one, document).name for one in runs] == names


def test_metadata_replaces_no_figure_for_vllm() -> None:
    """What was measured stands, also where this run has none of it; other names are taken."""
    given = {"completed": "999", "p99_ttft_ms": "1", "mean_itl_ms": "1", "partial": "no", "itls": "1", "gpu": "H100"}
    found, plain = (msgspec.json.decode(files.vllm(one)) for one in (run(metadata=given), run()))
    assert found == plain | {"gpu": "H100"}
    short = msgspec.structs.replace(run(metadata=given).figures, latency={})
    bare = msgspec.json.decode(files.vllm(replace(run(metadata=given), figures=short)))
    assert not {"p99_ttft_ms", "mean_itl_ms", "itls"} & set(bare)


def test_the_table_has_what_was_sent_again_and_what_usage_could_not_be() -> None:
    """As numbers of a run."""
    odd = Tally().update(sample(n, resent=1, odd_usage="few") for n in range(3)).figures()
    row = next(csv.DictReader(files.table(Document((replace(run(), figures=odd),), "0")).splitlines()))
    assert (row["resent"], row["odd_usage"]) == ("3", "3")


def svgs(html: str) -> list[bytes]:
    return [base64.b64decode(found) for found in re.findall(r"data:image/svg\+xml;base64,([A-Za-z0-9+/=]+)", html)]


def test_the_page_is_one_file_with_sound_plots() -> None:
    """No script, no link, no network: every plot is inside and is well-formed SVG with readable text."""
    html = page.report(Document((run("rate=1"), run("rate=2", scale=2.0)), "0"))
    drawn = svgs(html)
    assert len(drawn) >= 10
    assert all(ET.fromstring(svg).tag.endswith("svg") for svg in drawn)
    assert not re.search(r"<script|<link|(src|href)=\"(?!data:)|url\(http", html)
    assert any(b"milliseconds (log)" in svg for svg in drawn)
    assert "&lt;boom&gt;" in html
    assert len(html) < 1_500_000


def test_the_page_has_what_the_console_has() -> None:
    """Limits in all and each, every worker, what ~ means, the dataset with its seed, and the share in the overview."""
    html = page.report(Document((run("rate=1"), run("rate=2", scale=2.0)), "0"))
    kept = run().figures.attainment
    assert kept is not None
    share = f"{kept.good / kept.judged:.1%}"
    assert f"<td>within all limits</td><td>{share}</td><td>{kept.good} of 101</td>" in html
    assert f"<td>  ttft ≤ 120 ms</td><td>{share}</td>" in html
    assert "<th>in limits</th>" in html
    assert f"<td>{share}</td><td>VALID</td>" in html
    assert "<tr><td>w0</td><td>67</td><td>67.0%</td><td>0</td><td>670</td><td>40.0%</td><td>335</td>" in html
    assert "dataset random, seed 1, cache cold" in html
    for told in (html, console.report(Document((run(),), "0"))):
        assert "~ behind a percentile: fewer than ten values lie beyond it" in told


NUMBER = re.compile(r"[\d,]*\d(?:\.\d+)?[~%]?")


def wide(told: str) -> int:
    return max(map(len, told.splitlines()))


@pytest.mark.parametrize("width", [60, 80, 90, 110, 200])
def test_tables_fit_into_the_terminal(width: int) -> None:
    """Nothing is wider than asked; every number is whole; names of cells are whole, beside INVALID, too."""
    bad = judge(figures(1000.0), Circumstances(cpu=1.0))
    runs = (run("concurrency=16", 1), replace(run("concurrency=128", 2, 1000.0), verdict=bad))
    told = console.report(Document(runs, "0"), width=width)
    assert wide(told) <= width
    assert "…" not in told.replace("…\n", "")
    overview = told.split("all runs")[1]
    assert re.search(r"concurrency=16 #2 .* VALID\n", overview)
    assert re.search(r"concurrency=128 #3 .* INVALID\n", overview)
    whole = set(NUMBER.findall(console.report(Document(runs, "0"), width=300)))
    tables = "\n".join(line for line in told.splitlines() if not line.startswith(("INVALID", "note", "too narrow")))
    assert set(NUMBER.findall(tables)) <= whole


@pytest.mark.parametrize("width", [80, 110])
def test_a_comparison_fits_into_the_terminal(width: int) -> None:
    """At eighty columns words are folded and no figure is."""
    cells = {"concurrency=128": compare([figures()], [figures(1000.0)], text.dice(1))}
    told = compared.comparison(("a", "b"), cells, width=width)
    assert wide(told) <= width
    whole = set(NUMBER.findall(compared.comparison(("a", "b"), cells, width=300)))
    assert set(NUMBER.findall(told)) == whole


def test_what_a_narrow_terminal_leaves_out_is_named() -> None:
    """Columns that say least go first, and that they are gone is told; chosen percentiles go from the first."""
    document = Document((run(scale=1000.0),), "0")
    told = console.report(document, width=60)
    assert "too narrow for p90, p95, p99.9\n" in told
    assert "too narrow" not in console.report(document, width=110)
    assert "too narrow for p75" in console.report(document, statistics=("mean", "p75", "p80", "p85", "max"), width=60)


def test_the_width_is_that_of_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a terminal its columns, at least forty; elsewhere 110, whatever COLUMNS says."""
    monkeypatch.setenv("COLUMNS", "72")
    assert tables.width() == 110
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert tables.width() == 72
    assert wide(console.report(Document((run(),), "0"))) <= 72
    monkeypatch.setenv("COLUMNS", "10")
    assert tables.width() == 40


def test_plots_are_the_same_each_time() -> None:
    """The same figures give the same bytes."""
    assert plots.over_time(figures()) == plots.over_time(figures())


def test_a_run_without_a_success_has_a_page() -> None:
    """No latency, no points: the page says what failed and draws nothing that is not there."""
    found = Tally().update([failure("connect")]).figures()
    empty = replace(run(), figures=found, verdict=judge(found, Circumstances()))
    html = page.report(Document((empty,), "0"))
    assert "1 sent, 0 ok, 1 failed" in html
    assert "connect" in console.report(Document((empty,), "0"))


def test_an_interrupted_run_is_marked_in_every_report() -> None:
    """A sweep cut off in its second cell: the table, the page and the file say which run and that there is less."""
    cut = replace(run("rate=2"), partial=True)
    document = Document((run("rate=1"), cut), "0")
    told = console.report(document, width=200)
    assert re.search(r"rate=2 .* VALID, partial\n", told)
    assert not re.search(r"rate=1 .* partial\n", told)
    said = "PARTIAL: the benchmark was interrupted; 1 run complete, one cut off, any after it missing"
    assert told.rstrip().endswith(said)
    html = page.report(document)
    assert html.count(said) == 1
    assert "<td>VALID, partial</td>" in html
    assert console.report(Document((replace(run(), partial=True),), "0")).rstrip().endswith("\nVALID, partial")
    lines = list(csv.DictReader(files.table(document).splitlines()))
    assert [(line["partial"], line["interrupted"]) for line in lines] == [("no", "yes"), ("yes", "yes")]


def test_a_sweep_cut_off_between_two_runs_is_marked() -> None:
    """Every run is whole and some are missing: still not a complete result."""
    document = Document((run("rate=1"),), "0", {"interrupted": True})
    said = "PARTIAL: the benchmark was interrupted; 1 run complete, others missing"
    assert console.report(document).rstrip().endswith(said)
    assert said in page.report(document)
    assert "PARTIAL" not in page.report(Document((run("rate=1"),), "0"))
    line = next(csv.DictReader(files.table(document).splitlines()))
    assert (line["partial"], line["interrupted"]) == ("no", "yes")


def test_a_sweep_that_could_not_go_on_is_marked() -> None:
    """The target died between two runs: not a complete result, and why."""
    document = Document((run("rate=1"),), "0", {"failed": "cannot reach x"})
    said = "PARTIAL: the benchmark could not go on (cannot reach x); 1 run complete, others missing"
    assert said in console.report(document, width=200)
    assert said in page.report(document)
    assert next(csv.DictReader(files.table(document).splitlines()))["interrupted"] == "yes"


def test_failures_past_the_router_are_in_every_report() -> None:
    """The half of --direct has its own counts, and its own failures by class."""
    past = Tally().update([sample(), *(failure("http_503", error="full") for _ in range(3))]).figures()
    document = Document((replace(run(), direct=past),), "0")
    told = console.report(document)
    assert "past the router: 4 sent, 1 ok, 3 failed, 0 incomplete\n  3 × http_503: full" in told
    html = page.report(document)
    assert "past the router: 4 sent, 1 ok, 3 failed, 0 incomplete" in html
    assert "<td>http_503</td><td>3</td><td>full</td>" in html
    line = next(csv.DictReader(files.table(document).splitlines()))
    assert (line["failed_http_500"], line["direct_sent"], line["direct_failed_http_503"]) == ("1", "4", "3")
    assert float(line["direct_ttft_p50_ms"]) == 100


def test_a_comparison_page_has_both_curves() -> None:
    """A and B are drawn into one plot, and the table calls the change."""
    first, second = Document((run(),), "0"), Document((run(scale=1.5),), "0")
    cells = {"": compare([first.runs[0].figures], [second.runs[0].figures], text.dice(1))}
    html = page.comparison(("a.json", "b.json"), (first, second), cells)
    assert 'class="worse"' in html
    assert len(svgs(html)) == 3
    assert "+50" in compared.comparison(("a", "b"), cells)


def test_a_comparison_has_a_row_of_failures() -> None:
    """One of 101 failed in both: counts, the difference in points, and no clear difference."""
    cells = {"": compare([figures()], [figures()], text.dice(1))}
    told = compared.comparison(("a", "b"), cells, width=150)
    assert re.search(r"failed requests +share +1 of 101 +1 of 101 +\+0\.0 pp +-4\.\d … \+4\.\d pp +no clear diff", told)
    both = Document((run(),), "0"), Document((run(),), "0")
    assert "<td>1 of 101</td>" in page.comparison(("a.json", "b.json"), both, cells)
