"""The cost of infera-wire §4.4 with rulings 16 (R092, R095; S49, S50, S55)."""

from __future__ import annotations

import weakref
from collections import Counter

import pytest

from infera_cli.routing.kv import KvWeights
from infera_cli.routing.prompt import Prompt
from infera_cli.routing.types import Ask, Pool, Worker, WorkerSpec
from tests.routing.kv.worlds import SIZE, KvWorld, tokens_of


def test_the_cost_is_missed_blocks_and_load() -> None:
    """cost = w · (B − hits) + active + recent, each as documented."""
    world = KvWorld(2, weights=KvWeights(2.0))
    prompt = tokens_of(10)
    world.store(0, prompt[: 6 * 16])
    assert world.terms(prompt)["w0"] == {"blocks": 10, "hits": 6, "pending": 0, "load": 0, "cost": 8}
    key, held = world.send(prompt)
    assert key == "w0"
    assert world.terms(prompt)["w0"] == {"blocks": 10, "hits": 10, "pending": 4, "load": 14, "cost": 14}
    assert world.terms(prompt)["w1"]["cost"] == 20
    held.release(world.now)
    assert world.terms(prompt)["w0"]["load"] == 4  # what it missed, until it fades


def test_recent_fades_with_every_pick_and_is_dropped_at_last() -> None:
    """Each pick multiplies what was missed by 0.97, and under 0.001 it is nothing."""
    world = KvWorld(2)
    first = world.target(0)
    choice = world.choose(tokens_of(3), pool=Pool([world.workers[0]]))
    world.book.begin(choice, 0.0).release(0.0)
    assert world.book.recent(first) == 3.0
    other = Pool([world.workers[1]])
    for _ in range(10):
        world.book.begin(world.choose(Prompt(), pool=other), 0.0).release(0.0)
    assert world.book.recent(first) == pytest.approx(3 * 0.97**10)
    for _ in range(300):
        world.book.begin(world.choose(Prompt(), pool=other), 0.0).release(0.0)
    assert world.book.recent(first) == 0.0
    assert world.book.recent(world.target(1)) == pytest.approx(1 / (1 - 0.97), rel=0.01)


def test_recent_is_right_over_very_many_picks() -> None:
    """The common scale of all targets is renewed before it vanishes."""
    world = KvWorld(2)
    pools = [Pool([worker]) for worker in world.workers]
    wanted = [0.0, 0.0]
    for number in range(3000):
        at = 0 if number % 3 else 1
        wanted = [value * 0.97 if value * 0.97 >= 0.001 else 0.0 for value in wanted]
        wanted[at] += 1.0
        world.book.begin(world.choose(Prompt(), pool=pools[at]), 0.0).release(0.0)
    assert [world.book.recent(world.target(n)) for n in range(2)] == pytest.approx(wanted)


def test_active_counts_different_blocks_in_flight() -> None:
    """Two requests of one prefix count it once, and it stays until the last has ended."""
    world = KvWorld(1)
    shared = tokens_of(4)
    _, first = world.send([*shared, *tokens_of(1, 1)])
    _, second = world.send([*shared, *tokens_of(1, 2)])
    active = world.target(0).active
    assert len(active) == 6
    first.release(world.now)
    first.release(world.now)
    assert len(active) == 5
    second.release(world.now)
    assert not active


def test_a_fully_cached_prompt_adds_nothing_to_recent() -> None:
    """Only what was missed is charged."""
    world = KvWorld(1)
    world.store(0, tokens_of(4))
    world.send(tokens_of(4))[1].release(world.now)
    assert world.book.recent(world.target(0)) == 0.0


def test_s50_prompts_without_a_full_block_still_spread() -> None:
    """Where nothing is known of a prompt, one block is charged, and traffic goes round."""
    world = KvWorld(4)
    served = Counter(_sent_and_done(world, Prompt()) for _ in range(40))
    assert set(served.values()) == {10}


def test_s49_paced_traffic_does_not_stick_to_the_first_worker() -> None:
    """One request at a time, all different: load in flight is zero, and yet everybody serves."""
    world = KvWorld(4)
    served = Counter(_sent_and_done(world, tokens_of(5, number)) for number in range(40))
    assert min(served.values()) >= 8


def _sent_and_done(world: KvWorld, prompt: object) -> str:
    key, held = world.send(prompt)  # type: ignore[arg-type]
    held.release(world.now)
    return key


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_s55_the_holder_of_a_whole_prefix_wins_every_time(order: tuple[int, int]) -> None:
    """20 of 20, in either order of the candidates."""
    world = KvWorld(2)
    world.store(0, tokens_of(30))
    pool = Pool([world.workers[at] for at in order])
    served = []
    for _ in range(20):
        choice = world.choose(tokens_of(30), pool=pool)
        world.book.begin(choice, world.now).release(world.now)
        served.append(choice.target.key)
    assert served == ["w0"] * 20


