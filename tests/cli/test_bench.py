"""`infera bench` from the command line: exit codes, files, comparisons."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path

import pytest
from msgspec.structs import replace

from infera_cli.cli.bench import exit_code
from infera_cli.report.words import find_max
from infera_cli.workload.measures import Tally
from infera_cli.workload.result import Client, Document, Run, encode
from infera_cli.workload.verdict import Circumstances, judge
from tests.cli.conftest import Infera
from tests.cli.targets import FAST, failing
from tests.support.timed_target import Got, Script, TimedTarget, stream
from tests.workload.samples import failure, sample


@pytest.mark.parametrize(("share", "code"), [(10, 0), (11, 1)])
def test_r170_the_allowed_error_share_decides(infera: Infera, share: int, code: int) -> None:
    """With 10 % allowed, 10 of 100 failures exit 0 and 11 exit 1; the report says how many."""
    with failing(share) as target:
        found = infera("bench", "--base-url", target.url, "-n", "100", "-c", "8", "--max-error-rate", "0.1", *FAST)
    assert found.code == code
    assert f"{share} × http_500" in found.out
    last = f", but {share} of 100 requests failed, more than --max-error-rate 0.1 (exit 1)" if code else ""
    assert found.out.rstrip().splitlines()[-1].endswith(f"ED{last}" if "DEGRADED" in found.out else f"VALID{last}")


def test_r170_nothing_to_send_is_an_error(infera: Infera) -> None:
    """A run without a request is refused with a message."""
    with failing(0) as target:
        found = infera("bench", "--base-url", target.url, "--rate", "1", "-d", "0.1")
    assert found.code == 1
    assert found.err == "error: at this rate not one request is due within the duration\n"


def test_files_are_written(infera: Infera, tmp_path: Path) -> None:
    """JSON, CSV, a line per request and one HTML page without network assets come out of one run."""
    with failing(0) as target:
        found = infera("bench", "--base-url", target.url, "-n", "6", "--goodput", "ttft:500", "e2el:900", *FAST,
                       "--save-detailed", "--result-filename", "r.json", "--csv", "r.csv", "--html", "r.html",
                       "--metadata", "a=1", "b=2")
    assert found.code == 0, found.err
    saved = json.loads((tmp_path / "r.json").read_text())
    assert (saved["schema_version"], saved["kind"], len(saved["runs"])) == (1, "infera-bench", 1)
    assert saved["runs"][0]["options"]["metadata"] == {"a": "1", "b": "2"}
    assert saved["runs"][0]["figures"]["attainment"]["good"] == 6
    assert len((tmp_path / "r.requests.jsonl").read_text().splitlines()) == 6
    line = next(csv.DictReader((tmp_path / "r.csv").read_text().splitlines()))
    assert (line["sent"], line["failed"]) == ("6", "0")
    page = (tmp_path / "r.html").read_text()
    assert page.count("data:image/svg+xml;base64,") >= 3
    assert not re.search(r"(src|href)=\"(?!data:)|@import|<script", page)


def test_r173_a_report_file_of_two_processes(infera: Infera, tmp_path: Path) -> None:
    """--processes 2 writes one file with the requests of both."""
    with failing(0) as target:
        found = infera("bench", "--base-url", target.url, "-n", "8", "-c", "4", "--processes", "2", *FAST,
                       "--result-filename", "r.json", "--save-detailed")
    assert found.code == 0, found.err
    saved = json.loads((tmp_path / "r.json").read_text())["runs"][0]
    assert (saved["figures"]["counts"]["ok"], saved["client"]["processes"]) == (8, 2)
    assert len((tmp_path / "r.requests.jsonl").read_text().splitlines()) == 8


def test_compat_vllm_writes_its_keys(infera: Infera, tmp_path: Path) -> None:
    """--compat vllm writes the keys that people script against."""
    with failing(0) as target:
        found = infera("bench", "--base-url", target.url, "-n", "4", *FAST, "--compat", "vllm",
                       "--result-filename", "v.json")
    assert found.code == 0, found.err
    saved = json.loads((tmp_path / "v.json").read_text())
    assert {"duration", "completed", "failed", "total_input_tokens", "total_output_tokens", "request_throughput",
            "output_throughput", "total_token_throughput", "mean_ttft_ms", "median_tpot_ms", "p99_itl_ms",
            "p99_e2el_ms", "max_concurrent_requests", "request_rate", "burstiness", "date", "backend",
            "model_id", "num_prompts"} <= set(saved)
    assert (saved["completed"], saved["failed"]) == (4, 0)
    assert "ttfts" not in saved


def test_compat_vllm_writes_its_lists_with_the_details(infera: Infera, tmp_path: Path) -> None:
    """--save-detailed adds a member a request: lengths, times, texts; a failure has its error and no length."""
    with failing(1) as target:
        infera("bench", "--base-url", target.url, "-n", "4", "-c", "1", *FAST, "--compat", "vllm", "--save-detailed",
               "--result-filename", "v.json")
    saved = json.loads((tmp_path / "v.json").read_text())
    assert [saved[name] for name in ("output_lens", "errors")] == [[0, 2, 2, 2], ["{}", "", "", ""]]
    assert [len(saved[name]) for name in ("input_lens", "ttfts", "itls", "start_times")] == [4, 4, 4, 4]
    assert saved["ttfts"][0] == 0.0
    assert all(ttft >= 0.01 for ttft in saved["ttfts"][1:])
    assert saved["start_times"] == sorted(saved["start_times"])
    assert [len(gaps) for gaps in saved["itls"]] == [0, 1, 1, 1]
    assert all(saved["generated_texts"][1:])


def test_compat_vllm_writes_a_file_for_every_run(infera: Infera, tmp_path: Path) -> None:
    """A sweep with repetitions is as many files, each named by its cell, with its own lists; and they are told."""
    with failing(0) as target:
        found = infera("bench", "--base-url", target.url, "-n", "3", *FAST, "--sweep", "concurrency=1,2",
                       "--repeat", "2", "--compat", "vllm", "--save-detailed", "--result-filename", "v.json")
    assert found.code == 0, found.err
    names = [f"v-concurrency-{level}-run-{repeat}.json" for level in (1, 2) for repeat in (1, 2)]
    assert sorted(path.name for path in tmp_path.glob("v*.json")) == names
    assert f"wrote {', '.join(names)}" in found.err
    saved = [json.loads((tmp_path / name).read_text()) for name in names]
    assert [one["max_concurrency"] for one in saved] == [1, 1, 2, 2]
    assert [(one["completed"], len(one["ttfts"])) for one in saved] == [(3, 3)] * 4


def test_profile_runs_the_profilers_while_the_load_does(infera: Infera) -> None:
    """POST /start_profile, the load, POST /stop_profile; a server that has none is told before the load, exit 1."""
    fine = Script([(0.0, b"{}")], kind="application/json")

    def reply(got: Got) -> Script:
        return fine if got.path.endswith("_profile") else stream(0.01, 0.0, 2)

    with TimedTarget(reply) as target:
        found = infera("bench", "--base-url", target.url, "-n", "2", "-c", "1", *FAST, "--profile")
        paths = [got.path for got in target.got if not got.path.endswith("/models")]
    assert found.code == 0, found.err
    assert (paths[0], paths[-1], len(paths)) == ("/start_profile", "/stop_profile", 4)
    with TimedTarget(lambda _got: Script([(0.0, b"{}")], status=404)) as target:
        found = infera("bench", "--base-url", target.url, "-n", "2", "--model", "m", *FAST, "--profile")
    assert found.code == 1
    assert "POST /start_profile was answered 404: start the engine with its profiler on" in found.err


def test_a_gate_decides_the_exit_code(infera: Infera) -> None:
    """A run that is fine in itself exits 1 when the limit that was asked for is missed, and says which."""
    with failing(0) as target:
        found = infera("bench", "--base-url", target.url, "-n", "2", *FAST, "--gate", "cpu:1", "hits:0.9")
    assert found.code == 1
    assert "missed   hits is not told by the server, asked was ≥ 0.9" in found.out
    assert found.out.rstrip().endswith(", but a limit of --gate was missed (exit 1)")


def test_json_on_stdout_is_only_json(infera: Infera) -> None:
    """-o json prints the document and nothing else; a key is not in it."""
    with failing(0) as target:
        found = infera("bench", "--base-url", target.url, "-n", "2", *FAST, "-o", "json",
                       "--header", "Authorization=Bearer secret-key")
        assert target.got[0].headers["authorization"] == "Bearer secret-key"
    assert json.loads(found.out)["runs"][0]["figures"]["counts"]["ok"] == 2
    assert "secret-key" not in found.out


def document(scale: float, *, bad: int = 0, **options: object) -> Document:
    figures = Tally().update([
        *(sample(n * 0.1, scale * (0.1 + 0.001 * (n * 7 % 50)), (0.02,)) for n in range(300)),
        *(failure("http_500", n * 0.1) for n in range(bad)),
    ]).figures()
    run = Run("", 0, "2026-01-01T00:00:00+00:00", False, {"model": "m", **options}, {"url": "http://x"},
              Client("here", 1, 0.1, 0.1, "same host"), figures, None, judge(figures, Circumstances()))
    return Document((run,), "0")


def test_compare_names_only_what_differs(infera: Infera, tmp_path: Path) -> None:
    """Of two datasets, the member that is not the same in both; not everything that both are."""
    for name, length in (("a.json", 64), ("b.json", 128)):
        spec = {"name": "random", "input_len": length, "output_len": 16}
        (tmp_path / name).write_bytes(encode(document(1.0, dataset=spec)))
    said = [line for line in infera("bench", "compare", "a.json", "b.json").err.splitlines() if "differ" in line]
    assert said == ["warning: the runs differ in dataset input_len: 64 / 128"]


def test_compare_says_what_changed(infera: Infera, tmp_path: Path) -> None:
    """A run that is 20 % slower is called worse, with an interval, in console and HTML; differing options warn."""
    (tmp_path / "a.json").write_bytes(encode(document(1.0, rate=5.0)))
    (tmp_path / "b.json").write_bytes(encode(document(1.2, rate=9.0)))
    found = infera("bench", "compare", "a.json", "b.json", "--html", "c.html")
    assert found.code == 0, found.err
    assert re.search(r"ttft +p50 .*\+20\.\d%.* worse", found.out)
    assert "differ in rate: 5.0 / 9.0" in found.err
    assert "data:image/svg+xml" in (tmp_path / "c.html").read_text()
    plain = infera("bench", "compare", "a.json", "b.json", "-o", "json")
    assert json.loads(plain.out)["compared"][0]["b"] == "b.json"


def test_compare_tells_of_a_partial_result(infera: Infera, tmp_path: Path) -> None:
    """A run that was cut off is not compared as if it were whole: on stderr, on the page and in JSON."""
    whole = document(1.0)
    (tmp_path / "a.json").write_bytes(encode(whole))
    (tmp_path / "b.json").write_bytes(encode(Document((replace(whole.runs[0], partial=True),), "0")))
    (tmp_path / "c.json").write_bytes(encode(Document(whole.runs, "0", {"interrupted": True})))
    for name in ("b.json", "c.json"):
        found = infera("bench", "compare", "a.json", name, "--html", "page.html")
        assert f"warning: {name} is PARTIAL: the " in found.err
        assert f"{name} is PARTIAL" in (tmp_path / "page.html").read_text()
        plain = json.loads(infera("bench", "compare", "a.json", name, "-o", "json").out)
        assert [said for said in plain["warnings"] if f"{name} is PARTIAL" in said]


def test_compare_tells_of_failures(infera: Infera, tmp_path: Path) -> None:
    """A run that fails a quarter of its requests is not merely as fast: a row, and a warning with the classes."""
    (tmp_path / "a.json").write_bytes(encode(document(1.0)))
    (tmp_path / "b.json").write_bytes(encode(document(1.0, bad=100)))
    found = infera("bench", "compare", "a.json", "b.json")
    assert re.search(r"failed requests +share +0 of 300 +100 of 400 .* worse", found.out)
    said = "warning: b.json: 100 of 400 requests failed (100 × http_500) and are in no latency figure"
    assert said in found.err
    assert "a.json: " not in found.err


@pytest.mark.parametrize("content", [b"{}", b"[", b'{"kind": "infera-bench", "schema_version": 99}',
                                     b'{"kind": "infera-bench", "schema_version": 1, "runs": 5}'])
def test_compare_refuses_what_is_no_result(infera: Infera, tmp_path: Path, content: bytes) -> None:
    """Other files, later versions and damaged results end in a sentence."""
    (tmp_path / "a.json").write_bytes(content)
    assert infera("bench", "compare", "a.json", "a.json").code == 1


def judged(cell: str, code: int, status: str = "VALID") -> Run:
    """A run of a search that came out with `code`."""
    run = document(1.0).runs[0]
    return replace(run, cell=cell, verdict=type(run.verdict)(status, (), (), code))


@pytest.mark.parametrize(("one", "two", "passed", "failed", "code"), [
    (0, 1, 1, 2, 0),        # too much load fails on purpose
    (1, 1, 1, 2, 1),        # failures, or a missed gate, at the load that was found
    (1, 0, 0, 1, 1),        # nothing keeps the limits, since requests fail
    (0, 0, 0, 1, 4),        # nothing keeps the limits
    (4, 0, 1, 2, 4), (0, 4, 1, 2, 4),       # an end that the load generator spoiled
])
def test_a_search_is_judged_by_what_it_found(one: int, two: int, passed: int, failed: int, code: int) -> None:
    """Rulings 5 hold for the load that a search found, or the least it tried; more load is there to fail."""
    found = {"kind": "concurrency", "passed": passed, "failed": failed}
    runs = (judged("concurrency=1", one), judged("concurrency=2", two))
    assert exit_code(Document(runs, "0", {"find_max": found})) == code


def test_a_probe_that_was_repeated_does_not_spoil_a_search() -> None:
    """INVALID beside VALID where the limits were kept, or beyond the ends: exit 0; INVALID alone there: exit 4."""
    found = {"find_max": {"kind": "rate", "passed": 0.5, "failed": 0.75, "attainment": 0.95, "finished": True}}
    late, fine = judged("rate=0.5", 4, "INVALID"), judged("rate=0.5", 0)
    beyond = (judged("rate=1", 4, "INVALID"), judged("rate=0.75", 1))
    good, also, bad = (
        Document((*probes, *beyond), "0", found) for probes in ((late, fine), (fine, late), (late, late)))
    assert (exit_code(good), exit_code(also), exit_code(bad)) == (0, 0, 4)
    said = [find_max(one.findings["find_max"], one.runs) for one in (good, also, bad)]
    assert said[0] == "most load with 95% of requests within the limits: rate between 0.5 (kept) and 0.75 (not kept)"
    assert said[1] == said[0]
    assert said[2] == f"{said[0]}; but rate 0.5 was judged on INVALID runs, which say little of the server"


def test_the_end_of_a_benchmark_that_was_cut_off_decides() -> None:
    """Without a run it is exit 1, interrupted between two runs it is 130."""
    assert exit_code(Document((), "0")) == 1
    assert exit_code(Document((judged("", 0),), "0", {"interrupted": True})) == 130


def test_a_search_in_which_every_request_fails_is_exit_1(infera: Infera) -> None:
    """It is no matter of limits when nothing is served: exit 1, and the last sentence says what failed."""
    with failing(100) as target:
        found = infera("bench", "--base-url", target.url, "--find-max", "--goodput", "ttft:500", "-n", "4", *FAST)
    assert found.code == 1
    assert re.search(r"not even concurrency 1 keeps .*; 4 of 4 requests failed there \(4 × http_500\)\s\(exit 1\)\n",
                     found.out)
    assert found.err.startswith("searching the highest concurrency (1 to 4,096 callers) with 95% of requests within")
    assert re.search(r"^concurrency=1: VALID, .*, 0.0% in limits, 4 failed$", found.err, re.MULTILINE)


def test_a_gate_missed_at_the_load_that_was_found_is_exit_1(infera: Infera) -> None:
    """--gate holds for a search, too."""
    with failing(0) as target:
        found = infera("bench", "--base-url", target.url, "--find-max", "--goodput", "ttft:0.001", "-n", "2", *FAST,
                       "--gate", "hits:0.9")
    assert found.code == 1
    assert "missed there: hits is not told by the server, asked was ≥ 0.9" in found.out.replace("\n", " ")
