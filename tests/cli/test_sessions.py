"""`infera sessions`: conversations that lost their place in the cache."""

from __future__ import annotations

import json

from tests.cli.conftest import Infera, Result
from tests.client.stub import Stub

ROW = {
    "session": "session:chat-1", "turn": 7, "part": "first line of the system text", "tokens_lost": 4096,
    "tokens_again": 9000, "times": 3, "at": 1_800_000_000.5,
}

TABLE = """\
SESSION         TURN  FIRST DIFFERENCE               TOKENS LOST  TIMES
session:chat-1     7  first line of the system text         4096      3
"""


def test_sessions_that_lost_their_place_are_a_table(infera: Infera, stub: Stub) -> None:
    """The turn, the first part that differs, and what it cost."""
    stub.answers["GET /v1/admin/sessions"] = (200, {"sessions": [ROW]})
    assert infera("sessions", "--server", stub.url) == Result(0, TABLE, "")


def test_sessions_have_more_to_say(infera: Infera, stub: Stub) -> None:
    """`-o wide` adds all tokens that were computed again, and when the last of it was."""
    stub.answers["GET /v1/admin/sessions"] = (200, {"sessions": [ROW, {"session": "s"}]})
    lines = infera("sessions", "-o", "wide", "--server", stub.url).out.splitlines()
    assert lines[0].split("  ")[-1].strip() == "AT"
    assert lines[1].split()[-2:] == ["9000", "2027-01-15T08:00:00Z"]
    assert lines[2].split() == ["s", "-", "-", "-", "-", "-", "-"]


def test_sessions_are_json_for_programs(infera: Infera, stub: Stub) -> None:
    """The server's own words."""
    stub.answers["GET /v1/admin/sessions"] = (200, {"sessions": [ROW]})
    assert json.loads(infera("sessions", "-o", "json", "--server", stub.url).out)["sessions"] == [ROW]


def test_no_sessions_is_said(infera: Infera, stub: Stub) -> None:
    """Nothing on standard output, a word beside it."""
    stub.answers["GET /v1/admin/sessions"] = (200, {"sessions": []})
    assert infera("sessions", "--server", stub.url) == Result(0, "", "no sessions\n")


def test_another_policy_is_said(infera: Infera, stub: Stub) -> None:
    """The server's own sentence, and exit code 1."""
    stub.answers["GET /v1/admin/sessions"] = (503, {"detail": "The routing policy is session."})
    said = infera("sessions", "--server", stub.url)
    assert (said.code, said.out) == (1, "")
    assert "The routing policy is session." in said.err
