"""A target for benchmarks of a moment, and the options that make them so."""

from __future__ import annotations

from tests.support.timed_target import Got, Script, TimedTarget, stream

FAST = ("--isl", "8", "--osl", "2", "--allow-degraded")


def failing(share: int) -> TimedTarget:
    """A target that answers 500 to the first `share` of every 100 requests."""

    def reply(got: Got) -> Script:
        bad = got.number % 100 < share
        return Script([(0.0, b"{}")], status=500, kind="application/json") if bad else stream(0.01, 0.001, 2)

    return TimedTarget(reply)
