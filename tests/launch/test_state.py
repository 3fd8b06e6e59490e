"""The state file and its lock (replica-router §1.9)."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infera_cli.errors import StateLocked
from infera_cli.launch.script import Identity
from infera_cli.launch.state import Record, StateFile, holder

RECORD = Record(slot="x-d0", host="x", devices=(0, 1), address="127.0.0.1", port=8001, nonce="n", digest="d",
                launched=1.5, ready=True, identity=Identity("n", 77, "12", "b", 3), tree=("77:12",))  # fmt: skip


def test_what_is_written_is_read(tmp_path: Path) -> None:
    """Every field comes back; so does why launches failed."""
    file = StateFile(tmp_path / "deep" / "state.json")
    other = replace(RECORD, slot="x-d1", identity=None, digest=None, ready=False, tree=())
    file.write([RECORD, other], {"x-d2": "it ended"})
    assert file.read() == [RECORD, other]
    assert file.failed() == {"x-d2": "it ended"}
    assert (tmp_path / "deep" / "state.json").stat().st_mode & 0o777 == 0o600


def test_without_a_path_nothing_is_kept() -> None:
    """Every call is as good as done."""
    file = StateFile(None)
    file.lock("http://a")
    file.write([RECORD])
    file.unlock()
    assert (file.read(), file.failed()) == ([], {})


def test_a_write_that_fails_leaves_the_old_content_and_warns(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The replicas run all the same."""
    file = StateFile(tmp_path / "state.json")
    file.write([RECORD])
    (tmp_path / "state.json.part").mkdir()
    file.write([])
    assert "cannot be written" in caplog.text
    assert file.read() == [RECORD]


@given(cut=st.integers(0, 400))
def test_a_truncated_file_never_stops_anything(tmp_path_factory: pytest.TempPathFactory, cut: int) -> None:
    """Cut off anywhere: records or none, never an error."""
    path = tmp_path_factory.mktemp("state") / "s.json"
    file = StateFile(path)
    file.write([RECORD])
    path.write_bytes(path.read_bytes()[:cut])
    assert file.read() in ([], [RECORD])


KEYS = st.sampled_from(["replicas", "slot", "address", "port", "devices", "device", "process", "pid", "tree", "failed"])
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(KEYS, inner),
)


@given(ANYTHING)
def test_any_json_is_read_without_an_error(tmp_path_factory: pytest.TempPathFactory, document: object) -> None:
    """Whatever somebody wrote there."""
    path = tmp_path_factory.mktemp("state") / "s.json"
    path.write_text(json.dumps(document))
    file = StateFile(path)
    assert all(isinstance(record, Record) for record in file.read())
    assert all(isinstance(name, str) for name in file.failed())


def test_the_lock_names_its_owner_and_ends_with_it(tmp_path: Path) -> None:
    """Another process is refused with pid and address; after SIGKILL the lock is free."""
    path = tmp_path / "state.json"
    code = ("import sys, time; from pathlib import Path; from infera_cli.launch.state import StateFile\n"
            "StateFile(Path(sys.argv[1])).lock('http://127.0.0.1:8000'); print('held', flush=True); time.sleep(60)")
    code = code.replace("StateFile(Path(sys.argv[1])).lock", "f = StateFile(Path(sys.argv[1])); f.lock")
    other = subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE, text=True)
    assert other.stdout is not None
    with other.stdout:
        assert other.stdout.readline() == "held\n"
        mine = StateFile(path)
        with pytest.raises(StateLocked, match=rf"process {other.pid} at http://127\.0\.0\.1:8000"):
            mine.lock(None)
        owner = holder(path)
        assert owner is not None
        assert (owner.pid, owner.address) == (other.pid, "http://127.0.0.1:8000")
        other.kill()
        other.wait()
    assert holder(path) is None
    mine.lock(None)
    held = holder(path)
    assert held is not None
    assert held.pid == os.getpid()
    mine.unlock()
    assert holder(path) is None


def test_a_lock_that_somebody_else_took_over_is_not_named_after_the_dead(tmp_path: Path) -> None:
    """A killed owner leaves its name in the lock; whoever holds the lock now is somebody, not that server."""
    path = tmp_path / "state.json"
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    with (tmp_path / "state.json.lock").open("w") as lock:
        json.dump({"pid": gone.pid, "address": "http://127.0.0.1:1"}, lock)
        lock.flush()
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert holder(path) is None
        with pytest.raises(StateLocked, match="belongs to somebody"):
            StateFile(path).lock(None)
