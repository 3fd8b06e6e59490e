"""The root of the command line: help, errors, exit codes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from infera_cli import __version__
from infera_cli.cli import main, serve
from infera_cli.cli.console import console
from tests.cli.conftest import Infera, Result

HELP = """\
Usage: infera [OPTIONS] COMMAND [ARGS]...

  One address in front of your LLM engines.

Run:
  demo      Simulated engines, a router and some traffic; needs nothing.
  serve     One OpenAI- and Anthropic-compatible address in front of engines.
  launch    One engine on this machine, registered in discovery and drained at its end.
  bench     Load an address, measure it, and say whether the numbers can be trusted.
  simulate  Replay a load against simulated engines: which policy, how many replicas.
  fleet     Launch, watch and stop replicas on declared machines, here and over SSH.

Look:
  workers   List the workers of a running server, drain and restore them.
  requests  Show what happened to the last requests.
  sessions  Show conversations that lost their place in the cache, and why.
  record    Record what a server serves as a trace, without what is said.
  explain   Show where a request would go, and why.
  profile   Start and stop the torch profilers of workers.
  prewarm   Have a prefix in the cache before it is asked for.

Set up:
  config      Show the settings and their origins, check files.
  completion  Print the completion script of a shell.
  version     Show the version of infera and what it runs on.

Options:
  --version   Print the version and leave.
  --debug     Show tracebacks. [INFERA_DEBUG]
  -h, --help  Show this message and exit.

  Start with `infera demo`. `infera COMMAND --help` says more about each.
"""


@pytest.mark.parametrize("argv", [[], ["--help"], ["-h"]])
def test_alone_it_shows_its_help(infera: Infera, argv: list[str]) -> None:
    """Every command with its line, under three headings; exit status 0."""
    code, out, err = infera(*argv)
    assert (code, out.rstrip("\n"), err) == (0, HELP.rstrip("\n"), "")


def test_the_version_is_one_line(infera: Infera) -> None:
    """`infera --version` is for scripts and people."""
    assert infera("--version") == Result(0, f"infera {__version__}\n", "")


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["serv"], "no such command 'serv'; did you mean 'serve'?"),
        (["zzz"], "no such command 'zzz'; see `infera --help`"),
        (["workers", "lst"], "no such command 'lst'; did you mean 'list'?"),
        (["serve", "--prot", "1"], "no such option: --prot; did you mean --port?"),
        (["serve", "--replica", "x"], "no such option: --replica; did you mean --replicas?"),
        (["serve", "--nope"], "no such option: --nope; see `infera serve --help`"),
        (["config", "show", "--nope"], "no such option: --nope; see `infera config show --help`"),
        (["serve", "--admin-pin"], "no such option: --admin-pin; see `infera serve --help`"),
        (["serve", "--admin-opn"], "no such option: --admin-opn; did you mean --admin-open?"),
        (["serve", "--open"], "no such option: --open; see `infera serve --help`"),
        (["serve", "--polcy", "x"], "no such option: --polcy; did you mean --router-policy?"),
        (["bench", "--rqst", "5"], "no such option: --rqst; did you mean --request-rate or --request-timeout?"),
        (["bench", "--input-len", "5"], "no such option: --input-len; did you mean --random-input-len?"),
        (["bench", "--timeout", "5"], "no such option: --timeout; see `infera bench --help`"),
        (["simulate", "--rat", "5"], "no such option: --rat; did you mean --rate?"),
        (["serve", "--port"], "option '--port' requires an argument"),
        (["serve", "x"], "got unexpected extra argument(s) (x); see `infera serve --help`"),
        (["workers", "drain"], "missing argument 'WORKER'; see `infera workers drain --help`"),
        (["requests", "-n", "x"], "--limit must be a whole number, not 'x'"),
        (["requests", "--slow", "x"], "--slow must be a number of seconds, e.g. 30, 1.5 or 10m, not 'x'"),
        (["demo", "--sim", "x"], "--sim must be a whole number, not 'x'"),
        (["demo", "--port", "x"], "--port must be a whole number, not 'x'"),
    ],
)
def test_a_wrong_command_line_is_one_sentence(infera: Infera, argv: list[str], says: str) -> None:
    """Exit status 2, `error:` and what was meant, on standard error."""
    code, out, err = infera(*argv)
    assert (code, out) == (2, "")
    assert err == f"error: {says}\n"


@pytest.mark.parametrize("as_json", [["-o", "json"], ["--json"], ["--output=json"]])
def test_errors_are_json_where_json_was_asked_for(infera: Infera, as_json: list[str]) -> None:
    """On standard error, whoever found the fault; what follows `--` is another program's."""
    for argv, says in ((["requests", *as_json, "--nope"], "--nope"), (["requests", *as_json, "-n", "x"], "--limit")):
        code, out, err = infera(*argv)
        assert (code, out) == (2, "")
        assert says in json.loads(err)["error"]["message"]
    assert infera("launch", "sim", "--", *as_json).err.startswith("error: nowhere to register")


OUT_OF_RANGE = [
    (["requests", "--limit", "0"], "--limit must be between 1 and 10000, not '0'"),
    (["requests", "--slow", "-1"], "--slow must be 0 or more, not '-1'"),
    (["requests", "--slow", "nan"], "--slow must be a finite number of seconds, not 'nan'"),
    (["record", "--for", "0"], "--for must be more than 0, not '0'"),
    (["profile", "start", "--duration", "0"], "--duration must be more than 0, not '0'"),
    (["prewarm", "hi", "--model", "m", "--workers", "0"], "--workers must be 1 or more, not '0'"),
    (["demo", "--sim", "0"], "--sim must be between 1 and 64, not '0'"),
    (["demo", "--conversations", "1001"], "--conversations must be between 1 and 1000, not '1001'"),
    (["demo", "--turns", "0"], "--turns must be between 1 and 100, not '0'"),
    (["demo", "--port", "70000"], "--port must be between 0 and 65535, not '70000'"),
    (["fleet", "up", "f.json", "-n", "-1"], "-n must be 0 or more, not '-1'"),
    (["fleet", "restart", "f.json", "--max-unavailable", "0"], "--max-unavailable must be 1 or more, not '0'"),
]


