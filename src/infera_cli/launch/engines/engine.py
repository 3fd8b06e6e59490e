"""What a launcher knows of an engine: its command, its device variable, its readiness, its log's meaning.

Values only: nothing here does I/O or reads a clock (design.md §2; engines.md §0).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

DEVICE_VARIABLES = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ASCEND_RT_VISIBLE_DEVICES", "ZE_AFFINITY_MASK")
"""Environment variables that choose devices; a launcher sets exactly one (engines.md §1.3)."""
ONE_SEED: Mapping[str, str] = {"PYTHONHASHSEED": "0"}
"""What every launched engine gets where nobody sets it, so that all workers hash blocks alike (R088)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """One start of an engine: what its command is made from.

    `python` is the interpreter on the engine's machine, `devices` the ids of its group, `host` and `port` where
    it listens. `serve_args` come last, so that they can override. `command` is the whole command of `custom`.
    """

    model: str
    port: int
    host: str = "0.0.0.0"
    devices: tuple[int, ...] = ()
    python: str = "python3"
    served_model_name: str | None = None
    serve_args: tuple[str, ...] = ()
    command: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """A kind of engine.

    `command` makes the words that start it. `device_variable` is the variable that chooses its devices, None
    where flags do. `readiness` is a path that answers 200 once it serves. `pattern` is a regular expression for
    the start of its command line, written so that it does not match its own text; `port_flag` is followed by
    the port there. `hints` explain log lines: a regular expression, and what to do about it.
    """

    name: str
    command: Callable[[Start], tuple[str, ...]]
    device_variable: str | None = None
    readiness: str = "/health"
    pattern: str | None = None
    port_flag: str = "--port"
    hints: tuple[tuple[str, str], ...] = ()

    def environment(self, devices: tuple[int, ...], given: frozenset[str]) -> dict[str, str]:
        """The variable that chooses `devices`; nothing where the user's own (`given` names) already choose."""
        if self.device_variable is None or not devices or given & set(DEVICE_VARIABLES):
            return {}
        return {self.device_variable: ",".join(map(str, devices))}

    def explain(self, log: str) -> str | None:
        """What the end of a log means, in words; None when it says nothing known."""
        for pattern, words in (*self.hints, *COMMON_HINTS):
            if re.search(pattern, log):
                return words
        return None

    def kill_pattern(self, port: int) -> str | None:
        """For `pkill -f`: this engine on `port`, never a port that only begins so (A8), never itself (A7)."""
        return None if self.pattern is None else f"{self.pattern}.*{self.port_flag}[ =]{port}( |$)"


COMMON_HINTS = (
    (r"[Aa]ddress already in use", "its port is taken on that machine; change port_base or stop what holds it"),
    (r"No space left on device", "the disk is full"),
    (r"(CUDA|HIP|NPU|torch)[\w.]* ?([Oo]ut ?[Oo]f ?[Mm]emory|OOM)|OutOfMemoryError",
     "a device has not enough memory; something else may hold it, or the replica needs more devices"),
    (r"No module named ['\"]?([\w.]+)", "the interpreter on that machine lacks a package; set \"python\""),
    (r"Permission denied", "a file may not be read or written by this user"),
    (r"(No such file or directory|does not exist|Repo id must be)", "a path is wrong on that machine"),
)


def module_command(start: Start, module: str, *words: str) -> tuple[str, ...]:
    """`python -m MODULE` with the engine's own words, then the user's."""
    return (start.python, "-m", module, *words, *start.serve_args)


def named(start: Start) -> tuple[str, ...]:
    """`--served-model-name`, where one is configured."""
    return () if start.served_model_name is None else ("--served-model-name", start.served_model_name)
