"""`infera record` from the command line, against a server that streams."""

from __future__ import annotations

import json
import resource
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from time import sleep

import pytest

from infera_cli.client.record import Recording, record
from infera_cli.errors import ConfigError
from tests.cli.conftest import Infera

ROWS = [{"timestamp": at, "input_length": 9, "output_length": 2, "hash_ids": [at]} for at in (30, 10, 20)]


class Streaming(BaseHTTPRequestHandler):
    """Answers with an empty line and ROWS, or refuses."""

    def do_GET(self) -> None:
        refused = "seconds=7.0" in self.path
        self.send_response(401 if refused else 200)
        self.end_headers()
        if refused:
            self.wfile.write(b'{"error": {"message": "admin only"}}')
            return
        sleep(min(0.3, float(self.path.partition("seconds=")[2])))
        rows = [] if "seconds=5.0" in self.path else ROWS
        self.wfile.write(b"\n" + b"".join(json.dumps(row).encode() + b"\n" for row in rows))

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def url() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), Streaming) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_rows_are_written_by_time(infera: Infera, url: str, tmp_path: Path) -> None:
    """The file has the rows in the order of their times, and the last line says how many."""
    found = infera("record", "--server", url, "--for", "0.3s", "-o", "t.jsonl")
    assert (found.code, found.out) == (0, "t.jsonl: 3 requests\n")
    rows = [json.loads(line) for line in (tmp_path / "t.jsonl").read_text().splitlines()]
    assert [row["timestamp"] for row in rows] == [10, 20, 30]


def test_a_recording_without_a_request_is_an_error(infera: Infera, url: str, tmp_path: Path) -> None:
    """Nothing was served: exit 1 and a sentence, and no empty file."""
    found = infera("record", "--server", url, "--for", "5s", "-o", "t.jsonl")
    assert found.code == 1
    assert "no request ended in that time" in found.err
    assert not (tmp_path / "t.jsonl").exists()


def test_a_recording_that_the_server_ends_early_is_no_success(infera: Infera, url: str, tmp_path: Path) -> None:
    """Ten minutes were asked for and the stream ended at once: exit 1, and what came is kept."""
    found = infera("record", "--server", url, "--for", "10m", "-o", "t.jsonl")
    assert (found.code, found.out) == (1, "t.jsonl: 3 requests\n")
    assert "the recording ended after 0 s of 600" in found.err
    assert len((tmp_path / "t.jsonl").read_text().splitlines()) == 3


def test_who_may_not_is_told_how(infera: Infera, url: str) -> None:
    """A refusal names the admin token."""
    found = infera("record", "--server", url, "--for", "7s")
    assert found.code == 1
    assert "admin token" in found.err


@pytest.mark.parametrize(("argv", "code"), [(("--for", "soon"), 2), (("--for", "48h"), 1), (("-o", "/nowhere/t"), 1),
                                          (("-o", "/tmp"), 1), (("-o", "/dev/null"), 1), (("-o", "/proc/t"), 1)])
def test_what_cannot_be_recorded_is_refused(infera: Infera, argv: tuple[str, ...], code: int) -> None:
    """Bad durations and places end in a sentence before anything is asked."""
    found = infera("record", *argv)
    assert found.code == code
    assert found.err.startswith("error: ")


def test_an_interrupted_recording_keeps_what_came(tmp_path: Path) -> None:
    """Ctrl-C after two rows: both are in the file."""

    def lines() -> Iterator[bytes]:
        yield from (json.dumps(row).encode() + b"\n" for row in ROWS[:2])
        raise KeyboardInterrupt

    assert record(lines(), tmp_path / "t.jsonl") == Recording(2, "interrupted")
    assert len((tmp_path / "t.jsonl").read_text().splitlines()) == 2
    assert [path.name for path in tmp_path.iterdir()] == ["t.jsonl"]


def test_a_recording_that_cannot_have_its_name_is_kept(tmp_path: Path) -> None:
    """A folder takes the place of the file while it is recorded: the rows stay, and the sentence says where."""

    def lines() -> Iterator[bytes]:
        (tmp_path / "t.jsonl").mkdir()
        yield from (json.dumps(row).encode() + b"\n" for row in ROWS)

    with pytest.raises(ConfigError, match="the recording is in") as fault:
        record(lines(), tmp_path / "t.jsonl")
    kept = Path(fault.value.message.rpartition(" ")[2])
    assert len(kept.read_text().splitlines()) == 3


@pytest.mark.parametrize("room", [2.0, 2.5])
def test_a_recording_that_finds_the_disk_full_is_kept_as_far_as_it_came(tmp_path: Path, room: float) -> None:
    """There is room for two rows of three, and perhaps half of one: the two stay whole, and the sentence says where."""
    lines = [json.dumps(row).encode() + b"\n" for row in ROWS]
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(room * len(lines[0])), before[1]))
    try:
        with pytest.raises(ConfigError, match=r"cannot write .*: File too large; the recording is in") as fault:
            record(iter(lines), tmp_path / "t.jsonl")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    kept = Path(fault.value.message.rpartition(" ")[2])
    assert kept.read_bytes() == b"".join(lines[:2])
    assert list(tmp_path.iterdir()) == [kept]


def test_a_disk_without_room_for_one_row_is_left_without_a_file(tmp_path: Path) -> None:
    """There is nothing to keep, so nothing stays, and no place is named."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (9, before[1]))
    try:
        with pytest.raises(ConfigError, match=r"cannot write .*: File too large$"):
            record(iter([json.dumps(ROWS[0]).encode() + b"\n"]), tmp_path / "t.jsonl")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert list(tmp_path.iterdir()) == []
