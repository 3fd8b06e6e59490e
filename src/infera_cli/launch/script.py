"""The shell texts that act on a machine, and what their answers mean (bench-and-cli §D4).

A text goes to `/bin/sh -s` on standard input, here and over SSH alike: no login shell ever reads a word that the
user wrote, nothing of it shows in a process list, and a text that arrives cut off does nothing, because the call
stands in its last line. Every word is quoted. Results are lines that begin with `infera `; whatever a remote
profile prints before them is skipped.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from infera_cli.launch.engines import ONE_SEED
from infera_cli.launch.shell import LOOK, SIGNAL, START, TAIL

NONCE = "INFERA_LAUNCH_ID"
ROTATE_ABOVE = 16 << 20
"""A log longer than this (bytes) is set aside, at a launch and while the engine runs; three old ones are kept."""
ROTATE_EVERY = 15
"""Seconds between two looks at the length of a log while its engine runs."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Which process a launch became: a pid alone is never trusted, it may be reused or of another boot.

    `start` is the kernel's start time in ticks, `boot` the id of the boot, `nonce` is in its environment, and
    `offset` is where its output begins in the log.
    """

    nonce: str
    pid: int
    start: str
    boot: str
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Wanted:
    """What to look for on a slot; None where nothing is known but the record file."""

    record: str
    identity: Identity | None = None
    nonce: str = ""


@dataclass(frozen=True, slots=True)
class Found:
    """What runs of a launch. `verified`: its first process is alive, and is the one that was started.

    `recorded` is what the record file beside the log says; `tree` holds `pid:start` of every process that is
    certainly the launch's; `exit_code` is how the engine ended, None while it runs or when nobody could note it.
    """

    recorded: Identity | None = None
    verified: bool = False
    tree: tuple[str, ...] = ()
    exit_code: int | None = None

    @property
    def alive(self) -> bool:
        """Something of it runs."""
        return bool(self.tree)

    @property
    def pids(self) -> str:
        """Its process ids, for a message."""
        return ", ".join(member.partition(":")[0] for member in self.tree)


# ── texts ────────────────────────────────────────────────────────────────────────────────────────────
def start(
    command: Sequence[str], *, env: Mapping[str, str], workdir: str | None, log: str, record: str, nonce: str
) -> str:
    """Starts `command` detached: own session, all descriptors redirected, its record beside the log.

    What `env` does not name and that machine does not set has the values of ONE_SEED.
    """
    exports = "".join(f'export {name}="${{{name}-{value}}}"\n' for name, value in ONE_SEED.items())
    exports += "".join(f"export {name}={shlex.quote(value)}\n" for name, value in sorted(env.items()))
    words = [log, record, workdir or "", nonce, str(ROTATE_ABOVE), str(ROTATE_EVERY), *command]
    return f"environment() {{\nexport {NONCE}={shlex.quote(nonce)}\n{exports}}}\n{START}\n{_call('launch', words)}"


def look(wanted: Iterable[Wanted]) -> str:
    """Says what runs of each launch; the answers come in order."""
    calls = [_call("look", [w.record, *_known(w)]) for w in wanted]
    return LOOK + "\nsnapshot\n" + "".join(calls)


def glance(wanted: Wanted) -> str:
    """Says whether the first process of a launch is there, or how it ended; of its tree nothing, which costs little."""
    return LOOK + "\n" + _call("glance", [wanted.record, *_known(wanted)])


def signal(name: str, found: Found, identity: Identity | None) -> str:
    """Sends a signal to the group of a verified launch, and to each of its processes that left the group."""
    leader = f"{identity.pid}:{identity.start}" if identity is not None and found.verified else ""
    return SIGNAL + "\n" + _call("strike", [name, leader, *found.tree])


def run(words: Sequence[str]) -> str:
    """Runs a user's stop command and waits for it; its status is the text's."""
    return f'stop() {{\n"$@" </dev/null\n}}\n{_call("stop", words)}'


def tail(log: str, record: str, *, lines: int | None = None, position: int | None = None, most: int = 1 << 18) -> str:
    """Prints the last `lines` of what the present launch wrote, or up to `most` bytes from `position` on."""
    begin = -1 if position is None else position
    return TAIL + "\n" + _call("show", [log, record, str(lines or 0), str(begin), str(most)])


def _call(function: str, words: Iterable[str]) -> str:
    return " ".join([function, *map(shlex.quote, words)]) + "\n"


def _known(wanted: Wanted) -> list[str]:
    identity = wanted.identity
    if identity is None:
        return ["", "", "", wanted.nonce]
    return [str(identity.pid), identity.start, identity.boot, identity.nonce]


# ── answers ──────────────────────────────────────────────────────────────────────────────────────────
def said(output: str) -> list[list[str]]:
    """The result lines of an answer, as words without the mark."""
    return [line.split()[1:] for line in output.splitlines() if line.startswith("infera ")]


def started(output: str) -> tuple[Identity | None, int | None]:
    """Which process was started, and the exit code where it ended at once."""
    identity, code = None, None
    for words in said(output):
        if words[:1] == ["record"]:
            identity = _identity(words[1:])
        elif words[:1] == ["exit"] and len(words) == 3:
            code = _number(words[2])
    return identity, code


def found(output: str, wanted: Sequence[Wanted], known: Sequence[Sequence[str]] = ()) -> list[Found]:
    """What was found of each of `wanted`; `known[i]` are `pid:start` seen in its tree before."""
    answers: list[list[list[str]]] = []
    for words in said(output):
        if words[:1] == ["slot"]:
            answers.append([])
        elif answers:
            answers[-1].append(words)
    answers += [[] for _ in range(len(wanted) - len(answers))]
    seen = [*known, *([()] * len(wanted))]
    return [_found(lines, w, s) for lines, w, s in zip(answers, wanted, seen, strict=False)]


def _found(lines: list[list[str]], wanted: Wanted, seen: Sequence[str]) -> Found:
    facts = {words[0]: words[1:] for words in lines if words and words[0] != "member"}
    recorded = _identity(facts.get("record", []))
    identity = wanted.identity or (recorded if recorded and recorded.nonce == wanted.nonce else None)
    leader = facts.get("leader", [])
    same_boot = identity is not None and facts.get("boot", [""])[:1] == [identity.boot]
    verified = bool(identity and same_boot and len(leader) == 3 and leader[1] == identity.start and leader[2] != "Z")
    tree = []
    for words in lines:
        if words[0] == "member" and len(words) == 3:
            member, how = words[1], words[2]
            # In the session of a leader that is gone may be a stranger: only who was seen before is ours.
            if how == "nonce" or verified or (same_boot and member in seen):
                tree.append(member)
    ended = facts.get("exit", [])
    ours = identity is not None and len(ended) == 2 and ended[0] == identity.nonce
    return Found(recorded, verified, tuple(dict.fromkeys(tree)), _number(ended[1]) if ours else None)


def _identity(words: Sequence[str]) -> Identity | None:
    if len(words) != 5 or not words[1].isdigit() or not words[4].isdigit():
        return None  # half written, or by somebody else
    return Identity(words[0], int(words[1]), words[2], words[3], int(words[4]))


def _number(text: str) -> int | None:
    return int(text) if re.fullmatch(r"-?\d+", text) else None


def tailed(output: str) -> tuple[int, int, str]:
    """Where the shown part begins, how long the log is now (bytes), and the part itself."""
    found_mark = re.search(r"^infera log (\d+) (\d+)\n", output, re.MULTILINE)
    if found_mark is None:
        return 0, 0, ""
    return int(found_mark[1]), int(found_mark[2]), output[found_mark.end():]
