"""Load processes seen from outside: deaths, keys, connections."""

from __future__ import annotations

import datetime as dt
import ipaddress
import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from infera_cli.errors import ServerUnreachable
from infera_cli.loadtest import job as jobs
from infera_cli.loadtest import processes
from infera_cli.loadtest.job import DatasetSpec, Job, Progress, Target
from infera_cli.loadtest.processes import Failed
from infera_cli.workload.arrivals import OpenLoop
from infera_cli.workload.requests import Shape
from tests.loadtest.runs import Quiet, document, run
from tests.support.timed_target import Got, Script, TimedTarget, stream


class Killer(Quiet):
    """Kills one load process as soon as it runs."""

    killed = False

    def goes(self, progress: list[Progress]) -> None:
        if not self.killed and all(one.state == "running" for one in progress):
            found = subprocess.run(["pgrep", "-P", str(os.getpid()), "-f", "infera_cli.loadtest.child"],
                                   capture_output=True, text=True, check=True)
            os.kill(int(found.stdout.split()[0]), signal.SIGKILL)
            self.killed = True


def test_a_load_process_that_dies_ends_the_run() -> None:
    """The load is no longer what was asked for: the others stop, what was measured is reported, exit 1."""
    with TimedTarget(lambda _got: stream(0.01, 0.01, 3)) as target:
        found = document(target.url, watcher=Killer(), rate=20.0, duration=30.0, processes=2).runs[0]
    assert found.verdict.exit_code == 1
    assert any("died (exit code -9)" in reason for reason in found.verdict.reasons)
    assert found.figures.counts.ok > 0


def test_a_load_process_whose_job_is_gone_says_nothing(tmp_path: Path) -> None:
    """The benchmark was interrupted while the process started: it ends in silence, without a traceback."""
    words = [sys.executable, "-m", "infera_cli.loadtest.child", str(tmp_path / "job"), str(tmp_path / "spool")]
    ended = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    assert (ended.stdout, ended.stderr, ended.returncode) == ("", "", 1)


def test_one_process_too_many_leaves_none_behind(tmp_path: Path) -> None:
    """What cannot be started is a sentence, and the processes that did start are ended."""
    there = [sys.executable, "-c", "import sys; sys.stdin.read()"]
    with pytest.raises(Failed, match="only 1 of 2 load processes could be started: No such file"):
        processes.run([there, [str(tmp_path / "nowhere")]], [], lambda _all: None, lambda: None)


def test_a_load_process_does_not_outlive_who_asked_for_it(tmp_path: Path) -> None:
    """Both ends of its pipes gone, as after a kill of the benchmark: the load process ends, and the load with it."""
    with TimedTarget(lambda _got: stream(0.01, 0.01, 3)) as target:
        job = Job(Target(target.url), Shape("chat", "m"), OpenLoop(20.0, duration=600.0), DatasetSpec(), 1)
        jobs.write(job, tmp_path / "job")
        (tmp_path / "spool").touch()
        child = subprocess.Popen(
            [sys.executable, "-m", "infera_cli.loadtest.child", str(tmp_path / "job"), str(tmp_path / "spool")],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdout.readline()     # it is ready
        child.stdin.write(b"go %f\n" % time.perf_counter())
        child.stdin.flush()
        child.stdout.readline()     # it is running
        child.stdout.close()
        child.stdin.close()
        assert child.wait(20) == 1
    assert target.got


def test_the_users_own_files_are_not_taken_for_modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A script in the folder where the benchmark is started may have the name of a module: it is not run."""
    for name in ("grp", "locust", "msgspec"):
        (tmp_path / f"{name}.py").write_text(f"open('{name}.ran', 'w').close()\nraise SystemExit(9)\n")
    monkeypatch.chdir(tmp_path)
    with TimedTarget(lambda _got: stream(0.01, 0.01, 3)) as target:
        found = run(target.url, concurrency=1, count=3)
    assert found.figures.counts.ok == 3
    assert not list(tmp_path.glob("*.ran"))


def test_a_job_is_readable_by_its_owner_only(tmp_path: Path) -> None:
    """A job may hold a key: its file is 0600, and what is read is what was written, an infinite rate included."""
    job = Job(Target("http://x", {"Authorization": "Bearer k"}), Shape("chat", "m"), OpenLoop(float("inf"), count=3),
              DatasetSpec(), 1)
    jobs.write(job, tmp_path / "job")
    assert stat.S_IMODE((tmp_path / "job").stat().st_mode) == 0o600
    assert jobs.read(tmp_path / "job") == job


def test_a_kept_connection_that_was_closed_is_nobodys_fault() -> None:
    """A target that closes after every answer, announcing nothing, costs no failure."""
    closing = Script(stream(0.001, 0.001, 2).steps)

    def reply(_got: Got) -> Script:
        body = b"".join(data for _at, data in closing.steps)
        head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: %d\r\n\r\n" % len(body)
        return Script([(0.001, head + body)], raw=True)

    with TimedTarget(reply) as target:
        found = run(target.url, concurrency=2, count=40)
    assert (found.figures.counts.ok, found.figures.counts.failed) == (40, 0)


def test_connections_are_kept() -> None:
    """Requests one after another travel on one connection: only the first has to connect."""
    with TimedTarget(lambda _got: stream(0.005, 0.0, 1)) as target:
        found = run(target.url, concurrency=1, count=20)
    connect = found.figures.latency["connect"]
    assert connect.p50 < 0.001
    assert len({got.peer for got in target.got}) == 1


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """(certificate, key) of 127.0.0.1, signed by itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    now = dt.datetime.now(dt.UTC)
    made = (
        x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
        .serial_number(x509.random_serial_number()).not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    folder = tmp_path_factory.mktemp("tls")
    (folder / "cert.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    (folder / "key.pem").write_bytes(key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()))
    return folder / "cert.pem", folder / "key.pem"


def test_tls_is_verified(certificate: tuple[Path, Path]) -> None:
    """An unknown certificate is refused; with --cacert it is trusted, with --insecure not looked at."""
    with TimedTarget(lambda _got: stream(0.001, 0.0, 1), tls=certificate) as target:
        assert target.url.startswith("https://")
        with pytest.raises(ServerUnreachable, match="certificate"):
            run(target.url, count=2)
        assert run(target.url, count=2, ca=str(certificate[0])).figures.counts.ok == 2
        assert run(target.url, count=2, insecure=True).figures.counts.ok == 2
