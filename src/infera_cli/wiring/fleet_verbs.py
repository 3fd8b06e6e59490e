"""up, down, scale, restart and rollout over whoever owns the slots. Each returns what became of every slot."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from infera_cli.errors import Conflict, HostRefused, HostUnreachable, InferaError, NotFound, Unauthorized, UsageError
from infera_cli.wiring.fleet_owner import Owner, Row

Became = Literal["ready", "kept", "started", "stopped", "failed", "timeout", "untouched"]
Tell = Callable[[str, str], None]
Drain = Callable[[str], Awaitable[None]]
_POLL = 0.2


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one slot. `fault` is the error behind a failure, where there is one."""

    slot: str
    became: Became
    detail: str = ""
    fault: InferaError | None = None

    @property
    def well(self) -> bool:
        """Not a failure."""
        return self.became not in ("failed", "timeout")


def exit_code(outcomes: Sequence[Outcome]) -> int:
    """0 all well; 3 some; else 5 not in time, 6 unreachable, 7 refused, 8 conflict, 1 (bench-and-cli §C1)."""
    bad = [outcome for outcome in outcomes if not outcome.well]
    if not bad:
        return 0
    if any(outcome.became in ("ready", "kept", "started", "stopped") for outcome in outcomes):
        return 3
    codes = {_code(outcome) for outcome in bad}
    return codes.pop() if len(codes) == 1 else 1


def _code(outcome: Outcome) -> int:
    if outcome.became == "timeout":
        return 5
    for kind, code in ((HostUnreachable, 6), (HostRefused, 7), (Unauthorized, 7), (Conflict, 8)):
        if isinstance(outcome.fault, kind):
            return code
    return 1


def taken(rows: Sequence[Row]) -> list[str]:
    """Slots on which something of ours runs, as far as anybody can say."""
    return [str(row["slot"]) for row in rows if row["state"] not in ("free", "unknown", "orphan")]


# ── verbs ────────────────────────────────────────────────────────────────────────────────────────────
def plan_up(rows: Sequence[Row], count: int | None) -> tuple[list[str], list[str]]:
    """Slots that are kept, and slots to launch so that `count` (None: all) are taken; unknown ones last.

    Raises UsageError where there are not that many.
    """
    kept = taken(rows)
    open_slots = sorted((row for row in rows if row["state"] in ("free", "unknown")), key=lambda r: r["state"])
    slots = len(kept) + len(open_slots)
    if count is not None and count > slots:
        raise UsageError(f"{count} replicas are more than the {slots} slots that the file declares")
    missing = len(open_slots) if count is None else max(0, count - len(kept))
    return kept, [str(row["slot"]) for row in open_slots[:missing]]


async def up(owner: Owner, count: int | None, *, wait: bool, within: float, tell: Tell) -> list[Outcome]:
    """Launch what is missing, all at once, and keep what works whatever happens to the rest."""
    kept, wanted = plan_up(await owner.rows(), count)
    outcomes = await asyncio.gather(
        *(_kept(owner, slot, wait=wait, within=within, tell=tell) for slot in kept),
        *(launched(owner, slot, wait=wait, within=within, tell=tell) for slot in wanted),
    )
    return list(outcomes)


async def _kept(owner: Owner, slot: str, *, wait: bool, within: float, tell: Tell) -> Outcome:
    row = await _row(owner, slot)
    if row["state"] == "ready" or not wait:
        return Outcome(slot, "kept", "drifted" if row.get("drifted") else str(row["state"]))
    return await until_ready(owner, slot, within=within, tell=tell)


async def launched(owner: Owner, slot: str, *, wait: bool, within: float, tell: Tell) -> Outcome:
    """Launch one slot, and wait until it is ready."""
    tell(slot, "launching")
    try:
        await owner.launch(slot)
    except InferaError as fault:
        tell(slot, f"failed: {fault.message}")
        return Outcome(slot, "failed", fault.message, fault)
    if not wait:
        return Outcome(slot, "started")
    return await until_ready(owner, slot, within=within, tell=tell)


