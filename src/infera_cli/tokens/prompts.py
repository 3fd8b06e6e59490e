"""From a request to packed token ids, for one tokenizer and its template; says first how much work it will be."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any, Protocol

import msgspec
from xxhash import xxh3_64_intdigest

from infera_cli.tokens.chains import Chains, Piece
from infera_cli.tokens.memo import OVERHEAD, Memo
from infera_cli.tokens.normal import (
    CHAT_WITH_SPECIALS,
    COMPLETIONS_WITH_SPECIALS,
    messages_for,
    tools_for,
    variables_of,
)
from infera_cli.tokens.sections import Cutter, Section, sections
from infera_cli.tokens.template import ChatTemplate, Unrenderable
from infera_cli.tokens.vocabulary import pack

SECTION_BYTES = 128 << 20
_64_BITS = (1 << 64) - 1
_NOTHING = b"{}"
CUTTERS = 16
"""Sets of template variables for which it is known at a time whether messages may be rendered one by one."""
_MET = 1024
"""Sets that came before; the proof is worth its time for those that come again."""
_LARGEST_SET = 64 << 10
"""Bytes; with more than that a conversation is rendered whole."""


class Words(Protocol):
    """Text to packed ids; `vocabulary.Vocabulary` is the usual one."""

    border: re.Pattern[str] | None
    before: bytes
    after: bytes
    exact: bool
    why: str

    def encode(self, text: str, *, specials: bool = False) -> bytes:
        """All of `text`."""

    def unknown(self, text: str) -> int:
        """How many characters of it are not known yet."""


class Job(Protocol):
    """Work that may be done now or in a thread. `cost` is in characters that must be looked at anew."""

    cost: int

    def run(self) -> list[Piece]:
        """The pieces of the prompt. Raises Unrenderable."""


class Told(msgspec.Struct, gc=False):
    """One message of a chat: its role, and its JSON."""

    role: str
    raw: bytes


class Chat(msgspec.Struct):
    """A chat request: `rest` are its other members that a template may see, `tools` their JSON."""

    messages: Sequence[Told]
    tools: bytes = b""
    rest: Mapping[str, Any] = {}


class Prompts:
    """One model's tokenizer and template. Two threads may work out the same thing twice, never a wrong one."""

    def __init__(self, words: Words, template: ChatTemplate | None, *, section_bytes: int = SECTION_BYTES) -> None:
        self.words = words
        self.template = template
        self.chains = Chains()
        self._sections: Memo[int, bytes] = Memo(section_bytes)
        self._plain = Cutter(template, words.border) if template is not None and words.exact else None
        self._cutters: Memo[bytes, Cutter] = Memo(CUTTERS * OVERHEAD)
        self._met: Memo[int, bool] = Memo(_MET * OVERHEAD)

    @property
    def cuts(self) -> bool:
        """Whether earlier messages of a conversation need not be rendered again."""
        return self._plain is not None and self._plain.exact

    def day(self) -> date | None:
        """The day, where the template puts it into what it renders (engines §6.1)."""
        return date.today() if self.template is not None and self.template.dated else None  # as templates do

    # ── completions ──────────────────────────────────────────────────────────────────────────────────
    def completion(self, style: str, prompt: Any) -> Job:
        """The first prompt of a completion request. Raises Unrenderable."""
        if isinstance(prompt, list) and prompt and not isinstance(prompt[0], int):
            prompt = prompt[0]
        if isinstance(prompt, str):
            return _Text(self.words, prompt, style in COMPLETIONS_WITH_SPECIALS)
        if isinstance(prompt, list) and all(type(number) is int and 0 <= number < 1 << 32 for number in prompt):
            return _Ready(pack(prompt))
        raise Unrenderable("request", "the prompt is neither text nor tokens")

    # ── chat ─────────────────────────────────────────────────────────────────────────────────────────
    def chat(self, style: str, chat: Chat) -> Job:
        """A conversation. Raises Unrenderable."""
        if self.template is None:
            raise Unrenderable("no_template", "the tokenizer has no chat template")
        uses = self.template.uses
        variables = {name: value for name, value in variables_of(chat.rest).items() if name in uses}
        known = _written(variables) if variables else _NOTHING
        cut = sections([told.role for told in chat.messages]) if self._may_cut(style, known) else None
        return _Conversation(self, style, chat, variables, known, cut or _whole(chat))

    def _may_cut(self, style: str, known: bytes) -> bool:
        """Whether rendering in sections is worth a try under these variables."""
        if not self.words.exact or len(known) > _LARGEST_SET:
            return False
        found = self._cutter(known)
        return found.exact if found is not None else self._came_before(style, known)

    def _came_before(self, style: str, known: bytes) -> bool:
        key = xxh3_64_intdigest(known, seed=hash(style) & _64_BITS)
        if self._met.get(key):
            return True
        self._met.put(key, True, 0)
        return False

    def _cutter(self, known: bytes) -> Cutter | None:
        """The one for these variables, if there is one already."""
        return self._plain if known == _NOTHING else self._cutters.get(known)

    def cutter(self, known: bytes, variables: Mapping[str, Any]) -> Cutter | None:
        """The cutter for these template variables, proven first; None where they do not allow it."""
        found = self._cutter(known)
        if found is None:
            assert self.template is not None  # noqa: S101 - chat() looked
            found = Cutter(self.template, self.words.border, more=variables)
            self._cutters.put(known, found, 0)
        return found if found.exact else None

    def knows(self, known: bytes) -> bool:
        """Whether it is settled what these variables allow."""
        return self._cutter(known) is not None

    def section(self, key: int) -> bytes | None:
        """Packed ids of a section met before."""
        return self._sections.get(key)

    def keep(self, key: int, packed: bytes) -> None:
        """Remember a section."""
        self._sections.put(key, packed, len(packed))


