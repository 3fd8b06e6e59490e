"""The engine model: batching, timing, prefix reuse, preemption, and that nothing is lost."""

from __future__ import annotations

import random
from collections import defaultdict
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infera_cli.simulator.engine import EngineModel, Happening, Profile

PLAIN = Profile(prefill_rate=1000, step_ms=10, sequence_ms=0, block_size=4, blocks=64, max_num_seqs=4,
                max_batched_tokens=64)


def drain(engine: EngineModel) -> list[Happening]:
    """Everything until the engine is idle."""
    out: list[Happening] = []
    while (due := engine.next_event_time()) is not None:
        out += engine.advance(due)
    return out


def kinds(happenings: list[Happening]) -> list[tuple[str, str, float, int]]:
    """What to compare of happenings."""
    return [(each.id, each.kind, round(each.time, 6), each.tokens) for each in happenings]


def test_a_lone_request_takes_prefill_then_a_step_a_token() -> None:
    """Forty prompt tokens at 1000 a second and a step of 10 ms: first token at 50 ms, then one every 10
    ms."""
    engine = EngineModel(PLAIN)
    engine.submit("a", 40, 3, [], 1.0, watched=True)
    assert kinds(drain(engine)) == [
        ("a", "first", 1.05, 1), ("a", "tokens", 1.06, 1), ("a", "finished", 1.07, 1)]


def test_an_unwatched_request_reports_only_first_and_end() -> None:
    """Without a watcher, hundreds of tokens are two happenings."""
    engine = EngineModel(PLAIN)
    engine.submit("a", 4, 201, [], 0.0)
    assert kinds(drain(engine)) == [("a", "first", 0.014, 1), ("a", "finished", 2.014, 200)]


def test_nothing_happens_before_its_time() -> None:
    """Asking early gives nothing and asking late gives all, with the right times."""
    engine = EngineModel(PLAIN)
    engine.submit("a", 40, 2, [], 0.0)
    assert engine.advance(0.049) == []
    assert kinds(engine.advance(9.0)) == [("a", "first", 0.05, 1), ("a", "finished", 0.06, 1)]
    assert engine.next_event_time() is None


def test_sequences_share_steps_and_each_makes_them_longer() -> None:
    """Two streams at once take the step plus the per-sequence cost of both."""
    engine = EngineModel(Profile(prefill_rate=0, step_ms=10, sequence_ms=1, block_size=4, blocks=64))
    engine.submit("a", 4, 2, [], 0.0)
    engine.submit("b", 4, 2, [], 0.0)
    assert kinds(drain(engine)) == [
        ("a", "first", 0.01, 1), ("b", "first", 0.01, 1),
        ("a", "finished", 0.022, 1), ("b", "finished", 0.022, 1)]


def test_a_long_prompt_is_computed_in_pieces_while_others_decode() -> None:
    """A prompt over the step's budget spreads over steps, and the stream beside it goes on."""
    engine = EngineModel(PLAIN)
    engine.submit("a", 4, 10, [], 0.0, watched=True)
    engine.advance(0.014)
    engine.submit("b", 87, 1, [], 0.014)
    steps = [each for each in drain(engine) if each.id == "a"]
    gaps = [round(later.time - earlier.time, 6) for earlier, later in pairwise(steps)]
    assert gaps[:3] == [0.073, 0.034, 0.01]      # 63 prompt tokens; the last 24; none
    assert max(gaps) == 0.073


def test_seats_are_limited_and_the_queue_is_first_come() -> None:
    """The fifth of five waits until one of four seats is free."""
    engine = EngineModel(PLAIN)
    for name in "abcde":
        engine.submit(name, 1, 5, [], 0.0)
    engine.advance(0.02)
    assert (engine.running, engine.waiting) == (4, 1)
    finished = [each.id for each in drain(engine) if each.kind == "finished"]
    assert finished == ["a", "b", "c", "d", "e"]


