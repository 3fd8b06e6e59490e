"""Which model is served by whom, and what GET /v1/models lists (rulings 9)."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from infera_cli.errors import ModelNotFound, NoRoutableWorker
from infera_cli.routing.health import Score
from tests.fleet.fleets import Fleet, broken, spec


def two_models() -> Fleet:
    fleet = Fleet()
    fleet.registry.replace_source("file", [spec("x1", models=("x",)), spec("x2", models=("x",)), spec("y1")])
    fleet.registry.models_learned(fleet["y1"], [{"id": "y"}, {"id": "y-lora"}])
    return fleet


def test_a_model_is_served_by_those_who_list_it() -> None:
    """Declared and learned names alike, adapters too; no model asked for: anybody."""
    fleet = two_models()
    assert fleet.serve(4, model="x") == {"x1": 2, "x2": 2}
    assert fleet.serve(2, model="y-lora") == {"y1": 2}
    assert len(fleet.serve(6)) == 3


def test_s56_each_model_has_its_own_rotation() -> None:
    """Requests of one model do not turn the wheel of another."""
    fleet = Fleet(policy="round-robin")
    both = ("x", "y")
    fleet.registry.replace_source("file", [spec("a", models=both), spec("b", models=both)])
    assert [fleet.visit(model=model) for model in "xyxyxy"] == ["a", "a", "b", "b", "a", "a"]


def test_an_unknown_model_lists_what_is_served() -> None:
    """404 with the served names, sorted, where every worker's models are known (rulings 9)."""
    with pytest.raises(ModelNotFound) as caught:
        two_models().send(model="z")
    assert caught.value.message == "The model 'z' is not served here; served are: x, y, y-lora."
    assert (caught.value.status, caught.value.param, caught.value.code) == (404, "model", "model_not_found")


def test_r034_a_long_name_of_an_unknown_model_is_not_repeated_at_length() -> None:
    """The refusal echoes 200 characters of the client's name at most."""
    with pytest.raises(ModelNotFound) as caught:
        two_models().send(model="z" * 250)
    assert caught.value.message == f"The model '{'z' * 199}…' is not served here; served are: x, y, y-lora."


def test_a_worker_of_unknown_models_may_serve_any() -> None:
    """Before its list is known, a worker is a candidate for every model; afterwards for those it lists."""
    fleet = Fleet("new")
    fleet.registry.add(spec("x1", models=("x",)))
    assert fleet.serve(2, model="anything") == {"new": 2}
    assert fleet.serve(2, model="x") == {"new": 1, "x1": 1}
    fleet.registry.models_learned(fleet["new"], [{"id": "y"}])
    with pytest.raises(ModelNotFound):
        fleet.send(model="anything")
    assert fleet.last("models") == "y"


def test_names_made_up_by_clients_take_no_memory() -> None:
    """All unknown names share one rotation."""
    fleet = Fleet("a", "b", policy="round-robin")
    served = Counter(fleet.visit(model=f"made-up-{n}") for n in range(100))
    assert served == {"a": 50, "b": 50}
    assert list(fleet.registry._lanes.by_model) == [None]


def test_declared_models_are_binding() -> None:
    """What a worker lists beyond its declaration is not routed to it."""
    fleet = Fleet()
    fleet.registry.add(spec("a", models=("x",)))
    fleet.registry.models_learned(fleet["a"], [{"id": "x"}, {"id": "extra"}])
    assert fleet["a"].models == ("x",)
    with pytest.raises(ModelNotFound):
        fleet.send(model="extra")


def test_a_registered_worker_may_list_more_than_its_record() -> None:
    """Aliases and adapters that it lists itself are served beside the name that it registered with."""
    fleet = Fleet()
    fleet.registry.add(replace(spec("a", models=("x",)), binding=False))
    assert [*fleet["a"].models] == ["x"]
    fleet.registry.models_learned(fleet["a"], [{"id": "x"}, {"id": "alias"}, {"id": "lora", "parent": "x"}])
    assert [*fleet["a"].models] == ["x", "alias", "lora"]
    assert [card["id"] for card in fleet.registry.model_cards()] == ["x", "alias", "lora"]
    assert fleet.visit(model="lora") == "a"


@pytest.mark.parametrize(
    ("drained", "failed", "sentence"),
    [
        (["x1", "x2"], [], "All 2 workers of model 'x' are draining."),
        ([], ["x1", "x2"], "All 2 workers of model 'x' are not ready."),
        (["x1"], ["x2"], "None of the 2 workers of model 'x' can take a request: 1 draining, 1 not ready."),
    ],
)
def test_a_known_model_that_is_down_says_why(drained: list[str], failed: list[str], sentence: str) -> None:
    """503 with the reason, and a time after which to ask again."""
    fleet = two_models()
    for name in drained:
        fleet.registry.drain(name)
    for name in failed:
        fleet.score(name, Score.UNREACHABLE)
    with pytest.raises(NoRoutableWorker) as caught:
        fleet.send(model="x")
    assert (caught.value.message, caught.value.status, caught.value.retry_after) == (sentence, 503, 5.0)
    assert fleet.serve(1, model="y") == {"y1": 1}


def test_an_empty_fleet_says_so() -> None:
    """503, with any model and without."""
    for model in (None, "x"):
        with pytest.raises(NoRoutableWorker, match="no worker in the fleet"):
            Fleet().send(model=model)


def test_prefill_and_decode_workers_are_listed_and_never_asked() -> None:
    """They serve halves of requests, so whole ones do not go there (rulings 22)."""
    fleet = Fleet()
    halves = [spec("p", role="prefill", models=("x",)), spec("d", role="decode")]
    fleet.registry.replace_source("etcd", halves)
    assert fleet.names() == ["p", "d"]
    with pytest.raises(NoRoutableWorker, match="Prefill and decode"):
        fleet.send(model="x")
    assert [c.dropped for c in fleet.registry.explain("x", 0.0)] == ["a prefill worker", "a decode worker"]
    assert fleet.registry.model_cards() == []


def test_model_cards_are_the_union_in_the_workers_own_words() -> None:
    """One entry an id, the first worker's card verbatim; declared names without a card get a plain one."""
    fleet = Fleet(created=1700000000)
    fleet.registry.replace_source("file", [spec("a"), spec("b", models=("x", "z")), spec("c")])
    card = {"id": "x", "object": "model", "max_model_len": 4096, "owned_by": "vllm"}
    fleet.registry.models_learned(fleet["a"], [card, {"object": "nameless"}, {"id": 7}])
    fleet.registry.models_learned(fleet["c"], [{"id": "c-only"}])
    plain = {"id": "z", "object": "model", "created": 1700000000, "owned_by": "infera"}
    assert fleet.registry.model_cards() == [card, plain, {"id": "c-only"}]
    fleet.registry.drain("c")
    fleet.score("a", Score.UNREACHABLE)
    assert fleet.registry.model_cards() == [{**plain, "id": "x"}, plain]


def test_an_open_breaker_hides_no_model() -> None:
    """Models are listed by who is ready; breakers never change what is served (rulings 3)."""
    fleet = broken("a")
    fleet.registry.models_learned(fleet["a"], [{"id": "m"}])
    assert fleet.registry.model_cards() == [{"id": "m"}]
