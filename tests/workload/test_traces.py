"""Recorded arrivals."""

from __future__ import annotations

import json
from typing import Any

import pytest

from infera_cli.errors import ConfigError
from infera_cli.workload.traces import azure, burstgpt, mooncake


def rows(*found: dict[str, object]) -> list[str]:
    return [json.dumps(row) for row in found]


def test_mooncake_times_are_milliseconds_from_the_first_row() -> None:
    """Rows come sorted by time, counted from the earliest."""
    trace = mooncake(rows(
        {"timestamp": 3000, "input_length": 5, "output_length": 2, "hash_ids": []},
        {"timestamp": 1000, "input_length": 6, "output_length": 3, "hash_ids": []},
    ), "f", 1)
    assert [(trace.at(n), trace.item(n).turns[0].output) for n in range(2)] == [(0.0, 3), (2.0, 2)]
    assert trace.span == 2.0


def test_mooncake_equal_blocks_are_equal_text() -> None:
    """Two rows whose first hash id is the same share its 512 tokens and no more; lengths are as recorded."""
    trace = mooncake(rows(
        {"timestamp": 0, "input_length": 1200, "output_length": 1, "hash_ids": [1, 2, 3]},
        {"timestamp": 1, "input_length": 1100, "output_length": 1, "hash_ids": [1, 4, 5]},
    ), "f", 1)
    first, second = (trace.item(number).turns[0].text.split() for number in range(2))
    assert (len(first), len(second)) == (1200, 1100)
    assert first[:512] == second[:512]
    assert first[512:520] != second[512:520]


def test_mooncake_partial_last_block_repeats_too() -> None:
    """The last, partial block has an id of its own: the same id gives the same beginning."""
    trace = mooncake(rows(
        {"timestamp": 0, "input_length": 600, "output_length": 1, "hash_ids": [1, 2]},
        {"timestamp": 1, "input_length": 600, "output_length": 1, "hash_ids": [1, 2]},
    ), "f", 1)
    assert trace.item(0).turns[0].text == trace.item(1).turns[0].text


def test_mooncake_sessions_become_conversations() -> None:
    """Rows of one session_id are turns of one item, `delay` is the pause before a turn; aliases are read."""
    trace = mooncake(rows(
        {"timestamp": 0, "input_length": 4, "output_length": 1, "session_id": "s"},
        {"timestamp": 5, "input_tokens": 8, "output_tokens": 2, "session_id": "s", "delay": 1500},
        {"created_time": 9, "input_length": 4, "output_length": 1, "text_input": "as it was"},
    ), "f", 1)
    assert trace.size == 2
    item = trace.item(0)
    assert [(turn.think, turn.output) for turn in item.turns] == [(0.0, 1), (1.5, 2)]
    assert trace.item(1).turns[0].text == "as it was"


def test_turns_of_a_session_have_their_own_times() -> None:
    """Each row keeps its time, counted from its conversation's first; a row without one follows the row before it."""
    trace = mooncake(rows(
        {"timestamp": 2000, "input_length": 4, "output_length": 1, "session_id": "s"},
        {"timestamp": 0, "input_length": 4, "output_length": 1},
        {"timestamp": 5000, "input_length": 4, "output_length": 2, "session_id": "s"},
        {"input_length": 4, "output_length": 3, "session_id": "s", "delay": 100},
    ), "f", 1)
    assert [trace.at(0), trace.at(1)] == [0.0, 2.0]
    assert [(turn.after, turn.think, turn.output) for turn in trace.item(1).turns] == [
        (0.0, 0.0, 1), (3.0, 0.0, 2), (3.0, 0.1, 3)]


def test_azure_times_are_dates() -> None:
    """Azure rows have dates with seven decimals, and two lengths."""
    trace = azure([
        "TIMESTAMP,ContextTokens,GeneratedTokens",
        "2023-11-16 18:15:46.6805900,374,44", "2023-11-16 18:15:47.1805900,20,5",
    ], "f", 1)
    assert trace.at(1) == pytest.approx(0.5)
    assert len(trace.item(0).turns[0].text.split()) == 374
    assert trace.item(0).turns[0].output == 44


def test_burstgpt_leaves_out_failures() -> None:
    """BurstGPT rows without an answer are requests that failed when they were recorded."""
    trace = burstgpt([
        "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type",
        "5,ChatGPT,472,18,490,Conversation log", "9,GPT-4,10,0,10,API log", "45,ChatGPT,20,7,27,API log",
    ], "f", 1)
    assert [trace.at(number) for number in range(2)] == [0.0, 40.0]
    assert trace.size == 2


