"""Explaining a decision: the same one that the relay would take, and nothing is written down."""

from __future__ import annotations

import random

from infera_cli.events import Bus
from infera_cli.fleet.registry import Registry
from infera_cli.gateway.dispatch import Dispatcher
from infera_cli.gateway.explain import Explainer
from infera_cli.routing.catalogue import policy
from infera_cli.routing.sessions import Pins
from infera_cli.routing.types import Ask, WorkerSpec

PATH = "/v1/chat/completions"


def world(*names: str) -> tuple[Registry, Dispatcher, Explainer]:
    registry = Registry(Bus(), pins=Pins(600))
    for number, name in enumerate(names):
        registry.add(WorkerSpec(id=name, host="h", port=8001 + number, models=("m",)))
    dispatcher = Dispatcher(registry, policy("session"), slack=8, clock=lambda: 100.0, dice=random.Random(1))
    return registry, dispatcher, Explainer(dispatcher, "session")


async def test_explained_decision_is_the_relays_own_and_leaves_no_trace() -> None:
    """Asking any number of times changes no counter, pin or rotation; then the relay does just that."""
    registry, dispatcher, explain = world("a", "b")
    told = [await explain(PATH, [(b"x-session-id", b"chat-1")], b'{"model":"m"}') for _ in range(3)]
    assert told[0] == told[1] == told[2]
    assert registry.counters() == {"sessions": 0, "routed": 0, "affinity_hits": 0, "rejected": 0}
    decision, lease = dispatcher.route(Ask("m", "session:chat-1"), 100.0)
    assert decision.worker.id == told[0].worker
    lease.settle(100.0)


async def test_pinned_session_is_explained_as_a_hit() -> None:
    """The pin shows in the affinity, every worker among the candidates, and the key as it is pinned."""
    _, dispatcher, explain = world("a", "b", "c")
    _, lease = dispatcher.route(Ask("m", "session:chat-1"), 100.0)
    found = await explain(PATH, [], b'{"model":"m","session_id":"chat-1"}')
    assert (found.worker, found.affinity, found.session) == (lease.worker.id, "hit", "session:chat-1")
    assert sorted(candidate.worker for candidate in found.candidates) == ["a", "b", "c"]


async def test_request_without_a_session_is_explained_without_one() -> None:
    """No id is minted for an explanation."""
    _, _, explain = world("a")
    found = await explain(PATH, [], b"not json")
    assert (found.worker, found.session, found.model, found.error) == ("a", None, None, None)


async def test_dropped_workers_say_why() -> None:
    """A draining worker is among the candidates with its reason."""
    registry, _, explain = world("a", "b")
    registry.drain("a")
    found = await explain(PATH, [], b'{"model":"m"}')
    dropped = {candidate.worker: candidate.dropped for candidate in found.candidates}
    assert found.worker == "b"
    assert dropped["b"] is None
    assert "drain" in (dropped["a"] or "")


async def test_request_that_nobody_would_serve_is_explained_too() -> None:
    """An unknown model, or a fleet that is down, gives the relay's own sentence instead of a worker."""
    registry, _, explain = world("a")
    unknown = await explain(PATH, [], b'{"model":"nope"}')
    assert unknown.worker is None
    assert "nope" in (unknown.error or "")
    registry.drain("a")
    down = await explain(PATH, [], b'{"model":"m"}')
    assert down.worker is None
    assert down.error
    assert [candidate.worker for candidate in down.candidates] == ["a"]
    assert registry.counters()["rejected"] == 0
