"""A whole chat completion as a response."""

from __future__ import annotations

import msgspec

from infera_cli.protocol.chat import BROKEN_OFF, NO_USAGE, read_completion
from infera_cli.protocol.responses.items import (
    Item,
    call_item,
    item_id,
    message_item,
    reasoning_item,
    response,
    status_of,
)
from infera_cli.protocol.responses.request import ResponseAsk


def to_response(body: bytes, ask: ResponseAsk, name: str) -> bytes:
    """The response called `name`. Raises ValueError when `body` is no chat completion or was broken off."""
    answer = read_completion(body)
    choice = answer.choices[0]
    if choice.finish_reason in BROKEN_OFF:
        raise ValueError(f"the engine ended its answer with {choice.finish_reason}")
    said = choice.message
    status = status_of(choice.finish_reason)
    output: list[Item] = []
    thought = said.reasoning_content or said.reasoning
    if thought:
        output.append(reasoning_item(item_id("rs_", name, 0), thought, "completed"))
    text = said.content or said.refusal
    if text:
        output.append(message_item(item_id("msg_", name, len(output)), text, status))
    for call in said.tool_calls or ():
        if call.function is not None and call.function.name:
            place = len(output)
            given = call.id or item_id("call_", name, place)
            arguments = call.function.arguments or ""
            output.append(call_item(item_id("fc_", name, place), given, call.function.name, arguments, "completed"))
    if not output:
        output.append(message_item(item_id("msg_", name, 0), "", status))
    made = response(name, ask, answer.created, status, output=output, usage=answer.usage or NO_USAGE)
    return msgspec.json.encode(made)
