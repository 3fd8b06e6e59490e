"""What to do with a replica of an earlier owner, decided from what is seen of it (PURE; replica-router §1.9).

A pid is believed only with its start time, its boot and its nonce; an unreachable machine is unknown, not dead
(rulings 15; bench-and-cli §D3).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from infera_cli.launch.plan import Launch, base_url
from infera_cli.launch.script import Found, Identity
from infera_cli.launch.state import Record

Verdict = Literal["serving", "loading", "orphan", "suspect", "gone"]
"""serving, loading: adopted. orphan: runs, and is not ours to manage. suspect: unknown; its slot is used last.
gone: dropped, its slot is free."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """The verdict, one sentence of why, whether it drifted from the file, and the identity that was found."""

    verdict: Verdict
    why: str
    drifted: bool = False
    identity: Identity | None = None


def judge(record: Record, launch: Launch | None, *, healthy: bool, found: Found | None) -> Judgement:
    """`launch` is the plan of its slot now, None where the slot is not declared or already taken.

    `healthy`: /health answered 200 at the recorded address. `found` is None where the machine could not be asked.
    """
    identity = record.identity or _by_nonce(record, found)
    if launch is None:
        return _undeclared(identity, healthy=healthy, found=found)
    if identity is None:
        return _without_identity(record, launch, healthy=healthy, asked=found is not None)
    drifted = _moved(record, launch) or (record.digest is not None and record.digest != launch.digest)
    if found is None:
        return Judgement("serving" if healthy else "suspect", "its machine cannot be asked now", drifted, identity)
    if found.alive or (healthy and found.exit_code == 0):  # a wrapper that ended well has handed the engine on
        return Judgement("serving" if healthy or record.ready else "loading", "runs", drifted, identity)
    if healthy:
        return Judgement("orphan", f"process {identity.pid} is gone, and something else answers at its address")
    return Judgement("gone", f"process {identity.pid} is gone" + _ended(found))


def _undeclared(identity: Identity | None, *, healthy: bool, found: Found | None) -> Judgement:
    if healthy or (found is not None and found.alive):
        return Judgement("orphan", "its slot is not declared any more, or taken", identity=identity)
    if found is None:
        return Judgement("suspect", "its slot is not declared any more, and its machine cannot be asked")
    return Judgement("gone", "its slot is not declared any more, and nothing runs")


def _without_identity(record: Record, launch: Launch, *, healthy: bool, asked: bool) -> Judgement:
    if record.nonce and asked:
        if healthy:
            return Judgement("orphan", "it was never started, and something else answers at its address")
        return Judgement("gone", "its launch was cut off before anything was started")
    if _moved(record, launch):
        # Without a process on record only a stop command could end it, and that knows the new address (B10).
        return Judgement("orphan" if healthy else "suspect", "its slot has another address, port or devices now")
    if healthy and not record.nonce:
        return Judgement("serving", "answers")
    return Judgement("suspect", "it does not answer, and no process of it is on record")


def _by_nonce(record: Record, found: Found | None) -> Identity | None:
    recorded = found.recorded if found is not None else None
    return recorded if recorded is not None and record.nonce and recorded.nonce == record.nonce else None


def _moved(record: Record, launch: Launch) -> bool:
    return (record.address, record.port, record.devices) != (launch.address, launch.port, launch.devices)


def _ended(found: Found) -> str:
    return "" if found.exit_code is None else f", it ended with status {found.exit_code}"


def named(record: Record) -> str:
    """A record for a message: slot, URL, machine, devices and process."""
    devices = ", ".join(map(str, record.devices))
    process = f", process {record.identity.pid}" if record.identity else ""
    return f"{record.slot} ({base_url(record.address, record.port)} on {record.host}, devices {devices}{process})"
