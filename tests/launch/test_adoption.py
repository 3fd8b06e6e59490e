"""What becomes of a record, row by row (replica-router §1.9; rulings 15)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from infera_cli.errors import Conflict, IllegalMove, NotFound
from infera_cli.launch.adoption import judge
from infera_cli.launch.script import Found, Identity, Wanted, found, said, started, tailed
from infera_cli.launch.seat import MOVES, Pool, Seat
from infera_cli.launch.state import Record
from tests.launch.worlds import launches

LAUNCH = launches(1)[0]
ME = Identity("n", 77, "12", "boot")
RECORD = Record(slot="x-d0", host="x", devices=(0,), address="127.0.0.1", port=8001, nonce="n",
                digest=LAUNCH.digest, identity=ME)  # fmt: skip
OLD = replace(RECORD, nonce="", digest=None, identity=None)
CUT_OFF = replace(RECORD, identity=None)
RUNS, GONE = Found(verified=True, tree=("77:12",)), Found()


@pytest.mark.parametrize(("record", "declared", "healthy", "seen", "verdict", "drifted"), [
    (RECORD, True, True, RUNS, "serving", False),
    (RECORD, True, False, RUNS, "loading", False),
    (replace(RECORD, ready=True), True, False, RUNS, "serving", False),
    (RECORD, True, True, None, "serving", False),
    (RECORD, True, False, None, "suspect", False),
    (RECORD, True, False, GONE, "gone", False),
    (RECORD, True, True, GONE, "orphan", False),
    (RECORD, True, True, Found(exit_code=0), "serving", False),
    (RECORD, True, False, Found(exit_code=0), "gone", False),
    (replace(RECORD, digest="other"), True, True, RUNS, "serving", True),
    (replace(RECORD, port=9), True, True, RUNS, "serving", True),
    (RECORD, False, True, RUNS, "orphan", False),
    (RECORD, False, False, RUNS, "orphan", False),
    (RECORD, False, False, None, "suspect", False),
    (RECORD, False, False, GONE, "gone", False),
    (CUT_OFF, True, False, GONE, "gone", False),
    (CUT_OFF, True, True, GONE, "orphan", False),
    (CUT_OFF, True, False, replace(RUNS, recorded=ME), "loading", False),
    (CUT_OFF, True, False, None, "suspect", False),
    (OLD, True, True, GONE, "serving", False),
    (OLD, True, False, GONE, "suspect", False),
    (replace(OLD, devices=(5,)), True, True, GONE, "orphan", False),
    (replace(OLD, port=9), True, False, GONE, "suspect", False),
])  # fmt: skip
def test_what_becomes_of_a_record(
    record: Record, declared: bool, healthy: bool, seen: Found | None, verdict: str, drifted: bool
) -> None:
    """Adopted, orphan, suspect or gone: by what answers, what runs, and what is declared now."""
    judgement = judge(record, LAUNCH if declared else None, healthy=healthy, found=seen)
    assert (judgement.verdict, judgement.drifted) == (verdict, drifted)
    assert judgement.why


def answer(*lines: str) -> str:
    return "".join(f"infera {line}\n" for line in ("slot", "boot boot", *lines))


@pytest.mark.parametrize(("lines", "seen", "expected"), [
    (["leader 77 12 S", "member 77:12 session", "member 78:13 session", "member 77:12 nonce"], (),
     {"verified": True, "tree": ("77:12", "78:13")}),
    (["leader 77 99 S", "member 77:99 session"], (), {"verified": False, "tree": ()}),
    (["leader 77 12 Z", "member 78:13 session"], (), {"verified": False, "tree": ()}),
    (["member 78:13 session", "member 79:14 session"], ("78:13",), {"verified": False, "tree": ("78:13",)}),
    (["member 80:15 nonce"], (), {"tree": ("80:15",)}),
    (["exit n 3"], (), {"exit_code": 3}),
    (["exit other 3"], (), {"exit_code": None}),
    (["exit n"], (), {"exit_code": None}),
    (["record n 77 12 boot"], (), {"recorded": None}),
    (["record n 77 12 boot 5"], (), {"recorded": replace(ME, offset=5)}),
])  # fmt: skip
def test_a_pid_is_believed_only_with_start_time_boot_and_nonce(
    lines: list[str], seen: tuple[str, ...], expected: dict[str, Any]
) -> None:
    """What was found is sorted into ours and strangers'."""
    (result,) = found("motd: welcome\n" + answer(*lines), [Wanted("r", ME)], [seen])
    assert {name: getattr(result, name) for name in expected} == expected


def test_a_session_of_another_boot_is_a_strangers() -> None:
    """After a reboot the same numbers mean nothing."""
    text = answer("leader 77 12 S", "member 77:12 session").replace("boot boot", "boot later")
    (result,) = found(text, [Wanted("r", ME)], [("77:12",)])
    assert (result.verified, result.tree) == (False, ())


def test_answers_come_in_the_order_of_the_questions() -> None:
    """One text may ask about several slots; what is missing is nothing found."""
    results = found(answer("exit n 1") + answer("exit n 2"), [Wanted("a", ME), Wanted("b", ME), Wanted("c", ME)])
    assert [result.exit_code for result in results] == [1, 2, None]


def test_noise_of_a_remote_profile_is_skipped() -> None:
    """Only marked lines count."""
    assert said("Last login\ninfera exit n 1\n  infera no\n") == [["exit", "n", "1"]]
    assert started("x\n") == (None, None)
    assert tailed("hello\ninfera log 5 9\nabcd") == (5, 9, "abcd")
    assert tailed("hello\n") == (0, 0, "")


# ── the slots ────────────────────────────────────────────────────────────────────────────────────────
def test_an_illegal_move_raises_and_changes_nothing() -> None:
    """Everything that is not a row of the table."""
    moves = {move for _, move in MOVES}
    for phase in {phase for phase, _ in MOVES}:
        for move in moves:
            seat = Seat(LAUNCH)
            seat.phase = phase
            if (phase, move) in MOVES:
                seat.move(move)
                assert seat.phase == MOVES[phase, move]
            else:
                with pytest.raises(IllegalMove):
                    seat.move(move)
                assert seat.phase == phase


def test_slots_are_taken_in_pool_order_suspects_last() -> None:
    """First free, then suspects; never more than the ceiling."""
    pool = Pool(launches(3), 2)
    pool.seats[0].suspect = True
    assert [pool.take().name, pool.take().name] == ["x-d1", "x-d2"]
    with pytest.raises(Conflict, match="All 2 replicas"):
        pool.take()


def test_a_slot_can_be_asked_for_by_name() -> None:
    """Taken or unknown ones are refused."""
    pool = Pool(launches(3), 3)
    assert pool.take("x-d2").name == "x-d2"
    with pytest.raises(Conflict, match="taken"):
        pool.take("x-d2")
    with pytest.raises(NotFound):
        pool.take("y")


def test_another_reading_of_the_file_replans_and_shows_drift() -> None:
    """Commands are taken over; slots that came, went or moved stay as they were."""
    pool = Pool(launches(2), 2)
    seat = pool.take()
    seat.record = replace(RECORD, digest=seat.launch.digest)
    assert pool.replan(launches(3, serve_args=("--new",))) == ["x-d2"]
    assert seat.drifted
    assert "--new" in seat.launch.command
    assert pool.replan(launches(2, port_base=9001)) == ["x-d0", "x-d1"]
    assert seat.launch.port == 8001
