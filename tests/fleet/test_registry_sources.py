"""Workers of several sources in one table (rulings 21)."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from tests.fleet.fleets import Fleet, spec


def test_reading_a_source_again_keeps_what_did_not_change() -> None:
    """Unchanged workers keep their member, counts, drain and pins; others leave and come."""
    fleet = Fleet()
    fleet.registry.replace_source("file", [spec("a"), spec("b"), spec("c")])
    first = fleet.send("s")
    kept = fleet[first.worker.id]
    fleet.registry.drain("b")
    fleet.registry.replace_source("file", [spec("a"), spec("b"), spec("d")])
    assert fleet.names() == ["a", "b", "d"]
    assert fleet["a"] is kept
    assert (fleet["a"].outstanding, fleet.pins.find("s", 0.0), fleet["b"].draining) == (1, "a", True)
    assert fleet.told("removed") == ["c"]


def test_a_changed_worker_of_the_same_name_is_another_one() -> None:
    """A new port under an old name: removed and added, nothing carried over."""
    fleet = Fleet("a", "b")
    old = fleet["a"]
    fleet.serve(2)
    fleet.registry.replace_source("file", [spec("a", port=9000), spec("b")])
    assert fleet["a"] is not old
    assert (fleet["a"].routed, fleet["b"].routed) == (0, 1)
    assert (fleet.told("removed"), fleet.told("added")) == (["a"], ["a", "b", "a"])


def test_a_source_changes_only_its_own_workers() -> None:
    """Workers of other sources stay."""
    fleet = Fleet("a")
    fleet.registry.add(spec("x", source="etcd"))
    fleet.registry.replace_source("file", [])
    assert fleet.names() == ["x"]


def test_r076_a_shuffled_source_does_not_disturb_the_rotation() -> None:
    """Round-robin is exact although the source names its workers in another order each time."""
    fleet = Fleet("a", "b", "c", policy="round-robin")
    shuffler, order = random.Random(3), ["a", "b", "c"]
    served: Counter[str] = Counter()
    for _ in range(30):
        served[fleet.visit()] += 1
        shuffler.shuffle(order)
        fleet.registry.replace_source("file", [spec(name) for name in order])
    assert served == {"a": 10, "b": 10, "c": 10}
    fleet.registry.replace_source("file", [spec("c"), spec("a")])
    assert fleet.serve(20) == {"a": 10, "c": 10}


@pytest.mark.parametrize("url", ["http://A:8001", "http://a:8001/"])
def test_the_same_base_url_is_one_worker_and_the_first_source_wins(url: str) -> None:
    """The second is ignored with a warning that names both sources (rulings 21)."""
    fleet = Fleet("a")
    path = "/" if url.endswith("/") else ""
    second = spec("other", source="etcd", host="A" if "A" in url else "a", path=path)
    assert fleet.registry.add(second) is None
    assert fleet.names() == ["a"]
    assert "of etcd has the URL of 'a' of file" in fleet.last("ignored")


@pytest.mark.parametrize(
    ("first", "second"), [("localhost", "127.0.0.1"), ("127.0.0.1", "LocalHost."), ("::1", "0:0:0:0:0:0:0:1")]
)
def test_two_spellings_of_one_address_are_one_worker(first: str, second: str) -> None:
    """localhost is 127.0.0.1; another loopback address may be another engine."""
    fleet = Fleet()
    assert fleet.registry.add(spec("a", host=first)) is not None
    assert fleet.registry.add(spec("b", host=second, source="etcd")) is None
    assert fleet.last("ignored") == f"{spec('b', host=second).url} of etcd has the URL of 'a' of file"
    assert fleet.registry.add(spec("c", host="127.0.0.2")) is not None


def test_a_name_belongs_to_the_source_that_came_first() -> None:
    """Another source cannot take a name over, nor take its worker out."""
    fleet = Fleet("a")
    assert fleet.registry.add(spec("a", source="etcd", port=9000)) is None
    assert "of etcd has the name of 'a' of file" in fleet.last("ignored")
    fleet.registry.remove("a", source="etcd")
    fleet.registry.remove("unknown", source="etcd")
    assert fleet["a"].spec.source == "file"


def test_who_waited_for_a_place_gets_it_when_it_is_free() -> None:
    """A worker that two sources name stays when the first one forgets it."""
    fleet = Fleet("a")
    again = spec("a-too", source="etcd", host="a")
    fleet.registry.add(again)
    fleet.registry.add(again)
    assert fleet.told("ignored") == ["a-too"], "told once"
    fleet.registry.replace_source("file", [])
    assert fleet.names() == ["a-too"]
    assert fleet.serve(1) == {"a-too": 1}


def test_who_waited_and_withdrew_gets_no_place() -> None:
    """A source that forgets a waiting worker, by name or by its next list, is not asked again."""
    for forget in ("remove", "replace"):
        fleet = Fleet("a")
        fleet.registry.add(spec("a-too", source="etcd", host="a"))
        if forget == "remove":
            fleet.registry.remove("a-too", source="etcd")
        else:
            fleet.registry.replace_source("etcd", [])
        fleet.registry.remove("a")
        assert fleet.names() == []