async def until_ready(owner: Owner, slot: str, *, within: float, tell: Tell) -> Outcome:
    """Wait until a launched slot is ready; its log's end is told when it fails."""
    begun, last = time.monotonic(), ""
    while True:
        row = await _row(owner, slot)
        state = str(row["state"])
        if row["ready"]:
            tell(slot, f"ready after {time.monotonic() - begun:.1f} s")
            return Outcome(slot, "ready")
        if state in ("free", "unknown"):
            told = await owner.tail(slot)
            detail = str(row.get("error") or "it ended")
            tell(slot, f"failed: {detail}" + (f"\n{told}" if told else ""))
            return Outcome(slot, "failed", detail)
        if time.monotonic() - begun > within:
            tell(slot, f"not ready after {within:g} s, still {state}")
            return Outcome(slot, "timeout", f"still {state} after {within:g} s")
        if state != last:
            tell(slot, state)
            last = state
        await asyncio.sleep(_POLL)


async def down(owner: Owner, slots: Sequence[str], *, drain: Drain | None, force: bool, tell: Tell) -> list[Outcome]:
    """Stop these slots, all at once; one that is free already is well."""
    return list(await asyncio.gather(*(stopped(owner, s, drain=drain, force=force, tell=tell) for s in slots)))


async def stopped(owner: Owner, slot: str, *, drain: Drain | None, force: bool, tell: Tell) -> Outcome:
    """Stop one slot: drain at the router that was named first, unless forced."""
    try:
        if drain is not None and not force:
            tell(slot, "draining")
            await drain(slot)
        tell(slot, "stopping")
        left = await owner.stop(slot, drain=not force)
    except NotFound:
        return Outcome(slot, "untouched", "nothing runs on it")
    except InferaError as fault:
        tell(slot, f"failed: {fault.message}")
        return Outcome(slot, "failed", fault.message, fault)
    if left is not None:
        tell(slot, f"failed: {left}")
        return Outcome(slot, "failed", left)
    tell(slot, "stopped")
    return Outcome(slot, "stopped")


async def scale(
    owner: Owner, count: int, *, drain: Drain | None, wait: bool, within: float, tell: Tell
) -> list[Outcome]:
    """Launch or stop until `count` slots are taken; what goes is what serves least, then the last in order."""
    going = surplus(await owner.rows(), count)
    if going:
        return await down(owner, going, drain=drain, force=False, tell=tell)
    return await up(owner, count, wait=wait, within=within, tell=tell)


def surplus(rows: Sequence[Row], count: int) -> list[str]:
    """The slots to stop so that `count` are left: those that do not serve first, then the last in order."""
    ready = {str(row["slot"]): bool(row["ready"]) for row in rows}
    order = sorted(enumerate(taken(rows)), key=lambda item: (ready[item[1]], -item[0]))
    return [slot for _, slot in order[: max(0, len(order) - count)]]


async def restart(
    owner: Owner, slots: Sequence[str], *, at_once: int, drain: Drain | None, within: float, tell: Tell
) -> list[Outcome]:
    """Stop and launch these slots, `at_once` at a time; the next only when those are ready, none after a failure."""
    outcomes: list[Outcome] = []
    for begin in range(0, len(slots), at_once):
        batch = slots[begin : begin + at_once]
        outcomes += await asyncio.gather(*(_again(owner, s, drain=drain, within=within, tell=tell) for s in batch))
        if not all(outcome.well for outcome in outcomes):
            outcomes += [Outcome(slot, "untouched", "an earlier one failed") for slot in slots[begin + at_once :]]
            break
    return outcomes


async def _again(owner: Owner, slot: str, *, drain: Drain | None, within: float, tell: Tell) -> Outcome:
    outcome = await stopped(owner, slot, drain=drain, force=False, tell=tell)
    if not outcome.well:
        return outcome
    return await launched(owner, slot, wait=True, within=within, tell=tell)


async def rollout(
    owner: Owner, digests: dict[str, str], *, at_once: int, drain: Drain | None, within: float, tell: Tell
) -> list[Outcome]:
    """Restart what drifted from the file. What was rolled out before has its digest and is left alone, so an
    interrupted one goes on where it stopped; a slot that its failure left free is launched first."""
    await owner.reread(digests)
    rows = await owner.rows()
    behind = [str(row["slot"]) for row in rows if row.get("drifted") or row["state"] == "down"]
    failed = [str(row["slot"]) for row in rows if row["state"] == "free" and row.get("error")]
    return await restart(owner, [*failed, *behind], at_once=at_once, drain=drain, within=within, tell=tell)


async def _row(owner: Owner, slot: str) -> Row:
    for row in await owner.rows():
        if row["slot"] == slot:
            return row
    raise NotFound(f"{owner.name} has no slot {slot!r}")
