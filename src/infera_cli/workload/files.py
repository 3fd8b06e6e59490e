"""Datasets people have: ShareGPT, conversations, any OpenAI JSONL (bench-and-cli §A13).

Lengths are judged in tokens by `count`; without a tokenizer a token is taken as four characters, which is
near enough to filter by and is never used as a measurement. A bad line is named by its number.
"""

from __future__ import annotations

import json
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
            raise fault(origin, number, f"not a JSON value ({error})") from None
        except RecursionError:
            raise fault(origin, number, "its JSON is nested too deeply") from None


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
        raise _not_json(content, origin, error) from None
    if not isinstance(rows, list):
        raise ConfigError(f"{origin}: a ShareGPT file is a JSON list of conversations")
    measure = count or estimate
    found = (
        _conversation(row, origin, number, output, measure, multi_turn=multi_turn)
        for number, row in enumerate(rows, 1)
    )
    return need([item for item in found if item is not None], origin, "two turns of fitting length")


def _not_json(content: str, origin: str, error: msgspec.DecodeError) -> ConfigError:
    """The error with the line it is in, which only the slower reader of the two knows."""
    try:
        json.loads(content)
    except json.JSONDecodeError as found:
        hint = "; for one JSON value a line use --dataset-name conversations" if found.msg == "Extra data" else ""
        return fault(origin, found.lineno, f"not JSON ({found.msg.lower()}, column {found.colno}){hint}")
    return ConfigError(f"{origin}: not JSON ({error})")


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
        value = _said(message)
        if value is None:
            continue
        if speaker in HUMAN:
            question = value
        elif speaker in MACHINE and question is not None:
            pairs.append((question, value))
            question = None
    return pairs


def _said(message: dict[str, Any]) -> str | None:
    """The text of a message, or of its parts of text; None where it has none."""
    value = message.get("value") or message.get("content")
    if isinstance(value, list):
        texts = [part.get("text") for part in value if isinstance(part, dict)]
        value = "\n".join(text for text in texts if isinstance(text, str)) or None
    return value if isinstance(value, str) else None


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
        if not isinstance(body, dict) or not (_are_messages(body.get("messages")) or _is_prompt(body.get("prompt"))):
            raise fault(origin, number, 'a row needs "messages" (a list of objects) or "prompt" (text or a list)')
        items.append(_request(dict(body), output, origin, number))
    return need(items, origin)


def _are_messages(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(message, dict) for message in value)


def _is_prompt(value: Any) -> bool:
    return isinstance(value, (str, list)) and bool(value)


def _request(body: dict[str, Any], output: int | None, origin: str, number: int) -> Item:
    lengths = [
        (name, body.pop(name, None) if name.startswith("output") else body.get(name))
        for name in ("output_tokens", "output_length", "max_completion_tokens", "max_tokens")
    ]
    for name, found in lengths:
        if found is not None and (not isinstance(found, int) or isinstance(found, bool) or found < 1):
            raise fault(origin, number, f"{name} is {found!r}, not a whole number of at least 1")
    if not isinstance(body.get("session_id", ""), str):
        raise fault(origin, number, "session_id is not text")
    length = output or next((found for _name, found in lengths if found is not None), None)
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
        system = next((_said(message) for message in messages if message.get("role") == "system"), None) or ""
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
        pairs.append((_said(last) or "", ""))
    return pairs
