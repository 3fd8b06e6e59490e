"""From a request's body to what `kv-aware` weighs; never an error, at worst nothing is known (S74, R097)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import date
from functools import partial
from typing import Protocol

import msgspec

from infera_cli.errors import RequestError
from infera_cli.gateway.kv.counters import PromptCounters
from infera_cli.gateway.kv.sessions import parts_of
from infera_cli.protocol.messages.request import to_chat as messages_to_chat
from infera_cli.protocol.prompt_body import Members, PromptBody, digest, members_of, read, read_members
from infera_cli.protocol.responses.request import to_chat as responses_to_chat
from infera_cli.routing.prefix import first_parent
from infera_cli.routing.prompt import Prompt
from infera_cli.tokens.chains import FIRST_PARENT
from infera_cli.tokens.memo import Memo
from infera_cli.tokens.prompts import Chat, Job, Prompts, Told
from infera_cli.tokens.template import Unrenderable

_MESSAGES = b"/v1/messages"
_OF_OTHER_APIS = (_MESSAGES, b"/v1/responses")
Kinds = Callable[[], set[tuple[str, int]]]
KNOWN_BYTES = 32 << 20
"""For prompts that may come again as they are: retries, samples, parallel calls of an agent."""
_HASH_BYTES = 48

_Key = tuple[int, frozenset[tuple[str, int]], bool, date | None]


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
        self, counters: PromptCounters, body: PromptBody | None = None, work: _Work | None = None,
        keep: Callable[[Prompt], None] | None = None,
    ) -> None:  # fmt: skip
        self._counters = counters
        self._body = body
        self._work = work
        self._keep = keep
        self.cost = max((job.cost for job in work.jobs.values()), default=0) if work is not None else 0

    def bare(self) -> Prompt:
        """What is known without any tokens."""
        body = self._body
        return Prompt(images=body.media, retention=body.retention) if body is not None else Prompt()

    def finish(self) -> Prompt:
        """Work it out; may run in a thread. A tokenizer's own failures make it `bare`."""
        work, body = self._work, self._body
        if work is None or body is None:
            return self.bare()
        chains: dict[tuple[str, int], Sequence[int]] = {}
        lengths: dict[str, int] = {}
        try:
            for style, job in work.jobs.items():
                pieces = job.run()
                lengths[style] = sum(len(packed) for _, packed in pieces) // 4
                for kind in work.kinds:
                    if kind[0] == style:
                        chains[kind] = work.prompts.chains.of(pieces, kind[1], work.first)
        except Unrenderable as no:
            self._counters.fallback(no.cause, str(no))
            return self.bare()
        except Exception as error:  # noqa: BLE001 - a tokenizer raises what it likes; the request goes on without
            self._counters.fallback("tokenizer", f"{type(error).__name__}: {error}")
            return self.bare()
        prompt = Prompt(chains=chains, lengths=lengths, retention=body.retention, parts=parts_of(body))
        self._counters.read(prompt)
        if self._keep is not None:
            self._keep(prompt)
        return prompt


class Repeated(Reading):
    """A prompt that came before, in all that its tokens depend on."""

    def __init__(self, counters: PromptCounters, before: Prompt) -> None:
        super().__init__(counters)
        self._before = before

    def finish(self) -> Prompt:
        """See Reading."""
        before = self._before
        prompt = Prompt(
            chains=before.chains, lengths=before.lengths, retention=before.retention, parts=before.parts
        )
        self._counters.read(prompt)
        return prompt


class _Work(msgspec.Struct, gc=False):
    """How a body becomes blocks: jobs by style, the kinds to hash for, and what the chain begins with."""

    prompts: Prompts
    jobs: Mapping[str, Job]
    kinds: set[tuple[str, int]]
    first: int = FIRST_PARENT


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
        self._known: Memo[_Key, Prompt] = Memo(KNOWN_BYTES)

    def start(self, path: bytes, raw: bytes | bytearray) -> Reading:
        """Look at a body; nothing expensive yet."""
        counters = self.counters
        found = members_of(raw)
        key = self._key(found) if found is not None and not path.startswith(_OF_OTHER_APIS) else None
        before = self._known.get(key) if key is not None else None
        if before is not None:
            if before.retention is not None:
                counters.retention[before.retention] += 1
            return Repeated(counters, before)
        body = read_members(found) if found is not None else None
        if body is None:
            counters.fallback("body")
            return Reading(counters)
        if body.retention is not None:
            counters.retention[body.retention] += 1
        if path.startswith(_OF_OTHER_APIS):
            body = _as_engines_read_it(path, raw, body)
        return self._read(body, key)

    def _read(self, body: PromptBody, key: _Key | None) -> Reading:
        counters = self.counters
        if body.media is not None:
            counters.multimodal += 1
            return Reading(counters, body)
        prompts = self._tokenizers.of(body.model)
        if prompts is None:
            counters.fallback("no_tokenizer", body.model or "")
            return Reading(counters, body)
        kinds = self._kinds()
        try:
            jobs = {style: self._job(prompts, style, body) for style in {style for style, _ in kinds}}
        except Unrenderable as no:
            counters.fallback(no.cause, str(no))
            return Reading(counters, body)
        adapter = body.model if body.model is not None and self._is_adapter(body.model) else None
        work = _Work(prompts, jobs, kinds, first_parent(adapter, body.salt))
        return Reading(counters, body, work, partial(self._remember, key) if key is not None and jobs else None)

    def _key(self, found: Members) -> _Key | None:
        """Of all that a prompt's blocks depend on, here and now."""
        stands = digest(found)
        model = found.model
        if stands is None or not isinstance(model, str):
            return None
        prompts = self._tokenizers.of(model)
        if prompts is None:
            return None
        return stands, frozenset(self._kinds()), self._is_adapter(model), prompts.day()

    def _remember(self, key: _Key, prompt: Prompt) -> None:
        size = sum(map(len, prompt.chains.values())) + 4 * len(prompt.parts)
        kept = Prompt(chains=prompt.chains, lengths=prompt.lengths, retention=prompt.retention, parts=prompt.parts)
        self._known.put(key, kept, _HASH_BYTES * size)

    @staticmethod
    def _job(prompts: Prompts, style: str, body: PromptBody) -> Job:
        if body.messages and body.prompt is None:
            messages = [Told(role, raw) for role, raw in body.messages]
            return prompts.chat(style, Chat(messages, body.tools, body.rest))
        if body.prompt is not None:
            return prompts.completion(style, body.prompt)
        raise Unrenderable("request", "it has neither messages nor a prompt")
