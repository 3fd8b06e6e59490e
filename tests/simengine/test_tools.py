"""Tool calls and the profiler's routes of the simulated engine."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.simengine.conftest import post

HELLO = [{"role": "user", "content": "hi"}]
TOOL = {"type": "function", "function": {"name": "f", "parameters": {}}}


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "f"}}])
def test_a_forced_tool_is_called_whole_and_streamed(url: str, choice: Any) -> None:
    """The arguments are a JSON object with the text that would have been the answer; both ways the same."""
    asked = {"model": "sim", "messages": HELLO, "tools": [TOOL], "tool_choice": choice, "max_tokens": 400}
    whole = post(f"{url}/v1/chat/completions", json=asked).json()["choices"][0]
    call = whole["message"]["tool_calls"][0]
    assert (whole["finish_reason"], call["function"]["name"]) == ("tool_calls", "f")
    body = post(f"{url}/v1/chat/completions", json={**asked, "stream": True}).text
    chunks = [json.loads(line[6:]) for line in body.split("\n\n") if line.startswith("data: {")]
    calls = [call for c in chunks for choice_ in c["choices"] for call in choice_["delta"].get("tool_calls", ())]
    assert calls[0]["function"]["name"] == "f"
    streamed = "".join(one["function"]["arguments"] for one in calls)
    assert json.loads(streamed) == json.loads(call["function"]["arguments"])


def test_a_message_uses_the_tool_that_is_named(url: str) -> None:
    """The engine's own Messages route does the same."""
    asked = {"model": "sim", "messages": HELLO, "max_tokens": 400, "tools": [{"name": "f", "input_schema": {}}],
             "tool_choice": {"type": "any"}}  # fmt: skip
    message = post(f"{url}/v1/messages", json=asked).json()
    assert (message["stop_reason"], message["content"][0]["type"]) == ("tool_use", "tool_use")
    assert message["content"][0]["input"]["text"]


def test_a_tool_that_may_be_called_is_not(url: str) -> None:
    """Left the choice, this engine talks."""
    asked = {"model": "sim", "messages": HELLO, "tools": [TOOL], "tool_choice": "auto", "max_tokens": 4}
    assert post(f"{url}/v1/chat/completions", json=asked).json()["choices"][0]["message"]["content"]


def test_the_profiler_starts_once(url: str) -> None:
    """A second start is a conflict until it was stopped; stopping twice is fine."""
    said = [post(f"{url}/{verb}_profile").status_code for verb in ("start", "start", "stop", "stop", "start", "stop")]
    assert said == [200, 409, 200, 200, 200, 200]
