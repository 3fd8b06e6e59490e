"""Datasets from files."""

from __future__ import annotations

import json
import re

import pytest

from infera_cli.errors import ConfigError
from infera_cli.workload.files import conversations, openai_jsonl, sharegpt

LONG = "word " * 8


def talk(*said: str) -> dict[str, object]:
    speakers = ("human", "gpt")
    return {"id": "x", "conversations": [{"from": speakers[n % 2], "value": text} for n, text in enumerate(said)]}


def test_sharegpt_takes_the_first_question_and_the_length_of_its_answer() -> None:
    """Turn 0 is the prompt, turn 1 tells how long the answer is."""
    found = sharegpt(json.dumps([talk(LONG, LONG * 2, "more", "more")]), "f")
    turn = found.item(0).turns[0]
    assert (turn.text, turn.output, len(found.item(0).turns)) == (LONG, 20, 1)
    assert sharegpt(json.dumps([talk(LONG, LONG)]), "f", output=7).item(0).turns[0].output == 7


def test_sharegpt_drops_what_is_too_short_or_too_long() -> None:
    """Prompts under 4 or over 1024 tokens, and pairs over 2048, are left out."""
    rows = [talk("hi", LONG), talk("x" * 5000, LONG), talk(LONG, "y" * 9000), talk(LONG, LONG)]
    assert sharegpt(json.dumps(rows), "f").size == 1


def test_sharegpt_can_be_played_turn_by_turn() -> None:
    """With multi_turn every pair is a turn of one session."""
    item = sharegpt(json.dumps([talk("a b", "c d", "e f", "g h")]), "f", multi_turn=True).item(0)
    assert [(turn.text, turn.recorded) for turn in item.turns] == [("a b", "c d"), ("e f", "g h")]
    assert item.session == "conversation-1"


@pytest.mark.parametrize(("content", "said"), [
    ('[\n{"conversations": []},\n{"conversations" []}\n]', "f:3: not JSON"),
    ('{"conversations": []}\n{"conversations": []}\n', "f:2: not JSON (extra data, column 1); for one JSON"),
    ("[", "f:1: not JSON"),
])
def test_sharegpt_names_the_line_at_fault(content: str, said: str) -> None:
    """A broken file says where, and one with a value a line which dataset it is."""
    with pytest.raises(ConfigError, match=re.escape(said)):
        sharegpt(content, "f")


@pytest.mark.parametrize("row", [
    {"messages": 5}, {"messages": ["hi"]}, {"messages": {}}, {"prompt": 5}, {"body": []}, [], 5,
    {"prompt": "a", "max_tokens": "9"}, {"prompt": "a", "max_tokens": 0}, {"prompt": "a", "output_tokens": True},
    {"prompt": "a", "session_id": 3},
])
def test_openai_rows_are_looked_at_before_anything_is_sent(row: object) -> None:
    """Whatever is no request ends with file and line."""
    with pytest.raises(ConfigError, match=r"^f:2: "):
        openai_jsonl(['{"prompt": "fine"}', json.dumps(row)], "f")


def test_conversations_may_have_parts_of_text() -> None:
    """Messages of several parts are their texts; a system prompt may be one, too."""
    parts = [{"type": "text", "text": "one"}, {"type": "image_url", "image_url": {}}, {"type": "text", "text": "two"}]
    row = {"messages": [{"role": "system", "content": parts}, {"role": "user", "content": parts}]}
    item = conversations([json.dumps(row)], "f").item(0)
    assert (item.system, item.turns[0].text) == ("one\ntwo", "one\ntwo")


def test_a_file_starts_again_after_its_last_row() -> None:
    """Item numbers beyond the end go round."""
    found = openai_jsonl(['{"prompt": "a"}', '{"prompt": "b"}'], "f")
    assert [found.item(number).turns[0].text for number in range(4)] == ["a", "b", "a", "b"]


def test_openai_rows_keep_their_own_members() -> None:
    """Tools and sampling of a row are sent; its model and streaming are the run's to say."""
    row = {"model": "other", "stream": False, "messages": [{"role": "user", "content": "hi"}], "top_p": 0.5,
           "max_tokens": 9}
    item = openai_jsonl([json.dumps(row), json.dumps({"custom_id": "1", "body": row})], "f").item(1)
    assert item.body == {"messages": row["messages"], "top_p": 0.5, "max_tokens": 9}
    assert item.turns[0].output == 9


def test_plain_prompts_fit_every_endpoint() -> None:
    """A row of only a prompt and a length is a turn, not a ready request."""
    item = openai_jsonl(['{"prompt": "hello", "output_tokens": 5}'], "f").item(0)
    assert (item.body, item.turns[0].text, item.turns[0].output) == (None, "hello", 5)


def test_conversations_play_recorded_messages() -> None:
    """Questions become turns, recorded answers give the lengths, an open question at the end counts too."""
    row = {"messages": [
        {"role": "system", "content": "be kind"}, {"role": "user", "content": "one"},
        {"role": "assistant", "content": "x" * 12}, {"role": "user", "content": "two"},
    ]}
    item = conversations([json.dumps(row)], "f").item(0)
    assert item.system == "be kind"
    assert [(turn.text, turn.output) for turn in item.turns] == [("one", 3), ("two", None)]


@pytest.mark.parametrize(("read", "content", "words"), [
    (openai_jsonl, ['{"prompt": "a"}', "", "{oops"], "data.jsonl:3: not a JSON value"),
    (openai_jsonl, ['{"prompt": "a"}', '{"text": "b"}'], 'data.jsonl:2: a row needs "messages"'),
    (openai_jsonl, ["[1]"], "data.jsonl:1:"),
    (openai_jsonl, [], "not one row"),
    (conversations, ['{"messages": 5}'], "data.jsonl:1: a row needs a list"),
    (sharegpt, "{", "not JSON"),
    (sharegpt, "{}", "JSON list"),
    (sharegpt, "[]", "not one row"),
    (sharegpt, '[{"id": 1}]', "entry 1"),
    (sharegpt, '[{"conversations": [3, null]}]', "not one row"),
])
def test_a_bad_file_is_told_with_its_line(read: object, content: object, words: str) -> None:
    """Empty and malformed datasets end in a sentence with file and line."""
    with pytest.raises(ConfigError, match=words.replace("[", r"\[")):
        read(content, "data.jsonl")  # type: ignore[operator]