def test_s55_disjoint_prefixes_sort_by_content_and_a_cold_fleet_spreads() -> None:
    """Each conversation goes back to where it is known; unknown ones go everywhere."""
    world = KvWorld(4)
    for number in range(4):
        world.store(number, tokens_of(20, number))
    for round_ in range(12):
        number = round_ % 4
        assert _sent_and_done(world, [*tokens_of(20, number), *tokens_of(1, 50 + round_)]) == f"w{number}"
    cold = KvWorld(4)
    assert len({cold.send(tokens_of(8, number))[0] for number in range(4)}) == 4


def test_rulings_16_full_ties_go_round() -> None:
    """Equal in cost and load, the candidates serve in turn, not the first one always."""
    world = KvWorld(3)
    for number in range(3):
        world.store(number, tokens_of(4))
    served = Counter(_sent_and_done(world, tokens_of(4)) for _ in range(30))
    assert set(served.values()) == {10}


def test_r092_new_prompts_avoid_the_worker_that_is_stuck_with_work() -> None:
    """W0 knows nothing and holds 20 requests, W1 knows 5,000 blocks and is idle: at least 18 of 20 go to W1."""
    world = KvWorld(2)
    stuck = Pool([world.workers[0]])
    for number in range(20):
        world.book.begin(world.choose(tokens_of(40, 100 + number), pool=stuck), 0.0)
    for start in range(50):
        world.store(1, tokens_of(100, 1000 + start))
    served = Counter(world.send(tokens_of(10, 500 + number))[0] for number in range(20))
    assert served["w1"] >= 18


def test_requests_spread_by_what_is_in_flight() -> None:
    """Thirty at once without any hits: no worker ever has two more than another."""
    world = KvWorld(3)
    served: Counter[str] = Counter()
    for number in range(30):
        served[world.send(tokens_of(6, number))[0]] += 1
        assert max(served.values()) - min(served.get(f"w{n}", 0) for n in range(3)) <= 2


@pytest.mark.parametrize(("weight", "low", "high"), [(1.0, 5, 30), (0.0, 8, 12)])
def test_r095_a_huge_shared_prefix_does_not_send_everything_to_one_worker(weight: float, low: int, high: int) -> None:
    """A prefix of 50 blocks known on W0 alone, 40 requests at once; at weight 0 hits count nothing."""
    world = KvWorld(4, weights=KvWeights(weight))
    shared = tokens_of(50)
    world.store(0, shared)
    served = Counter(world.send([*shared, *tokens_of(3, 1 + number)])[0] for number in range(40))
    assert low <= served["w0"] <= high
    if not weight:
        assert all(8 <= served[f"w{n}"] <= 12 for n in range(4))


def test_r095_a_higher_weight_never_lowers_the_holders_share() -> None:
    """From weight to weight the holder of the shared prefix serves as much or more."""
    shares = []
    for weight in (0.0, 0.5, 1.0, 2.0, 5.0, 20.0):
        world = KvWorld(4, weights=KvWeights(weight))
        shared = tokens_of(50)
        world.store(0, shared)
        served = Counter(world.send([*shared, *tokens_of(3, 1 + number)])[0] for number in range(40))
        shares.append(served["w0"])
    assert shares == sorted(shares)


def test_roles_have_weights_of_their_own() -> None:
    """The prefill and decode overrides replace the base weight on workers of that role."""
    weights = KvWeights(1.0, prefill=20.0)
    assert [weights.of(role) for role in ("mixed", "prefill", "decode")] == [1.0, 20.0, 1.0]
    world = KvWorld(1, weights=weights, role="prefill")
    assert world.terms(tokens_of(3))["w0"]["cost"] == 60


@pytest.mark.parametrize(("retention", "cost"), [("long", 20), ("short", 10), ("none", 1), (None, 10)])
def test_retention_hints_weigh_the_overlap(retention: str | None, cost: float) -> None:
    """Long retention doubles the weight, an explicit none makes it a tenth (infera-wire §4.4, §4.6)."""
    world = KvWorld(1)
    prompt = world.prompt(tokens_of(10), retention=retention)
    assert world.terms(prompt)["w0"]["cost"] == cost


def test_a_choice_does_not_keep_its_prompt() -> None:
    """What was asked is free as soon as the request is, without a search for cycles: a million prompts take no room."""

    class Names(list[int]):
        """Something whose end can be seen."""

    world = KvWorld(1)
    asked = world.prompt(tokens_of(3))
    kind = next(iter(asked.chains))
    names = Names(asked.chains[kind])
    choice = world.choose(Prompt(chains={kind: names}, lengths=asked.lengths))
    held, alive = world.book.begin(choice, 0.0), weakref.ref(names)
    assert (choice.hits, choice.length) == (0, 3 * SIZE)
    held.release(0.0)
    world.book.tick(60.0)
    del names, choice, held
    assert alive() is None


def test_images_go_where_they_were_and_text_is_not_weighed() -> None:
    """48 blocks an image that the target does not hold; the last 256 are remembered (infera-wire §4.7)."""
    world = KvWorld(2)
    world.store(1, tokens_of(10))
    first = world.choose(Prompt(images=(7, 8)), pool=Pool([world.workers[0]]))
    world.book.begin(first, 0.0).release(0.0)
    terms = world.terms(Prompt(images=(7, 8, 9)))
    assert terms["w0"]["cost"] == pytest.approx(48 + 1)
    assert terms["w1"]["cost"] == 3 * 48
    world.book.begin(world.choose(Prompt(images=tuple(range(100, 356))), pool=Pool([world.workers[0]])), 0.0)
    assert len(world.target(0).images) == 256
    assert 7 not in world.target(0).images


