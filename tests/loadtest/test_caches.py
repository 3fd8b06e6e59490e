"""Prefix-cache hits by the engines' own counters, for servers whose answers say nothing of them."""

from __future__ import annotations

import pytest

from infera_cli.loadtest import caches
from infera_cli.loadtest.caches import Caches
from infera_cli.loadtest.options import Options
from infera_cli.loadtest.target import About
from infera_cli.report import rows as report
from infera_cli.workload import gates
from tests.loadtest.runs import run
from tests.support.timed_target import TimedTarget, stream

PAGE = b"vllm:prefix_cache_queries_total{engine=\"0\"} %d\nvllm:prefix_cache_hits_total{engine=\"0\"} %d\n"
ROUTER = b"infera_kv_expected_cached_tokens_total{worker_id=\"a\"} 30\n"


def pages(monkeypatch: pytest.MonkeyPatch, found: dict[str, bytes]) -> None:
    monkeypatch.setattr("infera_cli.loadtest.caches._page", lambda _options, url: found.get(url))


def test_counters_of_all_engines_behind_a_router_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the workers that it lists, beside what it expected itself; of a part of them nothing is said."""
    two = {"http://a/metrics": PAGE % (100, 40), "http://b/metrics": PAGE % (50, 0), "http://x/metrics": ROUTER}
    about = About("m", ("m",), {"a": "http://a", "b": "http://b"})
    pages(monkeypatch, two)
    assert caches.look(Options("http://x"), about) == Caches(30.0, 150, 40)
    del two["http://b/metrics"]
    assert caches.look(Options("http://x"), about) == Caches(30.0, None, None)


def test_an_engine_by_itself_is_asked_for_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who lists no workers is the engine, or says nothing."""
    pages(monkeypatch, {"http://x/metrics": PAGE % (7, 7)})
    assert caches.look(Options("http://x"), About("m", ("m",), {})) == Caches(None, 7, 7)
    pages(monkeypatch, {})
    assert caches.look(Options("http://x"), About("m", ("m",), {})) == Caches()


@pytest.mark.parametrize(("before", "after", "told"), [
    (Caches(None, 10, 0), Caches(None, 110, 25), {"engine_prompt_tokens": 100, "engine_cached_tokens": 25}),
    (Caches(None, 10, 0), Caches(5.0, 10, 0), {"predicted_cached_tokens": 5.0}),
    (Caches(None, 90, 50), Caches(None, 20, 5), {}),            # started anew in between
    (Caches(2.0, None, None), Caches(5.0, 9, 9), {"predicted_cached_tokens": 3.0}),
    (Caches(), Caches(), {}),
])
def test_only_what_grew_is_told(before: Caches, after: Caches, told: dict[str, float]) -> None:
    """What was there before the run is none of it; a counter that began anew tells nothing."""
    assert caches.grown(before, after) == told


def test_hits_that_answers_do_not_tell_come_from_the_engines(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the report and for gates; the note that nothing is known of them is gone."""
    said = iter([Caches(None, 0, 0), Caches(None, 200, 50)])
    monkeypatch.setattr("infera_cli.loadtest.caches.look", lambda _options, _about: next(said))
    with TimedTarget(lambda _got: stream(0.0, 0.0, 2)) as target:
        found = run(target.url, count=4, concurrency=1, gates=gates.parse(["hits:0.2", "cached:0.3"]))
    assert found.verdict.missed == ()
    assert {fact.label: fact.value for fact in report.cache(found)} == {
        "prefix-cache hits, by the engines' counters": 25.0}
    assert any("25.0% of the input came from the prefix cache" in said for said in found.verdict.warnings)


def test_a_server_that_is_not_there_any_more_tells_nothing() -> None:
    """No fault, and no figure."""
    assert caches.look(Options("https://127.0.0.1:9", insecure=True), About("m", ("m",), {})) == Caches()