@pytest.mark.parametrize(("read", "lines", "words"), [
    (mooncake, ['{"timestamp": 1, "input_length": "x", "output_length": 1}'], "f:1: input_length is 'x'"),
    (mooncake, ['{"timestamp": 1}'], "f:1: input_length"),
    (mooncake, ['{"timestamp": "now", "input_length": 1, "output_length": 1}'], "f:1: timestamp"),
    (mooncake, ['{"input_length": 1, "output_length": 1, "hash_ids": ["a"]}'], "f:1: hash_ids"),
    (mooncake, ['{"input_length": -1, "output_length": 1}'], "negative"),
    (mooncake, [f'{{"input_length": {"9" * 23}, "output_length": 1}}'], "f:1: input_length is more than 10,000,000"),
    (mooncake, [f'{{"timestamp": {"9" * 400}, "input_length": 1, "output_length": 1}}'], "f:1: timestamp is '999"),
    (mooncake, ['{"input_length": 1, "output_length": 1, "delay": "a while"}'], "f:1: delay is 'a while'"),
    (mooncake, ['{"input_length": 1, "output_length": 1, "delay": [1]}'], "f:1: delay is"),
    (mooncake, ['{"input_length": 1, "output_length": 1, "text_input": 5}'], "f:1: text_input is not text"),
    (burstgpt, ["Timestamp,Request tokens,Response tokens", "nan,1,1"], "f:2: Timestamp is 'nan', not a number of sec"),
    (mooncake, ["7"], "f:1: a row is a JSON object"),
    (mooncake, [], "not one request"),
    (azure, ["TIMESTAMP,ContextTokens", "x,1"], "GeneratedTokens"),
    (azure, ["TIMESTAMP,ContextTokens,GeneratedTokens", "soon,1,1"], "f:2: TIMESTAMP"),
    (azure, ["TIMESTAMP,ContextTokens,GeneratedTokens", "2023-11-16 18:15:46,1"], "f:2: the row has fewer"),
    (burstgpt, ["Timestamp,Request tokens,Response tokens", "x,1,1"], "f:2: Timestamp"),
    (mooncake, ['{"input_length": 20.7, "output_length": 1}'], "f:1: input_length is '20.7', not a whole number"),
    (mooncake, ['{"input_length": true, "output_length": 1}'], "f:1: input_length is 'True'"),
    (mooncake, ['{"input_length": 1, "output_length": 1, "block_size": 16}', '{"input_length": 1, "output_length": 1}'],
     "f:2: block_size is 512, and 16 in the rows before"),
    (mooncake, ["[" * 3000 + "]" * 3000], "f:1: its JSON is nested too deeply"),
    (burstgpt, ["Timestamp,Request tokens,Response tokens", f"1,1,1,{'x' * 140_000}"], "f:2: not CSV"),
])
def test_a_bad_row_is_told_with_its_line(read: object, lines: list[str], words: str) -> None:
    """Malformed traces end in a sentence with file and line."""
    with pytest.raises(ConfigError, match=words):
        read(lines, "f", 1)  # type: ignore[operator]


@pytest.mark.parametrize(("read", "lines"), [
    (azure, ["TIMESTAMP,ContextTokens,GeneratedTokens", "2024-05-10 00:00:00,9,0", "2024-05-10 00:00:01,9,4",
                    "2024-05-10 00:00:02,0,4"]),
    (mooncake, ['{"timestamp": 0, "input_length": 9, "output_length": 0}',
                       '{"timestamp": 1000, "input_length": 9, "output_length": 4}',
                       '{"timestamp": 2000, "input_length": 0, "output_length": 4}']),
    (burstgpt, ["Timestamp,Model,Request tokens,Response tokens", "0,m,9,0", "1,m,9,4", "2,m,0,4"]),
])
def test_rows_that_no_engine_takes_are_left_out(read: Any, lines: list[str]) -> None:
    """No token to answer with, or no prompt: such rows are counted, and time begins with the first that is sent."""
    found = read(lines, "t", 1)
    assert (found.size, found.left_out) == (1, 2)
    assert (found.at(0), found.item(0).turns[0].output) == (0.0, 4)
    with pytest.raises(ConfigError, match="t: the trace holds not one request with an answer"):
        read(lines[:-2], "t", 1)
