"""Datasets people have: ShareGPT, conversations, any OpenAI JSONL (bench-and-cli §A13).

Lengths are judged in tokens by `count`; without a tokenizer a token is taken as four characters, which is
near enough to filter by and is never used as a measurement. A bad line is named by its number.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from infera_cli.errors import ConfigError
from infera_cli.workload.items import Item, Listed, Turn
from infera_cli.workload.text import Count

HUMAN = frozenset({"human", "user"})
MACHINE = frozenset({"gpt", "assistant", "chatgpt", "bard", "model"})


def estimate(text: str) -> int:
    """Tokens of `text`, roughly: four characters each."""
    return (len(text) + 3) // 4


def numbered(lines: Iterable[str], origin: str) -> Iterator[tuple[int, Any]]:
    """(line number from 1, JSON value) of every line that is not blank. Raises ConfigError with the line."""
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            yield number, msgspec.json.decode(line)
        except msgspec.DecodeError as error:
            raise ConfigError(f"{origin}:{number}: not a JSON value ({error})") from None


def fault(origin: str, number: int, what: str) -> ConfigError:
    """The error for one bad row."""
    return ConfigError(f"{origin}:{number}: {what}")


def need(items: list[Item], origin: str, what: str = "a usable request") -> Listed:
    """The dataset of `items`; an empty one is refused."""
    if not items:
        raise ConfigError(f"{origin}: the dataset holds not one row with {what}")
    return Listed(items)


# ── ShareGPT ─────────────────────────────────────────────────────────────────────────────────────────
def sharegpt(
    content: str, origin: str, *, output: int | None = None, multi_turn: bool = False,
    count: Count | None = None,
) -> Listed:
    """ShareGPT: a JSON list of `{"id", "conversations": [{"from", "value"}]}`.

    Single-turn takes the first question, as common: prompts under 4 or over 1024 tokens, or over 2048
    together with the answer, are left out. The output length is `output` or that of the recorded answer.
    """
    try:
        rows = msgspec.json.decode(content)
    except msgspec.DecodeError as error:
        raise ConfigError(f"{origin}: not JSON ({error})") from None
    if not isinstance(rows, list):
        raise ConfigError(f"{origin}: a ShareGPT file is a JSON list of conversations")
    measure = count or estimate
    found = (
        _conversation(row, origin, number, output, measure, multi_turn=multi_turn)
        for number, row in enumerate(rows, 1)
    )
    return need([item for item in found if item is not None], origin, "two turns of fitting length")


def _conversation(
    row: Any, origin: str, number: int, output: int | None, measure: Count, *, multi_turn: bool
) -> Item | None:
    said = row.get("conversations") if isinstance(row, dict) else None
    if not isinstance(said, list):
        raise ConfigError(f'{origin}: entry {number} has no "conversations" list')
    pairs = _pairs(said)
    if not multi_turn:
        pairs = [(question, answer) for question, answer in pairs[:1] if _fits(question, answer, measure)]
    turns = tuple(
        Turn(question, output if output is not None else max(1, measure(answer)), recorded=answer)
        for question, answer in pairs
    )
    return Item(turns=turns, session=f"conversation-{number}" if multi_turn else None) if turns else None


def _pairs(said: list[Any]) -> list[tuple[str, str]]:
    """(question, answer) pairs, in order; what comes before the first question is dropped."""
    pairs: list[tuple[str, str]] = []
    question: str | None = None
    for message in (message for message in said if isinstance(message, dict)):
        speaker = message.get("from") or message.get("role")
        value = message.get("value") or message.get("content")
        if not isinstance(value, str):
            continue
        if speaker in HUMAN:
            question = value
        elif speaker in MACHINE and question is not None:
            pairs.append((question, value))
            question = None
    return pairs


def _fits(question: str, answer: str, measure: Count) -> bool:
    asked, answered = measure(question), measure(answer)
    return 4 <= asked <= 1024 and answered >= 4 and asked + answered <= 2048


# ── JSONL of OpenAI requests, and plain prompts ──────────────────────────────────────────────────────
def openai_jsonl(lines: Iterable[str], origin: str, *, output: int | None = None) -> Listed:
    """One request a line: `{"messages": …}` or `{"prompt": …}`, or either under `body` (batch files).

    Members besides the prompt (`max_tokens`, `tools`, …) are kept; model and streaming are the run's.
    vLLM's custom form (`prompt`, `output_tokens`) is read too.
    """
    items = []
    for number, row in numbered(lines, origin):
        body = row.get("body", row) if isinstance(row, dict) else None
        if not isinstance(body, dict) or not (body.get("messages") or body.get("prompt")):
            raise fault(origin, number, 'a row needs "messages" or "prompt"')
        items.append(_request(dict(body), output))
    return need(items, origin)


def _request(body: dict[str, Any], output: int | None) -> Item:
    length = output or body.pop("output_tokens", None) or body.pop("output_length", None)
    length = length or body.get("max_completion_tokens") or body.get("max_tokens")
    if set(body) <= {"prompt", "session_id"} and isinstance(body["prompt"], str):
        return Item(turns=(Turn(body["prompt"], length),), session=body.get("session_id"))
    for name in ("model", "stream", "stream_options"):
        body.pop(name, None)
    return Item(turns=(Turn("", length),), body=body, session=body.get("session_id"))


def conversations(
    lines: Iterable[str], origin: str, *, output: int | None = None, count: Count | None = None
) -> Listed:
    """One conversation a line: `{"messages": […]}` played turn by turn; recorded answers give lengths."""
    measure = count or estimate
    items = []
    for number, row in numbered(lines, origin):
        messages = row.get("messages") or row.get("conversations") if isinstance(row, dict) else None
        if not isinstance(messages, list) or not all(isinstance(message, dict) for message in messages):
            raise fault(origin, number, 'a row needs a list "messages"')
        system = next((m["content"] for m in messages if m.get("role") == "system"), "")
        turns = tuple(
            Turn(question, output or (max(1, measure(answer)) if answer else None), recorded=answer or None)
            for question, answer in _questions(messages)
        )
        if turns:
            items.append(Item(turns=turns, system=system, session=f"conversation-{number}"))
    return need(items, origin, "a question in it")


def _questions(messages: list[Any]) -> list[tuple[str, str]]:
    """Like `_pairs`, and a last question that was never answered."""
    pairs = _pairs(messages)
    last = messages[-1] if messages else {}
    if (last.get("role") or last.get("from")) in HUMAN:
        pairs.append((str(last.get("content") or last.get("value") or ""), ""))
    return pairs
