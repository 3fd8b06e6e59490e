"""What may be typed after `infera bench` and `infera simulate`: what cannot be, what does nothing, what is hidden."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from infera_cli.cli import bench_options, simulate_options
from infera_cli.cli.bench_checks import RANGES
from infera_cli.cli.bench_options import spread
from tests.cli.conftest import Infera, Result
from tests.cli.targets import FAST, failing


@pytest.mark.parametrize(("words", "code", "said"), [
    ((), 2, "give the address"),
    (("--base-url", "localhost:8000"), 2, "is not an address"),
    (("--base-url", "http://127.0.0.1:9"), 1, "cannot reach 127.0.0.1:9"),
    (("--base-url", "http://x", "--rate", "fast"), 2, "--rate must be a number, not 'fast'"),
    (("--base-url", "http://x", "--rate", "0"), 1, "above 0"),
    (("--base-url", "http://x", "-n", "0"), 1, "-n must be at least 1, not 0"),
    (("--base-url", "http://x", "-n0"), 1, "-n must be at least 1, not 0"),
    (("--base-url", "http://x", "--isl=0"), 1, "--isl must be at least 1, not 0"),
    (("--base-url", "http://x", "--random-input-len", "0"), 1, "--random-input-len must be at least 1, not 0"),
    (("--base-url", "http://x", "--dataset-name", "multi-turn", "--turns", "0"), 1, "--turns must be at least 1"),
    (("--base-url", "http://x", "--request-timeout", "-1"), 1, "--request-timeout must be 0 or more"),
    (("--base-url", "http://x", "--sweep", "rate=1,2", "--find-max"), 2, "give --sweep or --find-max"),
    (("--base-url", "http://x", "--sweep", "rate=1,2", "--rate", "5"), 2, "--sweep sets the load of every run"),
    (("--base-url", "http://x", "--sweep", "concurrency=auto", "-c", "5"), 2, "leave out --concurrency"),
    (("--base-url", "http://x", "--sweep", "concurrency=1,2", "--rate", "5"), 2, "leave out --request-rate"),
    (("--base-url", "http://x", "--find-max", "--goodput", "ttft:9", "-c", "5"), 2, "--find-max sets the load"),
    (("--base-url", "http://x", "--find-max", "--over", "rate", "--rate", "5"), 2, "leave out --request-rate"),
    (("--base-url", "http://x", "--sweep", "rate=1", "--ramp-up-strategy", "linear"), 2, "leave out --ramp-up"),
    (("--base-url", "http://x", "--rate", "2", "--ramp-up-strategy", "linear"), 1, "a ramp has its own rates"),
    (("--base-url", "http://x", "--rate", "2", "--speed", "2"), 1, "--speed is for a trace"),
    (("--base-url", "http://x", "--percentile-metrics", "ttft,tbt"), 2, "--percentile-metrics must be one of ttft"),
    (("--base-url", "http://x", "--cache", "hot"), 2, "cold, warm, as-is"),
    (("--base-url", "http://x", "--endpoint", "embed"), 2, "--endpoint"),
    (("--base-url", "http://x", "--goodput", "ttft"), 2, "no limit such as"),
    (("--base-url", "http://x", "--goodput", "foo:1"), 2, "no limit such as"),
    (("--base-url", "http://x", "--goodput", "ttft:0"), 1, "--goodput ttft:0: milliseconds are above 0"),
    (("--base-url", "http://x", "--gate", "lag_p99"), 2, "no limit such as"),
    (("--base-url", "http://x", "--gate", "foo:1"), 2, "no limit such as"),
    (("--base-url", "http://x", "--gate", "hits:5"), 1, "hits is a share between 0 and 1"),
    (("--base-url", "http://x", "--dataset-name", "foo"), 2, "there is no dataset 'foo'"),
    (("--base-url", "http://x", "--dataset-path", "t.jsonl"), 2, "--dataset-path needs --dataset-name"),
    (("--base-url", "foo"), 2, "is not an address"),
    (("--base-url", "http://127.0.0.1:9/?x=1"), 1, "--base-url ends before the ?"),
    (("--base-url", "http://x", "--tokenizer", "no.json"), 1, "cannot read the tokenizer no.json: No such file or dir"),
    (("--base-url", "http://x", "--tokenizer", "/"), 1, "cannot read the tokenizer /tokenizer.json: No such file or"),
    (("--base-url", "http://x", "--tokenizer", "/dev/null"), 1, "cannot load the tokenizer /dev/null: "),
    (("--base-url", "http://x", "--extra-body", "{"), 2, "not JSON"),
    (("--base-url", "http://x", "--sweep", "rate=a"), 2, "--sweep"),
    (("--base-url", "http://x", "--sweep", "rate=0"), 1, "--sweep"),
    (("--base-url", "http://x", "--header", "novalue"), 2, "--header"),
    (("--base-url", "http://x", "--header", "A=b\x01"), 2, "--header"),
    (("--base-url", "http://x", "--header", "A=b\u00fc"), 2, "--header"),
    (("--base-url", "http://x", "--header", "Content-Length=5"), 2, "it says how a request is framed"),
    (("--base-url", "http://x", "--header", "transfer-encoding=chunked"), 2, "it says how a request is framed"),
    (("--base-url", "http://x", "--header", "A(b)=c"), 2, "--header"),
    (("--base-url", "http://x", "--header", "A=b", "a=c"), 2, "a name is there twice"),
    (("--base-url", "http://x", "--sweep", "concurrency=inf"), 1, "--sweep"),
    (("--base-url", "http://x", "--sweep", "concurrency=nan"), 1, "--sweep"),
    (("--base-url", "http://x", "--sweep", "concurrency=1.5"), 1, "--sweep"),
    (("--base-url", "http://x", "--burstiness", "0.0000001", "--rate", "5"), 1, "--burstiness is between 0.01"),
    (("--base-url", "http://x", "--rate", "1e300"), 1, "--rate is at most 1,000,000,000, not 1e+300"),
    (("--base-url", "http://x", "--processes", "1000000"), 1, "--processes is at most 1,000, not 1000000"),
    (("--base-url", "http://x", "--processes", "0"), 1, "--processes"),
    (("--base-url", "http://x", "--max-error-rate", "2"), 1, "share"),
    (("--base-url", "http://x", "--result-dir", "/proc/at"), 1, "cannot make the folder /proc/at: No such file"),
    (("--base-url", "http://x", "--result-dir", "/dev/null"), 1, "cannot make the folder /dev/null: it is a file"),
    (("--base-url", "http://x", "--result-dir", "/dev/null/x"), 1, "cannot make the folder /dev/null/x: Not a direc"),
    (("--base-url", "http://x", "-o", "xml"), 2, "-o must be"),
    (("--base-url", "http://x", "--metric-percentiles", "high"), 2, "--metric-percentiles"),
    (("compare", "a.json"), 2, "at least two"),
    (("compare", "a.json", "b.json"), 1, "cannot read a.json"),
    (("worker", "--master", "somewhere"), 2, "HOST:PORT"),
])
def test_bad_command_lines_end_in_a_sentence(infera: Infera, words: tuple[str, ...], code: int, said: str) -> None:
    """What does not parse is exit 2, what cannot be is exit 1, and each says what to do."""
    found = infera("bench", *words)
    assert (found.code, found.out) == (code, "")
    assert said in found.err
    assert found.err.startswith("error: ")


NUMBERS = [
    (command, name, table[name][2].default)
    for command, table in (("bench", bench_options.every()), ("simulate", simulate_options.every()))
    for name in table if table[name][0] in (int, float, int | None, float | None)
]


@pytest.mark.parametrize(("command", "name", "flag"), NUMBERS)
def test_no_number_is_taken_that_makes_no_sense(infera: Infera, command: str, name: str, flag: str) -> None:
    """Whatever number an option takes: nan and minus infinity are refused in a sentence that names it."""
    assert name in RANGES
    for value in ("nan", "-inf"):
        found = infera(command, "--base-url", "http://x", flag, value) if command == "bench" else \
            infera(command, flag, value)
        assert found.code in (1, 2)
        assert found.err.startswith("error: ")
        assert flag in found.err
        assert "fault in infera" not in found.err


SPELLINGS = [
    (command, flag, table[name][0])
    for command, table in (("bench", bench_options.every()), ("simulate", simulate_options.every()))
    for name in table if table[name][0] in (int, float, int | None, float | None)
    for flag in (table[name][2].default, *table[name][2].param_decls)
]


@pytest.mark.parametrize(("command", "flag", "kind"), SPELLINGS)
def test_a_word_where_a_number_belongs_is_one_sentence(infera: Infera, command: str, flag: str, kind: object) -> None:
    """Every number of `bench` and `simulate`, in every spelling: the option as it was typed, and what it wants."""
    wanted = "a whole number" if kind in (int, int | None) else "a number"
    for value in ("abc", "", "1,5"):
        assert infera(command, flag, value) == Result(2, "", f"error: {flag} must be {wanted}, not {value!r}\n")


@pytest.mark.parametrize(("words", "said"), [
    (("bench", "compare", "--seed", "x", "a", "b"), "--seed must be a whole number, not 'x'"),
    (("bench", "--isl", "9" * 5000), "--isl must be a whole number, not '999999999999999999999999'…"),
    (("record", "--for", "x"), "--for must be a number of seconds, e.g. 30, 1.5 or 10m, not 'x'"),
    (("record", "--timeout", "x"), "--timeout must be a number of seconds, e.g. 30, 1.5 or 10m, not 'x'"),
    (("simulate", "--workers", "x"), "--workers must look like 8 or 4..64, not 'x'"),
])
def test_other_numbers_are_refused_in_the_same_form(infera: Infera, words: tuple[str, ...], said: str) -> None:
    """A word for a number says so in `bench compare`, `record` and `simulate`, too; exit 2."""
    assert infera(*words) == Result(2, "", f"error: {said}\n")


@pytest.mark.parametrize(("command", "name", "flag"), NUMBERS)
def test_no_number_is_too_long_for_a_sentence(infera: Infera, command: str, name: str, flag: str) -> None:
    """Twenty digits, or three hundred: a whole number has an end, and its sentence does not spell it out."""
    for digits in (20, 300):
        words = ("--base-url", "http://x") if command == "bench" else ()
        found = infera(command, *words, flag, "9" * digits)
        assert found.code in (1, 2)
        assert flag in found.err
        assert "fault in infera" not in found.err
        if found.code == 1:
            assert len(found.err) < 150


@pytest.mark.parametrize(("words", "said"), [
    (("--ramp-up-start-rps", "1"), "--ramp-up-start-rps does nothing without --ramp-up-strategy"),
    (("--ramp-up-end-rps", "1"), "--ramp-up-end-rps does nothing without --ramp-up-strategy"),
    (("-c", "2", "--burstiness", "2"), "--burstiness does nothing here"),
    (("--burstiness", "2"), "--burstiness does nothing here"),
    (("--rate", "50", "--think-time", "1"), "--think-time does nothing here"),
    (("-c", "2", "--max-concurrency", "2"), "--max-concurrency does nothing: there are only 2 callers"),
    (("-c", "2", "--max-concurrency", "1"), "--max-concurrency leaves only 1 of the 2 callers a place"),
    (("--expect-workers", "2"), "--expect-workers does nothing without --master-bind"),
    (("--grace", "2"), "--grace does nothing without --duration"),
    (("--over", "rate"), "--over does nothing without --find-max"),
    (("--attainment", "0.5"), "--attainment does nothing here: it is for --find-max"),
    (("--insecure", "--cacert", "x"), "--cacert does nothing with --insecure"),
])
def test_an_option_beside_which_another_does_nothing_is_told(
    infera: Infera, words: tuple[str, ...], said: str
) -> None:
    """Before anything is sent, with what it needs; the same option where it does something is taken in silence."""
    with failing(0) as target:
        found = infera("bench", "--base-url", target.url, "-n", "2", *words, *FAST)
    assert found.code == 0
    assert f"warning: {said}" in found.err
    assert len(found.err.splitlines()) == 1


def test_options_that_do_something_are_taken_in_silence(infera: Infera) -> None:
    """A ramp with its ends, gaps of a rate, a pause of callers."""
    with failing(0) as target:
        for words in (("--ramp-up-strategy", "linear", "--ramp-up-start-rps", "40", "--ramp-up-end-rps", "80"),
                      ("--rate", "50", "--burstiness", "2", "--max-concurrency", "2"),
                      ("-c", "2", "--think-time", "0.01"), ("--sweep", "concurrency=1", "--think-time", "0.01")):
            assert "warning" not in infera("bench", "--base-url", target.url, "-n", "2", *words, *FAST).err


def test_a_failure_is_json_where_json_was_asked_for(infera: Infera) -> None:
    """-o json: stdout stays empty, stderr has one document, the exit code is the same."""
    for words, code, kind, said in (
            (("bench", "--base-url", "http://x", "--rate", "0"), 1, "config_error", "--rate must be above 0"),
            (("bench", "compare", "a.json"), 2, "usage_error", "give at least two"),
            (("simulate", "--policy", "none"), 2, "usage_error", "--policy must be one of"),
            (("bench", "--rate", "x"), 2, "usage_error", "--rate must be a number"),
            (("bench", "--rqst", "x"), 2, "usage_error", "did you mean --request-rate or --request-timeout?"),
            (("workers", "list", "--timeout", "x"), 2, "usage_error", "--timeout must be a number of seconds")):
        found = infera(*words, "-o", "json")
        assert (found.code, found.out) == (code, "")
        error = json.loads(found.err)["error"]
        assert error["code"] == kind
        assert said in error["message"]


def test_secrets_are_in_no_result(infera: Infera, tmp_path: Path) -> None:
    """Headers by what their names hold; an address with a password is refused, and not repeated."""
    names = ("X-API-Token", "Authorization", "X-Secret", "Set-Cookie", "X-Password", "Api-Key", "X-Amz-Signature")
    with failing(0) as target:
        found = infera("bench", "--base-url", target.url, "-n", "2", *FAST, "-o", "json", "--html", "r.html",
                       *(word for name in names for word in ("--header", f"{name}=hunter2")), "--header", "X-A=open")
        assert target.got[0].headers["x-api-token"] == "hunter2"
    assert "hunter2" not in found.out + found.err + (tmp_path / "r.html").read_text()
    shown = json.loads(found.out)["runs"][0]["options"]["headers"]
    assert shown == dict.fromkeys(names, "***") | {"X-A": "open"}
    for url in ("http://me:hunter2@127.0.0.1:9", "ftp://me:hunter2@x", "http://me:hunter2@x:99999"):
        refused = infera("bench", "--base-url", url)
        assert refused.code in (1, 2)
        assert "hunter2" not in refused.out + refused.err
        assert "--base-url" in refused.err


def test_an_option_that_does_nothing_is_told(infera: Infera) -> None:
    """Turns mean nothing for random prompts; the run goes on, and a sentence says for which dataset they do."""
    with failing(0) as target:
        found = infera("bench", "--base-url", target.url, "-n", "2", "--turns", "4", *FAST)
    assert found.code == 0
    assert "--turns does nothing for the dataset random; it is for multi-turn" in found.err


def test_several_values_may_follow_an_option() -> None:
    """`--goodput a:1 b:2` is `--goodput a:1 --goodput b:2`, and other words stay where they are."""
    assert spread(["--goodput", "ttft:1", "tpot:2", "-n", "3", "compare"]) == [
        "--goodput", "ttft:1", "--goodput", "tpot:2", "-n", "3", "compare"]
    assert spread(["--goodput", "ttft:1", "compare"]) == ["--goodput", "ttft:1", "compare"]


@pytest.mark.parametrize(("words", "said"), [
    (("--rate", "100", "--osl", "200"), "a second, and one load process may be too slow to read them (8,000"),
    (("--rate", "100", "--osl", "200"), "each are known to work): --processes 3"),
    (("--rate", "100"), "answers of 128 tokens at this rate are 12,800 events a second"),
    (("--rate", "100", "--osl", "200", "--processes", "2"), "and 2 load processes may be too slow"),
    (("--sweep", "rate=1,100", "--osl", "200"), "--processes 3"),
    (("--ramp-up-strategy", "linear", "--ramp-up-start-rps", "1", "--ramp-up-end-rps", "100"), "12,800"),
    (("--rate", "20", "--dataset-name", "multi-turn", "--turns", "5", "--osl", "200"), "20,000 events"),
    (("--rate", "100", "--osl", "200", "--master-bind", "127.0.0.1:0", "--expect-workers", "2"), "--expect-workers 3"),
    (("--rate", "62", "--osl", "128"), ""),
    (("--rate", "100", "--osl", "200", "--processes", "3"), ""), (("--rate", "inf", "--osl", "200"), ""),
    (("-c", "1000", "--osl", "200"), ""), (("--rate", "100", "--osl", "200", "--no-stream"), ""),
    (("--sweep", "rate=a"), ""), (("--rate", "100", "--dataset-name", "sharegpt", "--dataset-path", "f"), ""),
])
def test_too_few_load_processes_are_told_before_the_load(infera: Infera, words: tuple[str, ...], said: str) -> None:
    """Where rate and length are known and clearly more than processes are known to read; and with how many it goes."""
    told = [line for line in infera("bench", "--base-url", "foo", *words).err.splitlines() if "too slow" in line]
    assert len(told) == bool(said)
    assert said in "".join(told)
