"""Conversations of text as a simulation takes them: tokens, hashes and answers as the simulated engine makes them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import count
from typing import Any

from infera_cli.blocks import chain
from infera_cli.routing.reader import Message, Reader
from infera_cli.simulator import text
from infera_cli.workload.items import Dataset, Item, Turn
from infera_cli.workload.lengths import Part, Talk
from infera_cli.workload.traces import Trace

OUTPUT = 128    # tokens of an answer of which nobody says how long it is


def talks(dataset: Dataset, *, block: int) -> Iterator[Talk]:
    """Every conversation of `dataset`, with the answers fed back. Four bytes of text are a token."""
    reader = Reader()
    for index in count():
        item = dataset.item(index)
        at = dataset.at(index) if isinstance(dataset, Trace) else 0.0
        messages = _first(item)
        turns = [_part(messages, turn, item, reader, (index, number), block) for number, turn in enumerate(item.turns)]
        yield Talk(tuple(turns), item.session, at)


def _first(item: Item) -> list[dict[str, Any]]:
    return [{"role": "system", "content": item.system}] if item.system else []


def _part(
    messages: list[dict[str, Any]], turn: Turn, item: Item, reader: Reader, place: tuple[int, int], block: int
) -> Part:
    """The next request of a conversation; `messages` grow by what is said in it."""
    body = item.body or {}
    if body:
        messages[:] = body.get("messages") or [{"role": "user", "content": str(body.get("prompt", ""))}]
    else:
        messages.append({"role": "user", "content": turn.text})
    output = turn.output or body.get("max_completion_tokens") or body.get("max_tokens") or OUTPUT
    ids = text.encode(text.render_chat(messages))
    work = reader.work(None, [_said(message) for message in messages])
    answer = text.answer(place[0] * 4096 + place[1], output)
    made = Part(
        len(ids), output, chain([*ids, *text.encode(answer)], block), work.chain, work.sizes, work.pinned, turn.think,
        turn.after,
    )
    messages.append({"role": "assistant", "content": answer})
    return made


def _said(message: Mapping[str, Any]) -> Message:
    return message.get("role") == "system", text.flatten(message.get("content")).encode("utf-8", "surrogatepass"), b""
