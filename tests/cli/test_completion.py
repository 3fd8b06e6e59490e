"""Shell completion: the scripts, and what they are answered."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from infera_cli.cli.scripts import FILES, SHELLS, script
from tests.cli.conftest import Infera, Result
from tests.client.stub import WORKERS, Stub

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}", **more}


@pytest.mark.parametrize("shell", SHELLS)
def test_r185_scripts_come_by_name(infera: Infera, tmp_path: Path, shell: str) -> None:
    """A script on standard output, exit status 0, and no file was changed."""
    code, out, err = infera("completion", shell)
    assert (code, out, err) == (0, script(shell), "")
    assert list(tmp_path.iterdir()) == []


def test_r185_without_a_shell_the_shells_are_named(tmp_path: Path) -> None:
    """From a parent that is no shell, with SHELL unset: exit status 2 and how to name it."""
    environ = {name: value for name, value in environment(HOME=str(tmp_path)).items() if name != "SHELL"}
    argv = [sys.executable, "-m", "infera_cli", "completion"]
    done = subprocess.run(argv, capture_output=True, text=True, env=environ, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "error: name the shell: infera completion bash|zsh|fish|powershell\n"


def test_an_unknown_shell_is_usage(infera: Infera) -> None:
    """Exit status 2 and the shells there are."""
    assert infera("completion", "tcsh") == Result(
        2, "", "error: no completion for 'tcsh'; "
               "name the shell: infera completion bash|zsh|fish|powershell\n")


@pytest.mark.parametrize(("shell", "name"), FILES.items())
def test_the_files_are_fresh(shell: str, name: str) -> None:
    """`completions/` holds what `infera completion` prints, byte for byte."""
    assert (ROOT / "completions" / name).read_bytes() == script(shell).encode()


def test_the_scripts_are_well_formed() -> None:
    """Each shell that is installed reads its script without complaint."""
    checked = []
    for shell in ("bash", "zsh", "fish"):
        found = shutil.which(shell)
        if found:
            subprocess.run([found, "-n", ROOT / "completions" / FILES[shell]], check=True)
            checked.append(shell)
    assert "bash" in checked


BASH = """
source "$1"
COMP_WORDBREAKS=$' \\t\\n"\\'><=;|&(:'
COMP_LINE=$2 COMP_POINT=${#2}
_infera_completion infera
printf '%s\\n' "${COMPREPLY[@]}"
"""


def bash(line: str, **environ: str) -> list[str]:
    done = subprocess.run(
        ["bash", "-c", BASH, "bash", ROOT / "completions" / "infera.bash", line],
        capture_output=True, text=True, env=environment(**environ), check=True)
    assert done.stderr == ""
    return done.stdout.split()


def test_bash_completes_commands_flags_and_values() -> None:
    """Verbs, flags and the values of a flag."""
    assert bash("infera wor") == ["workers"]
    assert bash("infera workers dr") == ["drain"]
    assert bash("infera serve --replic") == ["--replicas"]
    assert bash("infera serve --log-format ") == ["text", "json"]


def test_bash_completes_names_of_workers(stub: Stub, tmp_path: Path) -> None:
    """Live names, also those with a colon, of which bash replaces only what follows it."""
    stub.answers["GET /v1/workers"] = (200, {"workers": WORKERS})
    environ = {"INFERA_SERVER": stub.url, "XDG_CACHE_HOME": str(tmp_path)}
    assert bash("infera workers drain ", **environ) == ["node0", "10.0.0.2:8001"]
    assert bash("infera workers drain 10.0.0.2:8", **environ) == ["8001"]


def test_bash_completes_names_of_slots(tmp_path: Path) -> None:
    """Those that the file on the line declares; none, and no word, where it cannot be read."""
    file = tmp_path / "fleet.json"
    file.write_text('{"hosts": [{"name": "gpu", "devices": "0-1", "model": "m"}]}')
    assert bash(f"infera fleet logs {file} g") == ["gpu-d0", "gpu-d1"]
    assert bash(f"infera fleet restart {file} gpu-d0 ") == ["gpu-d0", "gpu-d1"]
    file.write_text("{")
    assert bash(f"infera fleet logs {file} g") == []


def test_completion_of_names_is_silent_without_a_server(tmp_path: Path) -> None:
    """No name, no error, no traceback."""
    for server in ("http://127.0.0.1:1", "nonsense"):
        assert bash("infera workers drain ", INFERA_SERVER=server, XDG_CACHE_HOME=str(tmp_path)) == []


ZSH = """
compdef() { :; }
_arguments() { print -r -- "$@" }
fpath=("$1" $fpath)
autoload -Uz _infera
words=(infera workers ""); CURRENT=3
_infera
"""


def test_zsh_completes_on_the_first_tab() -> None:
    """Autoloaded from `$fpath`, the first call already completes."""
    found = shutil.which("zsh")
    answer = ""
    if found:
        answer = subprocess.run(
            [found, "-f", "-c", ZSH, "zsh", ROOT / "completions"], capture_output=True, text=True,
            env=environment(), check=True).stdout
    assert found is None or all(f'"{verb}":' in answer for verb in ("list", "drain", "restore"))


def test_fish_completes_with_descriptions() -> None:
    """Values and help, as fish shows them."""
    found = shutil.which("fish")
    answer = ""
    if found:
        command = f'source "{ROOT}/completions/infera.fish"; complete -C "infera workers r"'
        answer = subprocess.run(
            [found, "-c", command], capture_output=True, text=True, env=environment(), check=True).stdout
    assert found is None or answer == "restore\tUndo a drain.\n"
