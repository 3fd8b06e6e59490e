"""Both official clients through a router that translates, against real vLLM; profiles and warm prefixes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anthropic
import httpx
import openai
import pytest

from tests.e2e.conftest import Fleet
from tests.e2e.processes import Engine, Router

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

HELLO: list[Any] = [{"role": "user", "content": "Say something about rivers."}]
GREEDY: Any = {"temperature": 0}
SCHEMA: dict[str, Any] = {
    "type": "object", "properties": {"unit": {"type": "string", "enum": ["c", "f"]}}, "required": ["unit"],
    "additionalProperties": False,
}  # fmt: skip
TOOL: Any = {"name": "measure", "description": "Measure a river.", "input_schema": SCHEMA, "strict": True}
INFERA = str(Path(sys.executable).with_name("infera"))


@pytest.fixture(scope="module")
def router(whole_fleet: Fleet, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Router]:
    """A second router over the same engines, which always translates."""
    whole_fleet.revive()
    flags = ("--anthropic", "translate", "--model-alias", "claude-*=tiny", "--enable-profiling")
    made = Router(list(whole_fleet.engines.values()), tmp_path_factory.mktemp("translating"), *flags)
    made.start()
    try:
        made.wait_ready(len(whole_fleet.engines))
        yield made
    finally:
        made.stop()


@pytest.fixture
def messages(router: Router) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=router.url, api_key="unused", max_retries=0) as client:
        yield client


@pytest.fixture
def native(whole_fleet: Fleet) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=whole_fleet.engines["left"].url, api_key="unused", max_retries=0) as client:
        yield client


def engine_of(fleet: Fleet) -> Engine:
    return fleet.engines["left"]


def test_a_translated_message_is_what_the_engine_itself_says(
    messages: anthropic.Anthropic, native: anthropic.Anthropic
) -> None:
    """Text, reason and tokens are those of vLLM's own Messages route."""
    routed = messages.messages.create(model="claude-x", max_tokens=12, messages=HELLO, extra_body=GREEDY)
    plain = native.messages.create(model="tiny", max_tokens=12, messages=HELLO, extra_body=GREEDY)
    assert [block.to_dict() for block in routed.content] == [block.to_dict() for block in plain.content]
    assert (routed.stop_reason, routed.usage.output_tokens) == (plain.stop_reason, plain.usage.output_tokens)
    assert routed.model == "claude-x"


def test_a_translated_stream_adds_up_and_begins_with_its_usage(messages: anthropic.Anthropic) -> None:
    """The client's accumulation is the whole message, and message_start already tells the input."""
    asked: Any = {"model": "tiny", "max_tokens": 12, "messages": HELLO, "extra_body": GREEDY}
    whole = messages.messages.create(**asked)
    with messages.messages.stream(**asked) as stream:
        events = list(stream)
        final = stream.get_final_message()
    start: Any = events[0]
    assert start.type == "message_start"
    assert start.message.usage.input_tokens > 0
    assert final.content[0].text == whole.content[0].text  # type: ignore[union-attr]
    assert final.usage.output_tokens == whole.usage.output_tokens


@pytest.mark.parametrize("streamed", [False, True])
def test_a_tool_is_called_through_the_translation(messages: anthropic.Anthropic, streamed: bool) -> None:
    """A tool that must be used is used, and its input follows the schema."""
    asked: Any = {
        "model": "tiny", "max_tokens": 600, "messages": HELLO, "tools": [TOOL],
        "tool_choice": {"type": "tool", "name": "measure"},
        "extra_body": {"temperature": 1.5, "seed": 1},  # greedy, random weights would write blanks for ever
    }  # fmt: skip
    if streamed:
        with messages.messages.stream(**asked) as stream:
            message = stream.get_final_message()
    else:
        message = messages.messages.create(**asked)
    use: Any = message.content[0]
    assert (message.stop_reason, use.type, use.name) == ("tool_use", "tool_use", "measure")
    assert use.input["unit"] in {"c", "f"}
    result: Any = {"type": "tool_result", "tool_use_id": use.id, "content": "12"}
    turns: Any = [*HELLO, {"role": "assistant", "content": message.content}, {"role": "user", "content": [result]}]
    answer = messages.messages.create(model="tiny", max_tokens=8, messages=turns, tools=[TOOL], extra_body=GREEDY)
    assert answer.usage.output_tokens > 0


def test_tokens_are_counted_as_the_engine_counts(messages: anthropic.Anthropic, native: anthropic.Anthropic) -> None:
    """The same number as vLLM's own route."""
    routed = messages.messages.count_tokens(model="tiny", messages=HELLO, system="Be brief.")
    plain = native.messages.count_tokens(model="tiny", messages=HELLO, system="Be brief.")
    assert routed.input_tokens == plain.input_tokens > 0


def test_a_context_that_is_too_long_is_said_in_agents_words(messages: anthropic.Anthropic) -> None:
    """vLLM's own sentence becomes the one that coding agents parse."""
    long: Any = [{"role": "user", "content": "river " * 4000}]
    with pytest.raises(anthropic.BadRequestError, match=r"prompt is too long: \d+ tokens > 2048 maximum"):
        messages.messages.create(model="tiny", max_tokens=8, messages=long)
    with pytest.raises(anthropic.BadRequestError, match=r"max_tokens: 2100 > 2048"):
        messages.messages.create(model="tiny", max_tokens=2100, messages=HELLO)


def test_responses_reach_the_engines_own_route(router: Router) -> None:
    """vLLM offers the Responses API, so it is relayed."""
    client = openai.OpenAI(base_url=f"{router.url}/v1", api_key="unused", max_retries=0)
    response = client.responses.create(model="tiny", input="Rivers", max_output_tokens=12, temperature=0)
    assert response.object == "response"
    assert response.usage is not None
    assert response.usage.output_tokens > 0


def test_a_profile_leaves_traces_on_disk(router: Router, whole_fleet: Fleet) -> None:
    """`infera profile` starts and stops the engine's profiler, and the traces lie where it was told."""
    engine = engine_of(whole_fleet)
    before = set(engine.traces.rglob("*.json.gz"))
    _infera("profile", "start", "--worker", engine.name, "--prefix", "river", router=router)
    ask = {"model": "tiny", "prompt": "Rivers", "max_tokens": 4}
    httpx.post(f"{engine.url}/v1/completions", json=ask, timeout=60).raise_for_status()
    said = json.loads(_infera("profile", "stop", "--worker", engine.name, "--json", router=router))
    assert said["results"][0]["ok"] is True
    assert set(engine.traces.rglob("*.json.gz")) - before


def test_a_warm_prefix_is_found_in_the_cache(router: Router, whole_fleet: Fleet) -> None:
    """After `infera prewarm`, vLLM's own counters say that the next request had its prefix in the cache."""
    prompt = "The river that is warm flows slowly to the sea, " * 8
    said = json.loads(_infera("prewarm", prompt, "--workers", "2", "--json", router=router))
    assert {row["worker"] for row in said["prefixes"]} == set(whole_fleet.engines)
    engine = engine_of(whole_fleet)
    before = engine.counter("vllm:prefix_cache_hits_total")
    ask = {"model": "tiny", "prompt": prompt + "and then", "max_tokens": 1}
    httpx.post(f"{engine.url}/v1/completions", json=ask, timeout=60).raise_for_status()
    assert engine.counter("vllm:prefix_cache_hits_total") - before >= 32


def _infera(*argv: str, router: Router) -> str:
    """What the command prints."""
    command = [INFERA, *argv, "--server", router.url]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=300).stdout
