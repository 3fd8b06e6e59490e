"""Kept connections that are closed: what is sent again, and what has failed."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from typing import Any

from tests.loadtest.runs import run
from tests.support.timed_target import CLOSE, RESET, Got, Script, TimedTarget, stream

CLIENT = """
import json, sys
import gevent
from infera_cli.loadtest import http
from infera_cli.loadtest.job import Target
from infera_cli.workload.answer import Answer

url, http.AT_ONCE = sys.argv[1], 5.0    # also on a busy machine
client = http.Client(Target(url), "/v1/chat/completions", connect_timeout=5.0, size=9)

def send():
    exchange, answer = http.Exchange(), Answer("chat")
    client.send(exchange, b"{}", None, answer, stream=True)
    return exchange, answer

gevent.joinall([gevent.spawn(send) for _ in range(int(sys.argv[2]))])
exchange, answer = send()
print(json.dumps({"outcome": exchange.outcome or answer.verdict(), "error": exchange.error,
    "resent": exchange.resent, "before": exchange.connected - exchange.sent, "first": answer.first - exchange.sent}))
"""


class Fickle:
    """Answers the first request of a connection after `first` seconds, and drops the second after `held`, by `end`."""

    def __init__(self, held: float, end: bytes, first: float = 0.0) -> None:
        self.held, self.end, self.first = held, end, first
        self.seen: Counter[int] = Counter()

    def __call__(self, got: Got) -> Script:
        self.seen[got.peer] += 1
        return Script([(self.held, self.end)]) if self.seen[got.peer] == 2 else stream(self.first, 0.0, 1)


def last_of(connections: int, reply: Fickle) -> tuple[dict[str, Any], int]:
    """The request after so many at once, each of which left a connection behind; how many the target got."""
    with TimedTarget(reply) as target:
        words = [sys.executable, "-c", CLIENT, target.url, str(connections)]
        done = subprocess.run(words, capture_output=True, text=True, timeout=30, check=False)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout), len(target.got)


def test_a_request_that_was_held_and_dropped_failed() -> None:
    """Every second one is held for 0.3 s and dropped without a byte: each is sent once and is a failure."""
    for end, kind in ((CLOSE, "closed"), (RESET, "reset")):
        with TimedTarget(Fickle(0.3, end)) as target:
            found = run(target.url, concurrency=1, count=6)
            assert len(target.got) == 6
        counts = found.figures.counts
        assert (counts.ok, counts.failures, counts.resent) == (3, {kind: 3}, 0)
        assert found.verdict.exit_code == 1


def test_what_the_target_got_is_what_was_sent_and_sent_again() -> None:
    """Dropped at once, a request goes out again and is a success; the report has how often, and no word of an error."""
    with TimedTarget(Fickle(0.0, CLOSE)) as target:
        found = run(target.url, concurrency=1, count=6)
        counts = found.figures.counts
        assert len(target.got) == counts.sent + counts.resent
    assert counts.resent + counts.failed >= 2     # failed: where this machine was too busy to see it at once
    told = f"{counts.resent} requests were sent again"
    assert any(said.startswith(told) for said in found.verdict.warnings) == bool(counts.resent)


def test_the_time_of_a_request_that_was_sent_again_begins_with_its_first_sending() -> None:
    """Dropped after 0.1 s, answered then: all of it is in its TTFT; nothing of the failure is left."""
    for end in (CLOSE, RESET):
        found, got = last_of(1, Fickle(0.1, end))
        assert (found["outcome"], found["error"], found["resent"], got) == ("ok", "", 1, 3)
        assert found["first"] >= found["before"] >= 0.1


def test_a_request_outlives_all_connections_that_were_closed() -> None:
    """Three were kept and are closed one after the other: the fourth is new, and answers."""
    found, got = last_of(3, Fickle(0.0, CLOSE, first=0.2))
    assert (found["outcome"], found["resent"], got) == ("ok", 3, 7)