def test_ranks_are_targets_of_their_own() -> None:
    """A worker of two ranks has two caches and two loads; keys say which (infera-wire §4.3)."""
    world = KvWorld(1, dp_size=2)
    assert [target.key for target in world.book.targets_of(world.workers[0])] == ["w0#dp0", "w0#dp1"]
    world.store(0, tokens_of(9), rank=1)
    choice = world.choose(tokens_of(9))
    assert (choice.rank, choice.hits) == (1, 9)
    assert world.terms(tokens_of(9))["w0"]["rank"] == 1
    own = KvWorld(1, dp_size=2, dp_rank=1)
    assert [target.rank for target in own.book.targets_of(own.workers[0])] == [None]


def mixed(size: int | None) -> KvWorld:
    """Two workers, w0 with pages of 16 tokens and w1 with pages of `size`, or of nobody knows how many."""
    world = KvWorld(1)
    other = Worker(WorkerSpec(id="w1", host="h", port=9, kv_block_size=size), 9)
    world.book.open(other, "vllm")
    world.workers.append(other)
    world.pool = Pool(world.workers)
    return world


def test_rulings_16_different_block_sizes_are_compared_in_tokens() -> None:
    """64 blocks of 16 and 8 blocks of 128 are the same work."""
    terms = mixed(128).terms(tokens_of(64))
    assert (terms["w0"]["blocks"], terms["w1"]["blocks"]) == (64, 8)
    assert terms["w0"]["cost"] == terms["w1"]["cost"] == 1024


@pytest.mark.parametrize("size", [16, 32, 128])
def test_images_stay_where_they_are_whatever_the_block_sizes(size: int) -> None:
    """An image is worth as many tokens as load is counted in (infera-wire §4.7, rulings 16)."""
    world = mixed(size)
    first, _ = world.send(Prompt(images=(7,)))
    for _ in range(15):
        key, held = world.send(Prompt(images=(7,)))
        assert key == first
        held.release(world.now)


@pytest.mark.parametrize("size", [16, 32, 128])
def test_prompts_without_a_full_block_are_shared_alike_whatever_the_block_sizes(size: int) -> None:
    """Each counts as the smallest block, in tokens."""
    world = mixed(size)
    went: Counter[str] = Counter()
    for _ in range(40):
        key, held = world.send([1, 2, 3, 4, 5])
        went[key] += 1
        held.release(world.now)
    assert went == {"w0": 20, "w1": 20}


def test_a_worker_of_unknown_page_size_is_not_cheaper_for_it() -> None:
    """It is weighed as if it had to compute the whole prompt."""
    assert mixed(None).terms(tokens_of(6))["w1"]["cost"] == 6


def test_parallel_requests_of_one_prefix_meet() -> None:
    """A prompt that is still being computed counts as held there (rulings 16)."""
    world = KvWorld(4, weights=KvWeights(3.0))
    prompt = tokens_of(20)
    first, _ = world.send(prompt)
    second, _ = world.send([*prompt, *tokens_of(1, 1)])
    assert first == second


def test_a_promise_that_no_event_confirms_is_void_soon_after_the_request() -> None:
    """Two seconds after its end the blocks are believed no longer."""
    world = KvWorld(1)
    _, held = world.send(tokens_of(5))
    held.release(10.0)
    assert world.terms(tokens_of(5))["w0"]["hits"] == 5
    world.book.tick(11.0)
    assert world.terms(tokens_of(5))["w0"]["hits"] == 5
    world.book.tick(12.0)
    assert world.terms(tokens_of(5))["w0"]["hits"] == 0
    assert world.book.lapsed == 5


def test_a_worker_that_left_leaves_nothing_behind() -> None:
    """Its view, load and promises are gone; a late end of its request is harmless."""
    world = KvWorld(2)
    world.store(0, tokens_of(5))
    choice = world.choose(tokens_of(5), pool=Pool([world.workers[0]]))
    held = world.book.begin(choice, 0.0)
    world.book.close(world.workers[0])
    assert [target.key for target in world.book.targets()] == ["w1"]
    assert len(world.book.index) == 0
    held.release(1.0)
    world.book.tick(9.0)
    assert world.kv.weigh(Ask(work=world.prompt(tokens_of(5))), Pool([world.workers[0]]), 0) is None


def test_a_worker_that_comes_back_at_once_keeps_what_it_announces_anew() -> None:
    """The end of a request to its former life voids a promise of that life alone."""
    world = KvWorld(1)
    prompt = tokens_of(5)
    _, held = world.send(prompt)
    world.book.close(world.workers[0])
    world.book.open(world.workers[0], "vllm")
    world.store(0, prompt)
    held.release(1.0)
    world.book.tick(9.0)
    assert world.terms(prompt)["w0"]["hits"] == 5
