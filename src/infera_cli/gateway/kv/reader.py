"""From a request's body to what `kv-aware` weighs; never an error, at worst nothing is known (S74, R097)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import date
from functools import partial
from typing import Protocol

import msgspec

from infera_cli.errors import RequestError
from infera_cli.gateway.kv.counters import PromptCounters, Unheard
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

_CHAT, _COMPLETIONS = b"/v1/chat/completions", b"/v1/completions"
_MESSAGES, _RESPONSES = b"/v1/messages", b"/v1/responses"
_OF_OTHER_APIS = (_MESSAGES, _RESPONSES)
_PROMPTED = frozenset({_CHAT, _COMPLETIONS, _MESSAGES, _RESPONSES})
Kind = tuple[str, int]
Kinds = Callable[[], set[Kind]]
LARGE = 64 << 10
"""Bytes; larger bodies are not even looked at while others wait."""
KNOWN_BYTES = 32 << 20
"""For prompts that may come again as they are: retries, samples, parallel calls of an agent."""
_HASH_BYTES = 48

_Key = tuple[bytes, int, frozenset[Kind], bool, date | None]


def _for_route(found: Members, route: bytes) -> Members:
    """Without the member that engines do not look at on that route, whatever it holds."""
    if route == _COMPLETIONS:
        found.messages = msgspec.Raw(b"")
    else:
        found.prompt = msgspec.Raw(b"")
    return found


def _as_engines_read_it(route: bytes, raw: bytes | bytearray, body: PromptBody) -> PromptBody:
    """A request of another API as the chat that is made of it; one that cannot be made is for the engine to refuse."""
    try:
        made = messages_to_chat(raw) if route == _MESSAGES else responses_to_chat(raw)
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


class Later(Reading):
    """A large body: to look at it takes a moment already, and is left to whoever works out its tokens."""

    def __init__(self, reader: PromptReader, route: bytes, raw: bytes | bytearray, kinds: AbstractSet[Kind]) -> None:
        super().__init__(reader.counters)
        self.cost = len(raw)
        self._start = partial(reader.start, route, raw, kinds)
        self._reading: Reading | None = None

    def bare(self) -> Prompt:
        """See Reading."""
        return self._reading.bare() if self._reading is not None else Prompt()

    def finish(self) -> Prompt:
        """See Reading."""
        try:
            reading = self._reading = self._start()
        except Exception as error:  # noqa: BLE001 - in a thread nobody would hear of it, and the request would wait
            self._counters.fallback("body", f"{type(error).__name__}: {error}")
            return Prompt()
        return reading.finish()


class _Work(msgspec.Struct, gc=False):
    """How a body becomes blocks: jobs by style, the kinds to hash for, and what the chain begins with."""

    prompts: Prompts
    jobs: Mapping[str, Job]
    kinds: AbstractSet[Kind]
    first: int = FIRST_PARENT


class PromptReader:
    """Reads bodies. `kinds` are the (style, unit) pairs to hash for, `is_adapter` tells LoRA names from models."""

    def __init__(
        self, tokenizers: TokenizersOf, kinds: Kinds, *, is_adapter: Callable[[str], bool] = lambda _name: False,
        counters: PromptCounters | None = None, known_bytes: int = KNOWN_BYTES,
    ) -> None:  # fmt: skip
        self._tokenizers = tokenizers
        self._kinds = kinds
        self._is_adapter = is_adapter
        self.counters = counters if counters is not None else PromptCounters()
        self._known: Memo[_Key, Prompt] = Memo(known_bytes)

    def unheard(self) -> PromptReader:
        """One that reads as this one does and counts and logs nothing. Whole prompts it does not keep;
        spans and sections stay in the tokenizer, which both have."""
        return PromptReader(
            self._tokenizers, self._kinds, is_adapter=self._is_adapter, counters=Unheard(), known_bytes=0
        )

    def look(self, target: bytes, raw: bytes | bytearray) -> Reading:
        """The prompt of a body that is sent to `target`, looked at now or later, by its size."""
        route = target.partition(b"?")[0]
        if len(raw) > LARGE and route in _PROMPTED:
            return Later(self, route, raw, frozenset(self._kinds()))
        return self.start(route, raw)

    def start(self, route: bytes, raw: bytes | bytearray, kinds: AbstractSet[Kind] | None = None) -> Reading:
        """Look at a body; nothing expensive yet. `kinds` where the fleet is not to be asked: in a thread.

        Where nothing is generated from a prompt, there is none to look for."""
        counters = self.counters
        if route not in _PROMPTED:
            return Reading(counters)
        kinds = self._kinds() if kinds is None else kinds
        found = members_of(raw)
        if found is not None:
            found = _for_route(found, route)
        key = self._key(route, found, kinds) if found is not None and route not in _OF_OTHER_APIS else None
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
        if route in _OF_OTHER_APIS:
            body = _as_engines_read_it(route, raw, body)
        return self._read(body, kinds, key)

    def _read(self, body: PromptBody, kinds: AbstractSet[Kind], key: _Key | None) -> Reading:
        counters = self.counters
        if body.media is not None:
            counters.multimodal += 1
            return Reading(counters, body)
        prompts = self._tokenizers.of(body.model)
        if prompts is None:
            counters.fallback("no_tokenizer", body.model or "")
            return Reading(counters, body)
        try:
            jobs = {style: self._job(prompts, style, body) for style in {style for style, _ in kinds}}
        except Unrenderable as no:
            counters.fallback(no.cause, str(no))
            return Reading(counters, body)
        adapter = body.model if body.model is not None and self._is_adapter(body.model) else None
        work = _Work(prompts, jobs, kinds, first_parent(adapter, body.salt))
        return Reading(counters, body, work, partial(self._remember, key) if key is not None and jobs else None)

    def _key(self, route: bytes, found: Members, kinds: AbstractSet[Kind]) -> _Key | None:
        """Of all that a prompt's blocks depend on, here and now."""
        stands = digest(found)
        model = found.model
        if stands is None or not isinstance(model, str):
            return None
        prompts = self._tokenizers.of(model)
        if prompts is None:
            return None
        return route, stands, frozenset(kinds), self._is_adapter(model), prompts.day()

    def _remember(self, key: _Key, prompt: Prompt) -> None:
        size = sum(map(len, prompt.chains.values())) + 4 * len(prompt.parts)
        kept = Prompt(chains=prompt.chains, lengths=prompt.lengths, retention=prompt.retention, parts=prompt.parts)
        self._known.put(key, kept, _HASH_BYTES * size)

    @staticmethod
    def _job(prompts: Prompts, style: str, body: PromptBody) -> Job:
        if body.messages:
            messages = [Told(role, raw) for role, raw in body.messages]
            return prompts.chat(style, Chat(messages, body.tools, body.rest))
        if body.prompt is not None:
            return prompts.completion(style, body.prompt)
        raise Unrenderable("request", "it has neither messages nor a prompt")