@pytest.mark.parametrize(("argv", "says"), OUT_OF_RANGE)
def test_a_value_out_of_range_is_one_sentence_and_no_usage(infera: Infera, argv: list[str], says: str) -> None:
    """Exit status 1, in every command, before anything is asked or started (rulings 5)."""
    assert infera(*argv) == Result(1, "", f"error: {says}\n")


def test_a_noun_alone_shows_its_verbs(infera: Infera) -> None:
    """Exit status 2, since nothing was done; the help goes to standard error."""
    code, out, err = infera("workers")
    assert (code, out) == (2, "")
    assert err.startswith("Usage: infera workers ")
    assert "restore" in err


def test_help_loads_nothing_heavy() -> None:
    """`infera --help` answers before any library that a command needs is imported."""
    code = ("import sys; from infera_cli.cli.app import run; run(['--help']);"
            "print(sorted(set(sys.modules) & {*sys.argv[1:]}))")
    heavy = ["pydantic", "httpx", "uvicorn", "fastapi", "prometheus_client", "rich", "asyncio", "ssl",
             "http.client", "msgspec", "infera_cli.config.settings", "infera_cli.routing"]
    done = subprocess.run([sys.executable, "-c", code, *heavy], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_completion_loads_nothing_heavy() -> None:
    """Neither does completing the name of a command."""
    code = ("import os, sys\n"
            "os.environ.update(_INFERA_COMPLETE='complete_bash', COMP_WORDS='infera w', COMP_CWORD='1')\n"
            "from infera_cli.cli.app import run\n"
            "try: run([])\n"
            "except SystemExit: print(sorted(set(sys.modules) & {*sys.argv[1:]}))")
    heavy = ["pydantic", "httpx", "uvicorn", "fastapi", "rich.table", "infera_cli.config.settings"]
    done = subprocess.run([sys.executable, "-c", code, *heavy], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["workers", "[]"]


def test_a_fault_of_ours_is_one_sentence(infera: Infera, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody sees a traceback they did not ask for."""
    def broken(*_: object) -> None:
        raise ZeroDivisionError("oops")

    monkeypatch.setattr(serve, "load_serve", broken)
    assert infera("serve", "--sim", "1") == Result(
        1, "", "error: this is a fault in infera itself (ZeroDivisionError: oops); "
               "INFERA_DEBUG=1 shows where\n")


def test_a_traceback_is_shown_on_request(infera: Infera, monkeypatch: pytest.MonkeyPatch) -> None:
    """`--debug` shows where the fault is."""
    def broken(*_: object) -> None:
        raise ZeroDivisionError("oops")

    monkeypatch.setattr(serve, "load_serve", broken)
    code, out, err = infera("--debug", "serve", "--sim", "1")
    assert (code, out) == (1, "")
    assert err.startswith("Traceback (most recent call last):")
    assert err.endswith("error: this is a fault in infera itself (ZeroDivisionError: oops)\n")


def test_ctrl_c_is_exit_status_130(infera: Infera, monkeypatch: pytest.MonkeyPatch) -> None:
    """An interrupted command ends quietly."""
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(serve, "load_serve", interrupted)
    assert infera("serve", "--sim", "1") == Result(130, "", "")


def test_ctrl_c_while_python_is_loading_ends_quietly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Status 130 and no traceback, also before there is a command line to interrupt."""

    class Loading(ModuleType):
        def __getattr__(self, name: str) -> Any:
            raise KeyboardInterrupt

    monkeypatch.setitem(sys.modules, "infera_cli.cli.app", Loading("infera_cli.cli.app"))
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 130


def test_colours_are_for_terminals_that_want_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """NO_COLOR wins over FORCE_COLOR, a pipe gets none."""
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.delenv("CLICOLOR_FORCE", raising=False)
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    assert console.colour(sys.stderr) is False
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert console.colour(sys.stderr) is True
    monkeypatch.setenv("NO_COLOR", "1")
    assert console.colour(sys.stderr) is False


def test_a_closed_pipe_is_no_error() -> None:
    """`infera config show | head -1` ends without a word, and with exit status 0."""
    command = f"set -o pipefail; {sys.executable} -m infera_cli config show --json | head -c 1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("{", "")


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
def test_a_closed_output_is_no_fault(closed: str) -> None:
    """Whoever starts a command without a place for its words gets its work done all the same."""
    words = f'exec "{sys.executable}" -m infera_cli version {closed}'
    assert subprocess.run(["sh", "-c", words], check=False).returncode == 0


def test_the_module_is_the_command() -> None:
    """`python -m infera_cli` does what `infera` does."""
    argv = [sys.executable, "-m", "infera_cli", "--version"]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    assert done.stdout == f"infera {__version__}\n"


def test_a_full_disk_is_no_fault_of_ours() -> None:
    """Output that cannot be written ends in one sentence and exit code 1."""
    with Path("/dev/full").open("w") as full:
        found = subprocess.run([sys.executable, "-m", "infera_cli", "version"], stdout=full, stderr=subprocess.PIPE,
                               text=True, check=False)
    assert (found.returncode, found.stderr) == (1, "error: cannot write the output: No space left on device\n")
