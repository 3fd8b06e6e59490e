"""A fleet in simulated time behind the routing core."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import pytest

from infera_cli.routing.catalogue import POLICIES
from infera_cli.simulator.engine import Profile
from infera_cli.simulator.fleet import Fleet, Log
from infera_cli.simulator.router import Routing, router_for
from infera_cli.workload.lengths import Part, Talk, conversations, shared_prefixes
from infera_cli.workload.synthetic import Lengths

PROFILE = Profile(prefill_rate=10_000, step_ms=10, sequence_ms=0, blocks=1024)


def fleet(policy: str = "session", workers: int = 4, profile: Profile = PROFILE) -> Fleet:
    routing = Routing(policy=POLICIES[policy], workers=workers, block=profile.block_size)
    return Fleet(profile, router_for(routing))


def talks(count: int, gap: float, turns: int = 3) -> Iterator[Talk]:
    made = conversations(
        7, Lengths(128), Lengths(16), turns=Lengths(turns), system=64, think=0.5, block=PROFILE.block_size)
    return (talk.due(number * gap) for number, talk in enumerate(islice(made, count)))


def columns(log: Log) -> list[list[float]]:
    return [list(column) for column in (log.sent, log.ttft, log.e2el, log.cached, log.worker)]


def test_a_lone_request_takes_what_its_engine_takes() -> None:
    """100 prompt tokens at 10,000 a second and a step of 10 ms: the first token after 20 ms, then one each 10 ms."""
    one = fleet(workers=1)
    log = one.run([Talk((Part(100, 5, range(6)),), at=3.0)])
    assert list(log.sent) == [3.0]
    assert log.ttft[0] == pytest.approx(0.020)
    assert log.e2el[0] == pytest.approx(0.060)
    assert one.busy == [pytest.approx(0.060)]


def test_a_following_turn_waits_for_the_answer_and_its_pause() -> None:
    """The second request of a conversation is sent half a second after the first one's answer."""
    log = fleet(workers=1).run(talks(1, 0.0, turns=2))
    assert log.sent[1] == pytest.approx(log.sent[0] + log.e2el[0] + 0.5)
    assert log.cached[1] > 0


@pytest.mark.parametrize("policy", list(POLICIES))
def test_every_policy_serves_everybody_once(policy: str) -> None:
    """Whatever the policy, each request is answered, and the same requests give the same figures again."""
    first, again = (fleet(policy).run(talks(40, 0.05)) for _ in range(2))
    assert len(first) == 120
    assert columns(first) == columns(again)
    assert sum(first.prompt) == 40 * (3 * 64 + 128 * 6 + 16 * 3)


@pytest.mark.parametrize("policy", ["session", "kv-aware", "prefix-aware"])
def test_a_policy_that_knows_of_caches_finds_more_in_them(policy: str) -> None:
    """Conversations over four workers: such a policy's hit rate is above that of taking turns."""
    knows, blind = (fleet(name).run(talks(40, 0.2)) for name in (policy, "round-robin"))
    assert sum(knows.cached) > 1.2 * sum(blind.cached)


def test_kv_aware_computes_a_prefix_once_a_worker_at_most() -> None:
    """Prompts of one group, far apart: who missed the prefix has it afterwards, whoever has it finds all of it."""
    made = shared_prefixes(3, Lengths(16), Lengths(4), groups=1, prefix=512, alpha=0.0, block=16)
    log = fleet("kv-aware").run(talk.due(5.0 * number) for number, talk in enumerate(islice(made, 20)))
    seen: set[int] = set()
    for worker, cached in zip(log.worker, log.cached, strict=True):
        assert cached == (512 if worker in seen else 0)
        seen.add(worker)


def test_callers_keep_so_many_requests_open() -> None:
    """Four callers: at no instant are more than four requests open, and all are served."""
    log = fleet(workers=2).run_callers(talks(20, 0.0, turns=1), 4)
    edges = sorted([(at, 1) for at in log.sent]
                   + [(at + took, -1) for at, took in zip(log.sent, log.e2el, strict=True)])
    most = now = 0
    for _at, step in edges:
        now += step
        most = max(most, now)
    assert len(log) == 20
    assert most == 4


def test_a_request_that_no_engine_can_hold_is_counted() -> None:
    """A prompt longer than the whole KV cache is told apart, and the others are served."""
    log = fleet(workers=1).run([Talk((Part(100_000, 5, ()),)), Talk((Part(100, 5, range(6)),))])
    assert (len(log), log.too_long) == (1, 1)


def test_more_workers_shorten_the_wait() -> None:
    """The same burst on eight workers has its first tokens sooner than on two."""
    few, many = (fleet("least-loaded", workers).run(talks(64, 0.001, turns=1)) for workers in (2, 8))
    assert max(many.ttft) < max(few.ttft)


def test_callers_pause_after_each_conversation() -> None:
    """One caller with two requests and a pause of five seconds: the second begins that long after the first's end."""
    one = fleet(workers=1)
    log = one.run_callers(talks(2, 0.0, turns=1), 1, pause=5.0)
    assert log.sent[1] == pytest.approx(log.sent[0] + log.e2el[0] + 5.0)


def test_a_following_turn_waits_for_its_own_time() -> None:
    """Of pause and recorded time the later counts; an answer that comes later still moves the turn."""
    turns = (Part(100, 5, range(6)), Part(110, 5, range(7), after=2.0), Part(120, 300, range(26), after=2.01))
    log = fleet(workers=1).run([Talk(turns, at=1.0)])
    assert list(log.sent) == [1.0, 3.0, pytest.approx(3.0 + log.e2el[1])]


def test_a_replay_is_faster_as_a_whole() -> None:
    """Beginnings, pauses and recorded times; with times of other making only the pauses stay."""
    talk = Talk((Part(9, 1, ()), Part(9, 1, (), think=2.0, after=8.0)), at=4.0)
    fast, other = talk.replayed(4.0), talk.due(1.0)
    assert (fast.at, fast.turns[1].think, fast.turns[1].after) == (1.0, 0.5, 2.0)
    assert (other.at, other.turns[1].think, other.turns[1].after) == (1.0, 2.0, 0.0)
    assert [len(talk.replayed(1.0, until).turns) for until in (11.0, 12.0)] == [1, 2]
