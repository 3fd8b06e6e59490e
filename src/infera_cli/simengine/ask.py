"""What a request asks of the engine: bodies of three routes in, one value out (engines §1.5, §1.9)."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
import xxhash

from infera_cli.simengine.options import Options
from infera_cli.simulator import text


class Refused(Exception):
    """The request gets an error; `param` and `kind` as in engines §1.10."""

    def __init__(
        self, status: int, message: str, *, kind: str | None = None, param: str | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.kind = kind
        self.param = param


@dataclass(slots=True, kw_only=True)
class Choice:
    """One answer to make: `ids` is the prompt, `tokens` the length of the answer with its end token, if any.

    `stops` says that it ends by itself: with the end token, or at the stop string `stopped_by`.
    """

    index: int
    ids: list[int]
    answer: str
    tokens: int
    stops: bool
    stopped_by: str | None = None

    @property
    def reason(self) -> str:
        """Its finish_reason."""
        return "stop" if self.stops else "length"

    def answer_ids(self) -> list[int]:
        """The answer as ids, without the end token."""
        return text.encode(self.answer)


@dataclass(slots=True, kw_only=True)
class Ask:
    """A checked request."""

    body: Mapping[str, Any]
    stream: bool
    usage: bool
    usage_in_chunks: bool
    choices: list[Choice]
    salt: str


def read_json(raw: bytes) -> dict[str, Any]:
    """The body as an object. Raises Refused."""
    try:
        body = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as wrong:
        raise Refused(400, f"JSON decode error: {wrong}", kind="Bad Request") from None
    if not isinstance(body, dict):
        raise Refused(400, "Input should be a valid dictionary", kind="Bad Request")
    return body


def check_model(body: Mapping[str, Any], options: Options) -> None:
    """The model asked for is one of ours, or none is named. Raises Refused with 404."""
    name = body.get("model")
    if name is not None and name not in options.names:
        aliases = ", ".join(options.names)
        raise Refused(404, f"The model `{name}` does not exist. Valid aliases: {aliases}.", param="model")


def chat_prompt(body: Mapping[str, Any]) -> list[int]:
    """Ids of a chat body (also /tokenize). Raises Refused."""
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise Refused(400, "messages: Field required, a list with at least one message", kind="Bad Request")
    if not all(isinstance(message, dict) and isinstance(message.get("role"), str) for message in messages):
        raise Refused(400, "messages: each needs a role", kind="Bad Request")
    for number, message in enumerate(messages):
        if not _is_content(message.get("content")):
            raise Refused(400, f"messages.{number}.content: Input should be a string or a list of parts",
                          kind="Bad Request")  # fmt: skip
    tools = body.get("tools") or []
    if not isinstance(tools, list):
        raise Refused(400, "tools: Input should be a valid list", kind="Bad Request")
    adds = bool(body.get("add_generation_prompt", True))
    return text.encode(text.render_chat(messages, tools, add_generation_prompt=adds))


def _is_content(content: object) -> bool:
    if isinstance(content, list):
        return all(isinstance(part, (str, dict)) for part in content)
    return content is None or isinstance(content, str)


def messages_prompt(body: Mapping[str, Any]) -> list[int]:
    """Ids of an Anthropic body: its `system` is the first turn. Raises Refused."""
    system = body.get("system")
    turns = body.get("messages")
    if not _is_content(system):
        raise Refused(400, "system: Input should be a string or a list of parts", kind="Bad Request")
    if system and isinstance(turns, list):
        body = {**body, "messages": [{"role": "system", "content": system}, *turns]}
    return chat_prompt(body)


def completion_prompts(body: Mapping[str, Any]) -> list[list[int]]:
    """Ids of each prompt of a completion body: a text, texts, ids, or lists of ids. Raises Refused."""
    prompt = body.get("prompt")
    if isinstance(prompt, str):
        return [text.encode(prompt)]
    if isinstance(prompt, list) and prompt:
        if all(isinstance(item, int) for item in prompt):
            return [prompt]
        if all(isinstance(item, str) for item in prompt):
            return [text.encode(item) for item in prompt]
        if all(isinstance(item, list) and item and all(isinstance(n, int) for n in item) for item in prompt):
            return prompt
    raise Refused(400, "Either prompt or prompt_embeds must be provided.")


def ask(body: Mapping[str, Any], prompts: list[list[int]], options: Options) -> Ask:
    """Everything about a generation: lengths, endings, streaming. Raises Refused."""
    wanted = _whole(body, "max_completion_tokens", _whole(body, "max_tokens", None))
    copies = _whole(body, "n", 1) or 1
    usage = body.get("stream_options") or {}
    if not isinstance(usage, dict):
        raise Refused(400, "stream_options: Input should be an object", kind="Bad Request")
    made = [_choice(prompt, wanted, body, options) for prompt in prompts for _ in range(copies)]
    for index, choice in enumerate(made):
        choice.index = index
    return Ask(body=body, stream=bool(body.get("stream")), usage=bool(usage.get("include_usage")),
               usage_in_chunks=bool(usage.get("continuous_usage_stats")), choices=made,
               salt=str(body.get("cache_salt") or ""))


def _whole(body: Mapping[str, Any], name: str, default: int | None) -> int | None:
    value = body.get(name)
    if value is None:
        return default
    if not isinstance(value, int) or isinstance(value, bool):
        raise Refused(400, f"{name}: Input should be a valid integer", kind="Bad Request")
    if value < 1:
        raise Refused(400, f"{name} must be at least 1, got {value}.", param=name)
    return value


def _choice(ids: list[int], wanted: int | None, body: Mapping[str, Any], options: Options) -> Choice:
    if not ids:
        raise Refused(400, "The prompt is empty.", param="prompt")
    if min(ids) < 0 or max(ids) >= 2**32:
        raise Refused(400, f"Token id {max(ids)} is out of vocabulary", param="prompt")
    room = options.max_model_len - len(ids)
    if room < 1 or (wanted or 1) > room:
        raise Refused(
            400, f"This model's maximum context length is {options.max_model_len} tokens. However, you "
            f"requested {wanted or 1} output tokens and your prompt contains {len(ids)} input tokens, for a "
            f"total of {len(ids) + (wanted or 1)} tokens. Please reduce the length of the input prompt or "
            "the number of requested output tokens.", param="input_tokens")
    packed = struct.pack(f"<{len(ids)}I", *ids)
    seed = xxhash.xxh3_64_intdigest(packed, seed=int(body.get("seed") or 0) & 0xFFFFFFFF)
    natural = max(text.natural_length(seed, options.output_tokens), int(body.get("min_tokens") or 0)) + 1
    limit = min(wanted or room, room)
    stops = natural <= limit and not body.get("ignore_eos")
    length = natural if stops else limit if wanted or not body.get("ignore_eos") else min(limit, natural)
    answer = text.answer(seed, length - 1 if stops else length)
    return _cut(Choice(index=0, ids=ids, answer=answer, tokens=length, stops=stops), body)


def _cut(choice: Choice, body: Mapping[str, Any]) -> Choice:
    """Apply stop strings: the answer ends before the first that occurs, and the string itself is not
    shown."""
    given = body.get("stop") or body.get("stop_sequences") or ()
    found = [(at, stop) for stop in ([given] if isinstance(given, str) else given)
             if isinstance(stop, str) and stop and (at := choice.answer.find(stop)) >= 0]
    if found:
        at, stop = min(found)
        choice.tokens = -(-(at + len(stop)) // 4)
        choice.answer, choice.stops, choice.stopped_by = choice.answer[:at], True, stop
    return choice
