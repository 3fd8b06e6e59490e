"""What was expected of caches against what engines report; silent misses are the commonest fault (engines §6.3)."""

from __future__ import annotations

import logging

import pytest

from infera_cli.events import RequestDone
from infera_cli.telemetry.drift import SILENT_AFTER, WINDOW, Drift
from tests.telemetry.world import done


def answer(expected: int | None, reported: int | None, **changes: object) -> RequestDone:
    """A finished request whose engine says how much it found, None: says nothing."""
    details = "null" if reported is None else f'{{"cached_tokens": {reported}}}'
    tail = f'"usage": {{"prompt_tokens": 900, "completion_tokens": 1, "prompt_tokens_details": {details}}}}}'
    return done(tail=tail.encode(), expected_cached=expected, worker="a", outcome="ok", **changes)


@pytest.fixture
def drift() -> Drift:
    return Drift(lambda worker: worker == "a")


def test_silent_zero_hits_are_one_warning(drift: Drift, caplog: pytest.LogCaptureFixture) -> None:
    """The router expects hits and the engine finds none: a gauge and one line, however long it lasts."""
    for _ in range(WINDOW - 1):
        drift.add([answer(640, 0)])
    assert not drift.workers["a"].drifting
    drift.add([answer(640, 0)] * 50)
    watch = drift.workers["a"]
    assert (watch.drifting, watch.expected, watch.reported) == (True, 640 * (WINDOW + 49), 0)
    (line,) = [record.getMessage() for record in caplog.records]
    assert "12800 tokens were expected to be cached, and it reports 0" in line
    drift.add([answer(640, 640)] * WINDOW)
    assert not watch.drifting


def test_a_block_more_or_less_is_no_drift(drift: Drift) -> None:
    """Ends of prompts differ by a block, and small prompts by all of it."""
    drift.add([answer(640, 608)] * WINDOW + [answer(32, 0)] * WINDOW)
    assert not drift.workers["a"].drifting


def test_more_hits_than_expected_are_drift_too(drift: Drift) -> None:
    """Events are missed, or another router's prompts are not seen."""
    drift.add([answer(0, 640)] * WINDOW)
    assert drift.workers["a"].drifting


def test_an_engine_that_reports_nothing_is_told_of(drift: Drift, caplog: pytest.LogCaptureFixture) -> None:
    """Once, with the flag that makes it report."""
    caplog.set_level(logging.INFO, "infera.kv")
    drift.add([answer(640, None)] * (SILENT_AFTER - 1) + [answer(640, 640)])
    assert not caplog.records
    other = Drift(lambda _worker: True)
    other.add([answer(640, None)] * 3 * SILENT_AFTER)
    (line,) = [record.getMessage() for record in caplog.records]
    assert "--enable-prompt-tokens-details" in line


def test_an_engine_that_leaves_out_zero_hits_is_found_out(drift: Drift) -> None:
    """What vLLM once told on a route and tells no more is nothing; an answer without usage says nothing."""
    drift.add([answer(640, 640)] + [answer(640, None)] * WINDOW)
    watch = drift.workers["a"]
    assert (watch.drifting, watch.expected, watch.reported) == (True, 640 * (WINDOW + 1), 640)
    without = done(tail=b"data: [DONE]", expected_cached=640, worker="a", outcome="ok")
    elsewhere = answer(640, None)
    elsewhere.path = "/v1/completions"
    drift.add([without, elsewhere])
    assert watch.expected == 640 * (WINDOW + 1)


def test_messages_tell_in_words_of_their_own(drift: Drift) -> None:
    """An answer of the Messages API counts as well."""
    tail = b'"usage": {"input_tokens": 9, "output_tokens": 1, "cache_read_input_tokens": 640}}'
    drift.add([done(tail=tail, expected_cached=640, worker="a", outcome="ok", path="/v1/messages")])
    assert drift.workers["a"].reported == 640


@pytest.mark.parametrize("changes", [{"outcome": "broken"}, {"worker": None}, {"worker": "gone"}])
def test_what_did_not_end_well_says_nothing(drift: Drift, changes: dict[str, object]) -> None:
    """Nor do requests without an expectation, and workers that left are forgotten."""
    given = answer(640, 0)
    for name, value in changes.items():
        setattr(given, name, value)
    drift.add([given, answer(None, 0)])
    assert drift.workers == {}
    drift.add([answer(640, 0)])
    drift.forget("a")
    assert drift.workers == {}
