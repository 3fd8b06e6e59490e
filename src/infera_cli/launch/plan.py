"""Slots → what to run: commands, environment, files, and a digest to compare with (PURE; replica-router §1.5).

Nothing is started here and no clock is read; a plan of a thousand slots is a few milliseconds of string work.
"""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from infera_cli.launch.engines import ENGINES, Engine, Start
from infera_cli.protocol.slots import Slot


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """How a replica is started on its slot, and how it is found again.

    `host` is the host entry's name, `place` the ssh destination or "local". `command` are the words to run,
    the wrapper's included. `record` is the file beside the log that says which process runs, and how it ended.
    `digest` stands for command, model and environment (rulings 15).
    """

    slot: str
    host: str
    place: str
    address: str
    port: int
    devices: tuple[int, ...]
    engine: Engine
    model: str
    command: tuple[str, ...]
    env: Mapping[str, str]
    workdir: str | None
    log: str
    record: str
    stop_command: tuple[str, ...]
    digest: str

    @property
    def url(self) -> str:
        """Where the router finds it, always plain http."""
        return base_url(self.address, self.port)


def base_url(address: str, port: int) -> str:
    """`http://address:port`, IPv6 in brackets."""
    return f"http://[{address}]:{port}" if ":" in address else f"http://{address}:{port}"


def plan(slots: Iterable[Slot], *, here: str | None = None) -> list[Launch]:
    """One launch a slot, in order. `here` is the interpreter for simulated engines on this machine."""
    return [plan_slot(slot, here=here) for slot in slots]


def plan_slot(slot: Slot, *, here: str | None = None) -> Launch:
    """The launch of one slot."""
    host = slot.host
    engine = ENGINES[host.engine]
    command = _wrapped(slot, _serving(slot, engine, here))
    env = {**engine.environment(slot.devices, frozenset(host.env)), **slot.env}
    log_dir = host.log_dir.rstrip("/") or "/"
    return Launch(
        slot=slot.name, host=host.name, place=host.ssh or "local", address=slot.address, port=slot.port,
        devices=slot.devices, engine=engine, model=host.model, command=command, env=env, workdir=host.workdir,
        log=f"{log_dir}/{slot.name}.log", record=f"{log_dir}/{slot.name}.run",
        stop_command=slot.stop_command, digest=digest(command, host.model, env),
    )


def undeclared(slot: str, host: str, place: str, address: str, port: int, devices: tuple[int, ...]) -> Launch:
    """For something that runs and that no slot declares any more: enough to look at it and to end it, no more."""
    return Launch(
        slot=slot, host=host, place=place, address=address, port=port, devices=devices, engine=ENGINES["custom"],
        model="", command=(), env={}, workdir=None, log="", record="", stop_command=(), digest="",
    )  # fmt: skip


def digest(command: Iterable[str], model: str, env: Mapping[str, str]) -> str:
    """Sixteen hex digits that change when command, model or environment do."""
    told = json.dumps([list(command), model, sorted(env.items())], ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(told.encode()).hexdigest()[:16]


def fallback_stop(launch: Launch, port: int) -> tuple[str, ...]:
    """What stops a replica of which no process is on record: the user's command, else `pkill` by port (§1.6).

    Empty where there is neither.
    """
    if launch.stop_command:
        return launch.stop_command
    pattern = launch.engine.kill_pattern(port)
    return () if pattern is None else ("pkill", "-TERM", "-f", "--", pattern)


def shown(launch: Launch) -> str:
    """The command line for a person to read: names of the environment, never its values."""
    env = "".join(f"{name}=… " for name in sorted(launch.env))
    return env + shlex.join(launch.command)


def _serving(slot: Slot, engine: Engine, here: str | None) -> tuple[str, ...]:
    host = slot.host
    mine = here is not None and engine.name == "sim" and host.local and host.python == "python3"
    return engine.command(
        Start(
            model=host.model, port=slot.port, devices=slot.devices, served_model_name=host.served_model_name,
            python=here if mine and here is not None else host.python, serve_args=host.serve_args,
            command=slot.command,
        )
    )  # fmt: skip


def _wrapped(slot: Slot, serving: tuple[str, ...]) -> tuple[str, ...]:
    """With a wrapper, the serving command is its one last argument, quoted for the shell that will read it."""
    wrapper = slot.launch_wrapper
    return (*wrapper, shlex.join(serving)) if wrapper else serving