@pytest.mark.parametrize(("length", "hit"), [(12, 8), (13, 12), (3, 0), (4, 0), (5, 4)])
def test_a_hit_leaves_at_least_one_token_to_compute(length: int, hit: int) -> None:
    """At most `length - 1` tokens, rounded down to a block, come from the cache (engines §7)."""
    engine = EngineModel(PLAIN)
    chain = list(range(100, 100 + length // 4))
    for name in ("a", "b"):
        engine.submit(name, length, 1, chain, 1.0)
        last = drain(engine)
    assert last[0].cached == hit
    assert (engine.counters.prefix_queries, engine.counters.prefix_hits) == (2 * length, hit)


def test_the_next_turn_hits_blocks_that_decoding_filled() -> None:
    """A prompt that continues with the earlier answer finds all but the last sampled token (engines §7)."""
    engine = EngineModel(PLAIN)
    chain = [1, 2, 3, 4, 5]
    engine.submit("a", 8, 9, chain, 0.0)         # 17 tokens, 16 of them with keys and values
    drain(engine)
    engine.submit("b", 20, 1, chain, 1.0)
    assert drain(engine)[0].cached == 16


def test_parallel_requests_of_one_prefix_meet() -> None:
    """Of two that come together, the second finds what the first is just computing, as in vLLM."""
    engine = EngineModel(PLAIN)
    engine.submit("a", 9, 2, [1, 2], 0.0)
    engine.submit("b", 9, 2, [1, 2], 0.0)
    assert [each.cached for each in drain(engine) if each.kind == "first"] == [0, 8]


def test_without_room_the_last_admitted_is_preempted_and_loses_nothing() -> None:
    """When blocks run out the younger makes room, computes again later, and still gives every token."""
    engine = EngineModel(Profile(step_ms=10, block_size=4, blocks=8, prefill_rate=0))
    engine.submit("old", 8, 20, [], 0.0)
    engine.submit("new", 8, 20, [], 0.0)
    tokens: dict[str, int] = defaultdict(int)
    happenings = drain(engine)
    for each in happenings:
        tokens[each.id] += each.tokens
    assert [each.id for each in happenings if each.kind == "preempted"] == ["new"]
    assert [each.id for each in happenings if each.kind == "finished"] == ["old", "new"]
    assert tokens == {"old": 20, "new": 20}
    assert engine.counters.preemptions == 1


def test_abort_frees_at_once_and_is_silent() -> None:
    """An aborted request says nothing more, whether it ran or waited; unknown ids are None."""
    engine = EngineModel(PLAIN)
    engine.submit("a", 4, 50, [], 0.0)
    engine.advance(0.1)
    assert engine.abort("a", 0.1) == 9
    assert engine.abort("a", 0.1) is None
    assert drain(engine) == []
    assert (engine.running, engine.cache.used, engine.counters.aborted) == (0, 0, 1)


def test_abort_lets_the_next_in() -> None:
    """A seat that an abort frees is taken at the next step."""
    engine = EngineModel(PLAIN)
    for name in "abcde":
        engine.submit(name, 1, 50, [], 0.0)
    engine.advance(0.05)
    engine.abort("a", 0.055)
    engine.advance(0.07)
    assert (engine.running, engine.waiting) == (4, 0)


def test_impossible_requests_are_refused() -> None:
    """What can never fit, or is here already, is an error at once."""
    engine = EngineModel(PLAIN)
    with pytest.raises(ValueError, match="do not fit"):
        engine.submit("a", 200, 100, [], 0.0)
    with pytest.raises(ValueError, match="at least one"):
        engine.submit("a", 0, 1, [], 0.0)
    engine.submit("a", 1, 1, [], 0.0)
    with pytest.raises(ValueError, match="already here"):
        engine.submit("a", 1, 1, [], 0.0)


@pytest.mark.parametrize(
    "wrong", [{"step_ms": -1}, {"blocks": 0}, {"max_batched_tokens": 4, "max_num_seqs": 4}]
)
def test_an_impossible_engine_is_refused(wrong: dict[str, float]) -> None:
    """A profile that could never work is an error."""
    with pytest.raises(ValueError, match=r"cannot|at least|exceed"):
        Profile(**wrong)  # type: ignore[arg-type]


def test_a_free_engine_answers_at_once() -> None:
    """With all costs at zero a request is over at the time it came."""
    engine = EngineModel(Profile(prefill_rate=0, step_ms=0, sequence_ms=0))
    engine.submit("a", 10, 100, [], 5.0, watched=True)
    assert kinds(engine.advance(5.0)) == [("a", "first", 5.0, 1), ("a", "finished", 5.0, 99)]


Plan = list[tuple[int, int, int, int, bool, bool]]
plans = st.lists(
    st.tuples(st.integers(0, 60), st.integers(1, 40), st.integers(1, 30), st.integers(0, 4), st.booleans(),
              st.booleans()),
    min_size=1, max_size=25,
)
SMALL = Profile(prefill_rate=2000, step_ms=5, sequence_ms=0.5, block_size=4, blocks=24, max_num_seqs=5,
                max_batched_tokens=16)


def replay(plan: Plan, *, looks: int) -> tuple[EngineModel, list[Happening]]:
    """Send a plan, looking `looks` times between two arrivals, and wait for the end."""
    engine = EngineModel(SMALL)
    now, out = 0.0, []
    for number, (gap, prompt, output, family, watched, drop) in enumerate(plan):
        for look in range(looks):
            out += engine.advance(now + gap / 1000 * look / looks)
        now += gap / 1000
        chain = [family * 1000 + place for place in range((prompt + output) // 4)]
        engine.submit(str(number), prompt, output, chain, now, watched=watched)
        if drop and number:
            engine.abort(str(number - 1), now)
        assert engine.cache.used <= engine.cache.capacity
    return engine, out + drain(engine)


@settings(deadline=None)
@given(plans)
def test_every_token_is_reported_once_and_every_block_comes_back(plan: Plan) -> None:
    """Whatever arrives, is preempted or aborted: tokens are conserved, and an idle engine holds nothing."""
    engine, out = replay(plan, looks=1)
    tokens: dict[str, int] = defaultdict(int)
    for each in out:
        tokens[each.id] += each.tokens
    finished = {each.id for each in out if each.kind == "finished"}
    assert all(tokens[name] == plan[int(name)][2] for name in finished)
    assert len(finished) == engine.counters.finished == len(plan) - engine.counters.aborted
    assert (engine.running, engine.waiting, engine.cache.used) == (0, 0, 0)
    assert [each.time for each in out if each.kind != "tokens"] == sorted(
        each.time for each in out if each.kind != "tokens")


@settings(deadline=None)
@given(plans)
def test_how_often_the_clock_is_asked_changes_nothing(plan: Plan) -> None:
    """Closed form and step by step agree: first tokens, ends and preemptions have the same times and
    order."""
    once, often = replay(plan, looks=1), replay(plan, looks=7)
    assert [(e.id, e.kind, e.time, e.cached) for e in once[1] if e.kind != "tokens"] == [
        (e.id, e.kind, e.time, e.cached) for e in often[1] if e.kind != "tokens"]
    assert once[0].counters == often[0].counters


def test_cost_does_not_grow_with_the_length_of_answers() -> None:
    """Ten times the tokens are the same number of happenings and begun steps: decoding is in closed form."""
    begun = []
    for length in (50, 500):
        dice = random.Random(3)
        engine = EngineModel(Profile(step_ms=10, sequence_ms=0, blocks=100_000))
        steps = 0
        for number in range(50):
            engine.submit(str(number), dice.randint(1, 100), length, [], 0.0)
        while (due := engine.next_event_time()) is not None:
            engine.advance(due)
            steps += 1
        begun.append(steps)
    assert begun[0] == begun[1]
