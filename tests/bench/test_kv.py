"""The conversations and workloads that routing by cache is measured with."""

from __future__ import annotations

import json
from pathlib import Path

from bench import kv_bodies, kv_prefix, kv_speed
from infera_cli.tokens.load import load


def test_the_conversation_has_some_four_thousand_tokens(tmp_path: Path) -> None:
    """By the tokenizer that is made on the spot."""
    model = kv_bodies.write_model(tmp_path / "model")
    assert 3800 < len(kv_bodies.tokens_of(load(str(model)), kv_bodies.conversation())) < 4200


def test_an_agent_goes_on_where_it_was() -> None:
    """Each request has all that the last one had, and two messages more; 40 tools throughout."""
    requests = kv_bodies.Agent().requests()
    first, second = (json.loads(next(requests)) for _ in range(2))
    assert second["messages"][: len(first["messages"])] == first["messages"]
    assert (len(first["messages"]), len(second["messages"])) == (kv_bodies.STEPS_SEEN + 1, kv_bodies.STEPS_SEEN + 3)
    assert len(first["tools"]) == 40
    assert first["tools"] == second["tools"]


def test_strangers_never_repeat_themselves() -> None:
    """32 KB each, with another beginning."""
    requests = kv_bodies.strangers()
    texts = [json.loads(next(requests))["messages"][0]["content"] for _ in range(5)]
    assert len({text[:64] for text in texts}) == 5
    assert {len(text) for text in texts} == {32_000}


def test_every_policy_answers_the_whole_workload() -> None:
    """Each request has a first token, and none is left in flight."""
    requests = kv_prefix.workload()[:120]
    for name in ("kv-aware", "least-loaded", "round-robin"):
        run = kv_prefix.Run(name, requests)
        run()
        assert len(run.ttft) == sum(run.served.values()) == 120
        assert all(not target.active for target in run.book.targets())


def test_payloads_are_taken_in_whole() -> None:
    """All blocks of all shapes are in the index."""
    for per_event, in_a_row in ((32, False), (1, True), (1, False)):
        assert len(kv_speed.take_in(kv_speed.payloads(512, per_event, in_a_row=in_a_row))) == 512
