"""What `infera bench` and its like write: looked at before the work, and after it no file takes the report along."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from infera_cli.cli import bench_files
from infera_cli.errors import ConfigError
from tests.cli.conftest import Infera
from tests.support.timed_target import Got, Script, TimedTarget, stream

FAST = ("-n", "2", "--isl", "8", "--osl", "2", "--allow-degraded")
SMALL = ("-n", "5", "--rate", "5", "--isl", "8", "--osl", "2")


@pytest.mark.parametrize("flag", ["--html", "--csv", "--plot", "--result-filename"])
@pytest.mark.parametrize(("place", "said"), [
    ("folder", "it is a folder"), ("/proc/x", "cannot write /proc/x"), ("no/such/x", "there is no folder"),
])
def test_a_file_that_cannot_be_written_is_told_before_the_load(
    infera: Infera, tmp_path: Path, flag: str, place: str, said: str
) -> None:
    """Exit 1 and a sentence, and not one request is sent."""
    (tmp_path / "folder").mkdir()
    with TimedTarget(lambda _got: stream(0.0, 0.0, 2)) as target:
        found = infera("bench", "--base-url", target.url, *FAST, flag, place)
        assert (found.code, found.out, len(target.got)) == (1, "", 0)
    assert said in found.err
    if flag != "--csv":
        found = infera("simulate", *SMALL, flag, place)
        assert (found.code, found.out) == (1, "")
        assert said in found.err


def test_a_details_file_that_cannot_be_written_is_told_before_the_load(infera: Infera, tmp_path: Path) -> None:
    """The lines of --save-detailed have a name made from that of the result."""
    (tmp_path / "r.requests.jsonl").mkdir()
    found = infera("bench", "--base-url", "http://x", *FAST, "--save-detailed", "--result-filename", "r.json")
    assert (found.code, found.err) == (1, "error: cannot write r.requests.jsonl: it is a folder\n")


def test_a_file_lost_after_the_load_loses_no_other(infera: Infera, tmp_path: Path) -> None:
    """A folder takes the place of the page in mid-run: the table, the CSV and the result are there, and exit 1."""

    def reply(_got: Got) -> Script:
        (tmp_path / "p.html").mkdir(exist_ok=True)
        return stream(0.0, 0.0, 2)

    with TimedTarget(reply) as target:
        found = infera("bench", "--base-url", target.url, *FAST, "--html", "p.html", "--csv", "r.csv",
                       "--result-filename", "r.json")
    assert found.code == 1
    assert "2 sent, 2 ok" in found.out
    assert found.err.endswith("error: cannot write p.html: Is a directory\n")
    assert json.loads((tmp_path / "r.json").read_text())["runs"]
    assert (tmp_path / "r.csv").read_text()
    assert not list(tmp_path.glob(".p.html.*"))


def test_two_options_do_not_write_one_file(infera: Infera) -> None:
    """However the path is spelt, the second would overwrite the first: exit 2."""
    found = infera("bench", "--base-url", "http://x", *FAST, "--result-filename", "x", "--html", "./x")
    assert (found.code, found.err) == (
        2, "error: --result-filename and --html are the same file, x: one would overwrite the other\n")
    assert infera("simulate", *SMALL, "--plot", "x", "--html", "x").code == 2


def test_a_comparison_does_not_overwrite_what_it_compares(infera: Infera) -> None:
    """--html must not be a result; and where it cannot be written, that is a sentence before anything is read."""
    assert infera("bench", "compare", "a.json", "b.json", "--html", "./b.json").code == 2
    found = infera("bench", "compare", "a.json", "b.json", "--html", "/no/such/x.html")
    assert (found.code, found.err) == (1, "error: there is no folder /no/such to write x.html into\n")


def test_a_device_is_written_to_and_stays_one(tmp_path: Path) -> None:
    """/dev/null is no file to be replaced; a check leaves nothing behind, not even where there was something."""
    bench_files.possible(Path("/dev/null"))
    bench_files.write(Path("/dev/null"), b"x")
    assert Path("/dev/null").is_char_device()
    (tmp_path / "a").write_text("before")
    bench_files.possible(tmp_path / "a")
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("a", "before")]
    with pytest.raises(ConfigError):
        bench_files.possible(tmp_path)


def test_the_folder_for_results_is_made(infera: Infera, tmp_path: Path) -> None:
    """--result-dir with folders that are not there yet, as vLLM does; other files need a folder that is there."""
    with TimedTarget(lambda _got: stream(0.0, 0.0, 2)) as target:
        found = infera("bench", "--base-url", target.url, *FAST, "--result-dir", "new/results", "--save-detailed",
                       "--result-filename", "r.json")
    assert found.code == 0, found.err
    assert sorted(path.name for path in (tmp_path / "new" / "results").iterdir()) == ["r.json", "r.requests.jsonl"]
