"""Prompts that come again are not looked at again, unless something that decides their blocks is different."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from infera_cli.gateway.kv.reader import Later, PromptReader, Repeated
from infera_cli.routing.prompt import Prompt
from infera_cli.tokens.load import load_all

CHAT: dict[str, Any] = {
    "model": "m", "max_tokens": 5, "messages": [
        {"role": "system", "content": "Be brief. " * 20}, {"role": "user", "content": "What is a cache? " * 20},
        {"role": "assistant", "content": "A memory."}, {"role": "user", "content": "And a prefix?"},
    ],
}  # fmt: skip


class World:
    """A reader whose kinds and adapters a test may change."""

    def __init__(self, model: Path) -> None:
        self.kinds = {("vllm", 16)}
        self.adapters: set[str] = set()
        self.reader = PromptReader(load_all([str(model)]), lambda: self.kinds, is_adapter=lambda m: m in self.adapters)

    def read(self, **changes: Any) -> tuple[bool, Prompt]:
        """Whether the prompt was known, and what it is."""
        reading = self.reader.start(b"/v1/chat/completions", msgspec.json.encode({**CHAT, **changes}))
        return isinstance(reading, Repeated), reading.finish()


@pytest.fixture
def world(model: Path) -> World:
    made = World(model)
    made.read()
    return made


@pytest.mark.parametrize("changes", [{}, {"max_tokens": 9, "stream": True, "seed": 4, "user": "x"}])
def test_the_same_prompt_is_known_whatever_else_the_request_says(
    model: Path, world: World, changes: dict[str, Any]
) -> None:
    """Its blocks, length and parts are those of a first time, and it is counted like one."""
    known, prompt = world.read(**changes)
    first, fresh = World(model).read()
    assert (known, first) == (True, False)
    assert (prompt.chains, prompt.lengths, prompt.parts) == (fresh.chains, fresh.lengths, fresh.parts)
    assert prompt.chains[("vllm", 16)]
    assert world.reader.counters.rendered == 2


def test_a_prompt_that_comes_again_is_a_prompt_of_its_own(world: World) -> None:
    """What is noted on one of two requests is not seen on the other."""
    (_, one), (_, two) = world.read(), world.read()
    one.expected = 48
    assert two.expected == -1


@pytest.mark.parametrize(
    "changes",
    [{"model": "other"}, {"cache_salt": "s"}, {"tools": [{"type": "function", "function": {"name": "f"}}]},
     {"messages": CHAT["messages"][:3]}, {"prompt_cache_retention": "24h"}, {"reasoning_effort": "low"},
     {"chat_template_kwargs": {"a": 1}}, {"documents": []}],
)  # fmt: skip
def test_whatever_decides_the_blocks_is_looked_at(world: World, changes: dict[str, Any]) -> None:
    """Another model, salt, tool, message, hint or template variable is another prompt."""
    assert not world.read(**changes)[0]


def test_the_fleet_decides_too(world: World) -> None:
    """New page sizes, and a model that turns out to be an adapter, make it another prompt."""
    plain = world.read()[1].chains[("vllm", 16)]
    world.kinds = {("vllm", 16), ("vllm", 32)}
    known, prompt = world.read()
    assert (known, set(prompt.chains)) == (False, world.kinds)
    world.adapters.add("m")
    known, prompt = world.read()
    assert not known
    assert prompt.chains[("vllm", 16)] != plain


def test_hints_are_counted_again(world: World) -> None:
    """Each request with a hint counts, known or not."""
    for _ in range(3):
        assert world.read(prompt_cache_retention="24h")[1].retention == "long"
    assert world.reader.counters.retention == {"long": 3}


def test_large_bodies_are_looked_at_later(world: World) -> None:
    """With the kinds of now, and the same prompt in the end; before that nothing is known of them."""
    text = "What is a prefix? " * 5000
    raw = msgspec.json.encode({**CHAT, "messages": [{"role": "user", "content": text}], "prompt_cache_key": "k"})
    later = world.reader.look(b"/v1/chat/completions", raw)
    assert isinstance(later, Later)
    assert later.bare().retention is None
    world.kinds = set()
    prompt = later.finish()
    assert (set(prompt.chains), prompt.retention, later.bare().retention) == ({("vllm", 16)}, "short", "short")
    world.kinds = {("vllm", 16)}
    assert prompt.chains == world.reader.start(b"/v1/chat/completions", raw).finish().chains


def test_a_large_body_that_trips_us_is_counted(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is raised in a thread, the request goes on without its tokens."""
    monkeypatch.setattr(world.reader, "_is_adapter", {}.__getitem__)
    raw = msgspec.json.encode({**CHAT, "pad": "x" * 70_000})
    assert world.reader.look(b"/v1/chat/completions", raw).finish().chains == {}
    assert world.reader.counters.fallbacks == {"body": 1}
