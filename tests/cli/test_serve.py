"""`infera serve`: its flags, and what it does before it serves."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from infera_cli import wiring
from infera_cli.config.catalogue import catalogue
from infera_cli.config.later import LATER, SWITCHES
from infera_cli.config.settings import ServeSettings
from tests.cli.conftest import Infera


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[ServeSettings]:
    """The settings that would have been served, in place of serving."""
    seen: list[ServeSettings] = []

    def run(settings: ServeSettings, say: Callable[[str], None]) -> int:
        seen.append(settings)
        say("infera 0 listening on nowhere")
        return 0

    monkeypatch.setattr(wiring, "run", run)
    return seen


SEED = [
    ("--host", "127.0.0.1", "host", "127.0.0.1"),
    ("--port", "9000", "port", 9000),
    ("--session-ttl", "60", "session_ttl", 60.0),
    ("--affinity-slack", "0", "affinity_slack", 0),
    ("--health-interval", "0.5", "health_interval", 0.5),
    ("--request-timeout", "10", "request_timeout", 10.0),
    ("--connect-timeout", "1", "connect_timeout", 1.0),
    ("--initial-replicas", "0", "initial_replicas", 0),
    ("--max-replicas", "2", "max_replicas", 2),
    ("--launch-timeout", "700", "launch_timeout", 700.0),
    ("--drain-timeout", "30", "drain_timeout", 30.0),
    ("--replace-after", "10", "replace_after", 10.0),
    ("--state-file", "state.json", "state_file", "state.json"),
    ("--admin-token", "hush", "admin_token", "hush"),
    ("--breaker-failure-threshold", "0", "breaker_failure_threshold", 0),
    ("--breaker-cooldown-s", "2", "breaker_cooldown", 2.0),
    ("--breaker-max-cooldown-s", "20", "breaker_max_cooldown", 20.0),
    ("--request-max-retries", "2", "request_max_retries", 2),
    ("--router-policy", "round-robin", "router_policy", "round-robin"),
    ("--router-mode", "auto", "router_mode", "auto"),
]


@pytest.mark.parametrize(("flag", "text", "name", "value"), SEED)
def test_documented_flags_are_accepted(
    infera: Infera, served: list[ServeSettings], flag: str, text: str, name: str, value: object
) -> None:
    """Every flag of the replica router's page, and those of the server's that this version has."""
    code, _, _ = infera("serve", "--replicas", "replicas.json", flag, text)
    assert code == 0
    assert served[0].replicas == "replicas.json"
    assert getattr(served[0], name) == value


def test_no_replace_dead_is_a_switch(infera: Infera, served: list[ServeSettings]) -> None:
    """Given or not, it takes no value."""
    infera("serve", "--sim", "1")
    infera("serve", "--sim", "1", "--no-replace-dead", "--no-access-log")
    assert [s.no_replace_dead for s in served] == [False, True]
    assert [s.access_log for s in served] == [True, False]


def test_every_setting_has_its_flag(infera: Infera) -> None:
    """Nothing is declared that cannot be typed, and every variable is named in the help."""
    _, out, _ = infera("serve", "--help")
    for row in catalogue(ServeSettings).values():
        assert f"--{row.flag}" in out
        assert row.env in out.replace("\n", " ")


@pytest.mark.parametrize("flag", LATER)
def test_flags_of_later_versions_are_refused_in_words(infera: Infera, flag: str) -> None:
    """Exit status 2 and "not in this version", with what to use now."""
    code, out, err = infera("serve", "--sim", "1", f"--{flag}", *([] if flag in SWITCHES else ["x"]))
    assert (code, out) == (2, "")
    assert err == (f"error: --{flag} is not in this version; "
                   "name the workers with --replicas FILE or --worker URL\n")


def test_a_flag_that_does_not_parse_is_told_before_a_missing_file(infera: Infera) -> None:
    """Exit status 2 even when the replica file is missing too."""
    code, out, err = infera("serve", "--replicas", "none.json", "--port", "abc")
    assert (code, out, err) == (2, "", "error: --port must be a whole number, not 'abc'\n")


def test_without_a_source_the_choices_are_named(infera: Infera) -> None:
    """Exit status 2, one sentence, and the demo."""
    code, out, err = infera("serve")
    assert (code, out) == (2, "")
    assert err == (
        "error: nobody to route to: name the workers with --replicas FILE, --config FILE or --worker URL, "
        "find them with --etcd-endpoint HOST:PORT, "
        "start simulated ones with --sim N, or try `infera demo`\n")


def test_b29_an_empty_admin_token_is_refused(infera: Infera) -> None:
    """Exit status 1 before anything is bound."""
    code, out, err = infera("serve", "--sim", "1", "--admin-token", "")
    assert (code, out) == (1, "")
    assert err.endswith("error: --admin-token must not be empty\n")


def test_secrets_on_the_command_line_are_warned_about(infera: Infera, served: list[ServeSettings]) -> None:
    """The flag works, and says what is better; the secret is not repeated."""
    code, out, err = infera("serve", "--sim", "1", "--admin-token", "hush", "--api-key", "quiet")
    assert (code, out) == (0, "infera 0 listening on nowhere\n")
    assert err == (
        "warning: --admin-token is visible in the process list; "
        "use --admin-token-file or INFERA_ADMIN_TOKEN\n"
        "warning: --api-key is visible in the process list; use --api-key-file or INFERA_API_KEY\n")
    assert served[0].api_key == ("quiet",)


def test_c41_no_tokenizer_is_asked_for(infera: Infera, served: list[ServeSettings]) -> None:
    """Round-robin over two URLs needs nothing else."""
    workers = ["--worker", "http://a:1", "--worker", "http://b:1"]
    code, _, _ = infera("serve", *workers, "--router-policy", "round-robin")
    assert code == 0
    assert served[0].worker == ("http://a:1", "http://b:1")


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ('{"replicas": [{"host": "h", "prot": 8001}]}', "prot"),
        ('{"replicas": [{"host": "h", "port": "8001"}]}', "8001"),
        ('{"replicas": [{"host": "h", "port": 0}]}', "port"),
        ('{"replicas": [{"host": "h", "port": true}]}', "port"),
        ('{"replicas": [{"host": "h", "port": 1, "scheme": "ftp"}]}', "ftp"),
        ('{"replicas": [{"host": "h", "port": 1},]}', "JSON"),
        ('{"replicas": [{"host": "h", "port": 1}, {"host": "h", "port": 1}]}', "h:1"),
    ],
)
def test_r187_a_bad_replica_file_ends_the_program(
    infera: Infera, tmp_path: Path, content: str, says: str
) -> None:
    """Exit status 1, one sentence with the file and the key."""
    path = tmp_path / "replicas.json"
    path.write_text(content, encoding="utf-8")
    for argv in (["config", "check", str(path)], ["serve", "--replicas", str(path), "--port", "0"]):
        code, out, err = infera(*argv)
        assert (code, out) == (1, "")
        assert err.startswith("error: ")
        assert err.count("\n") == 1
        assert str(path) in err
        assert says in err


@pytest.mark.parametrize("kind", ["missing", "folder"])
def test_r187_a_replica_file_that_cannot_be_read_ends_the_program(
    infera: Infera, tmp_path: Path, kind: str
) -> None:
    """Exit status 1, the path and the reason."""
    path = tmp_path / "replicas.json"
    if kind == "folder":
        path.mkdir()
    code, _, err = infera("serve", "--replicas", str(path), "--port", "0")
    assert code == 1
    assert str(path) in err


def test_a_hangup_before_the_server_runs_is_no_end(infera: Infera, monkeypatch: pytest.MonkeyPatch) -> None:
    """SIGHUP means "read again"; while the server starts there is nothing to read again, and it starts all the same."""

    def run(_settings: ServeSettings, _say: Callable[[str], None]) -> int:
        os.kill(os.getpid(), signal.SIGHUP)
        return 0

    monkeypatch.setattr(wiring, "run", run)
    before = signal.getsignal(signal.SIGHUP)
    try:
        assert infera("serve", "--worker", "http://127.0.0.1:1").code == 0
    finally:
        signal.signal(signal.SIGHUP, before)