class _Ready:
    """Nothing to do."""

    cost = 0

    def __init__(self, packed: bytes) -> None:
        self._packed = packed

    def run(self) -> list[Piece]:
        return [(0, self._packed)]


class _Text:
    """Text as it is."""

    def __init__(self, words: Words, text: str, specials: bool) -> None:
        self._words, self._text, self._specials = words, text, specials
        self.cost = words.unknown(text)

    def run(self) -> list[Piece]:
        return [(0, self._words.encode(self._text, specials=self._specials))]


def _written(variables: Mapping[str, Any]) -> bytes:
    """The same for the same variables. Raises Unrenderable."""
    try:
        return json.dumps(variables, sort_keys=True, default=str).encode()
    except RecursionError:
        raise Unrenderable("request", "its template variables nest too deep") from None


def _whole(chat: Chat) -> list[Section]:
    """A conversation in one piece."""
    return [Section(0, len(chat.messages), None, None, True, 0)]


class _Conversation:
    """A conversation section by section; known ones cost nothing."""

    def __init__(
        self, prompts: Prompts, style: str, chat: Chat, variables: Mapping[str, Any], known: bytes,
        cut: Sequence[Section],
    ) -> None:  # fmt: skip
        self._prompts, self._style, self._chat, self._variables = prompts, style, chat, variables
        self._known, self._cut = known, cut
        self._keys = self._keys_of(cut)
        self._found = [prompts.section(key) for key in self._keys]
        self.cost = 0
        if None in self._found:
            self.cost = sum(self._size(part) for part, packed in zip(cut, self._found, strict=True) if packed is None)
        if len(cut) > 1 and not prompts.knows(known):
            self.cost += 1 << 20  # a proof

    def _size(self, part: Section) -> int:
        size = sum(len(told.raw) for told in self._chat.messages[part.first : part.last])
        return size if part.place else size + len(self._chat.tools)

    def _keys_of(self, cut: Sequence[Section]) -> list[int]:
        """A key for each section, of all that its text depends on."""
        messages = self._chat.messages
        base = hash((self._style, self._known, self._prompts.day()))
        keys = []
        for part in cut:
            key = (base ^ part.mark) & _64_BITS
            if part.place is None:
                key = xxh3_64_intdigest(self._chat.tools, seed=key)
            for at in range(part.first, part.last):
                key = xxh3_64_intdigest(messages[at].raw, seed=key)
            keys.append(key or 1)
        return keys

    def run(self) -> list[Piece]:
        missing = [at for at, packed in enumerate(self._found) if packed is None]
        if missing:
            cutter = self._prompts.cutter(self._known, self._variables) if len(self._cut) > 1 else None
            if not all(self._work_out(cutter, at) for at in missing):
                whole = _whole(self._chat)
                return _Conversation(self._prompts, self._style, self._chat, self._variables, self._known, whole).run()
        pieces = [(key, packed or b"") for key, packed in zip(self._keys, self._found, strict=True)]
        if self._style in CHAT_WITH_SPECIALS:
            words = self._prompts.words
            pieces = [(1, words.before), *pieces, (0, words.after)]
        return pieces

    def _work_out(self, cutter: Cutter | None, at: int) -> bool:
        template, part, chat = self._prompts.template, self._cut[at], self._chat
        assert template is not None  # noqa: S101 - Prompts.chat looked
        own = [_decoded(told.raw) for told in chat.messages[part.first : part.last]]
        tools = tools_for(self._style, _decoded(chat.tools)) if chat.tools and not part.place else None
        messages = messages_for(self._style, own, template)
        text: str | None = None
        if len(self._cut) == 1:
            text = template.render(messages, tools, more=self._variables)
        elif cutter is not None:
            text = cutter.text(messages, part, tools)
        if text is None:
            return False
        packed = self._found[at] = self._prompts.words.encode(text)
        self._prompts.keep(self._keys[at], packed)
        return True


def _decoded(raw: bytes) -> Any:
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Unrenderable("request", str(error)) from None
