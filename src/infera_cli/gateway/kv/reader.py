"""From a request's body to what `kv-aware` weighs; never an error, at worst nothing is known (S74, R097)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import msgspec

from infera_cli.errors import RequestError
from infera_cli.gateway.kv.counters import PromptCounters
from infera_cli.protocol.messages.request import to_chat as messages_to_chat
from infera_cli.protocol.prompt_body import PromptBody, read
from infera_cli.protocol.responses.request import to_chat as responses_to_chat
from infera_cli.routing.prefix import first_parent
from infera_cli.routing.prompt import Prompt
from infera_cli.tokens.chains import FIRST_PARENT
from infera_cli.tokens.prompts import Chat, Job, Prompts, Told
from infera_cli.tokens.template import Unrenderable

_MESSAGES = b"/v1/messages"
_OF_OTHER_APIS = (_MESSAGES, b"/v1/responses")
Kinds = Callable[[], set[tuple[str, int]]]


def _as_engines_read_it(path: bytes, raw: bytes | bytearray, body: PromptBody) -> PromptBody:
    """A request of another API as the chat that is made of it; one that cannot be made is for the engine to refuse."""
    try:
        made = messages_to_chat(raw) if path.startswith(_MESSAGES) else responses_to_chat(raw)
        chat = read(made.body)
    except RequestError:
        return body
    return msgspec.structs.replace(chat, retention=body.retention, media=body.media) if chat is not None else body


class TokenizersOf(Protocol):
    """The tokenizers that are configured."""

    def of(self, model: str | None) -> Prompts | None:
        """The one for `model`."""


class Reading:
    """A prompt on its way to blocks. `cost` is in characters that must be looked at anew; 0: `finish` is quick."""

    def __init__(
        self, counters: PromptCounters, body: PromptBody | None = None, prompts: Prompts | None = None,
        jobs: Mapping[str, Job] | None = None, kinds: set[tuple[str, int]] | None = None, first: int = FIRST_PARENT,
    ) -> None:  # fmt: skip
        self._counters = counters
        self.body = body
        self._prompts = prompts
        self._jobs = jobs or {}
        self._kinds = kinds or set()
        self._first = first
        self.cost = max((job.cost for job in self._jobs.values()), default=0)

    def bare(self) -> Prompt:
        """What is known without any tokens."""
        body = self.body
        return Prompt(images=body.media, retention=body.retention) if body is not None else Prompt()

    def finish(self) -> Prompt:
        """Work it out; may run in a thread. A tokenizer's own failures make it `bare`."""
        prompts = self._prompts
        if prompts is None:
            return self.bare()
        chains: dict[tuple[str, int], Sequence[int]] = {}
        lengths: dict[str, int] = {}
        try:
            for style, job in self._jobs.items():
                pieces = job.run()
                lengths[style] = sum(len(packed) for _, packed in pieces) // 4
                for kind in self._kinds:
                    if kind[0] == style:
                        chains[kind] = prompts.chains.of(pieces, kind[1], self._first)
        except Unrenderable as no:
            self._counters.fallback(no.cause, str(no))
            return self.bare()
        except Exception as error:  # noqa: BLE001 - a tokenizer raises what it likes; the request goes on without
            self._counters.fallback("tokenizer", f"{type(error).__name__}: {error}")
            return self.bare()
        self._counters.rendered += 1
        self._counters.tokens += max(lengths.values(), default=0)
        if chains and not any(chains.values()):
            self._counters.short += 1
        assert self.body is not None  # noqa: S101 - jobs are made of a body
        return Prompt(chains=chains, lengths=lengths, retention=self.body.retention)


class PromptReader:
    """Reads bodies. `kinds` are the (style, unit) pairs to hash for, `is_adapter` tells LoRA names from models."""

    def __init__(
        self, tokenizers: TokenizersOf, kinds: Kinds, *, is_adapter: Callable[[str], bool] = lambda _name: False,
        counters: PromptCounters | None = None,
    ) -> None:  # fmt: skip
        self._tokenizers = tokenizers
        self._kinds = kinds
        self._is_adapter = is_adapter
        self.counters = counters if counters is not None else PromptCounters()

    def start(self, path: bytes, raw: bytes | bytearray) -> Reading:
        """Look at a body; nothing expensive yet."""
        counters = self.counters
        body = read(raw)
        if body is None:
            counters.fallback("body")
            return Reading(counters)
        if body.retention is not None:
            counters.retention[body.retention] += 1
        if path.startswith(_OF_OTHER_APIS):
            body = _as_engines_read_it(path, raw, body)
        if body.media is not None:
            counters.multimodal += 1
            return Reading(counters, body)
        prompts = self._tokenizers.of(body.model)
        if prompts is None:
            counters.fallback("no_tokenizer", body.model or "")
            return Reading(counters, body)
        kinds = self._kinds()
        try:
            jobs = {style: self._job(prompts, style, path, body) for style in {style for style, _ in kinds}}
        except Unrenderable as no:
            counters.fallback(no.cause, str(no))
            return Reading(counters, body)
        adapter = body.model if body.model is not None and self._is_adapter(body.model) else None
        return Reading(counters, body, prompts, jobs, kinds, first_parent(adapter, body.salt))

    @staticmethod
    def _job(prompts: Prompts, style: str, path: bytes, body: PromptBody) -> Job:
        if body.messages and body.prompt is None:
            messages = [Told(role, raw) for role, raw in body.messages]
            return prompts.chat(style, Chat(messages, body.tools, body.rest))
        if body.prompt is not None:
            return prompts.completion(style, body.prompt)
        raise Unrenderable("request", "it has neither messages nor a prompt")
