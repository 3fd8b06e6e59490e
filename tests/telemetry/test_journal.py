"""Looking back at requests."""

from __future__ import annotations

from typing import Any

import pytest

from infera_cli.telemetry.journal import Journal
from tests.telemetry.world import done


def kept() -> Journal:
    journal = Journal()
    journal.add([
        done(id="r1"), done(id="r2", worker="b", total=5.0),
        done(id="r3", session="s2", status=503, outcome="5xx"), done(id="r4", outcome="broken", worker="b"),
    ])  # fmt: skip
    return journal


@pytest.mark.parametrize(
    ("filters", "ids"),
    [
        ({}, ["r4", "r3", "r2", "r1"]),
        ({"limit": 2}, ["r4", "r3"]),
        ({"slow": 1.0}, ["r2"]),
        ({"worker": "b"}, ["r4", "r2"]),
        ({"session": "s2"}, ["r3"]),
        ({"status": "503"}, ["r3"]),
        ({"status": "5xx"}, ["r3"]),
        ({"status": "broken"}, ["r4"]),
        ({"status": "2xx", "worker": "b", "slow": 1.0}, ["r2"]),
        ({"worker": "nobody"}, []),
    ],
)
def test_requests_are_found_newest_first_by_every_filter(filters: dict[str, Any], ids: list[str]) -> None:
    """Filters add up; the newest request comes first."""
    assert [row["id"] for row in kept().query(**filters)] == ids


def test_a_row_tells_every_step_and_no_body() -> None:
    """Queue, pick, connect and upstream are distances between moments; tokens come from the tail."""
    journal = Journal()
    journal.add([done(tail=b'{"text":"secret words","usage":{"prompt_tokens":3,"completion_tokens":1}}')])
    [row] = journal.query()
    assert row["queue"] == pytest.approx(0.001)
    assert row["pick"] == pytest.approx(0.0002)
    assert row["connect"] == pytest.approx(0.0001)
    assert row["upstream"] == pytest.approx(0.1987)
    assert row["total"] == 0.25
    assert row["tokens"] == {"prompt": 3, "completion": 1, "cached": 0}
    assert "secret" not in repr(row)


def test_steps_not_reached_are_none() -> None:
    """A refused request has no worker, no pick and no upstream time."""
    journal = Journal()
    unreached = dict.fromkeys(("worker", "received", "picked", "sent", "first_byte"))
    journal.add([done(outcome="rejected", **unreached)])
    [row] = journal.query()
    assert [row[k] for k in ("worker", "queue", "pick", "connect", "upstream", "tokens")] == [None] * 6


def test_the_oldest_requests_are_forgotten() -> None:
    """Memory is bounded."""
    journal = Journal(capacity=3)
    journal.add([done(id=f"r{n}") for n in range(10)])
    assert [row["id"] for row in journal.query()] == ["r9", "r8", "r7"]


def test_what_has_gathered_is_flushed_before_looking() -> None:
    """A request that ended just now is found."""
    journal = Journal()
    journal.flush = lambda: journal.add([done(id="fresh")])
    assert [row["id"] for row in journal.query()] == ["fresh"]
