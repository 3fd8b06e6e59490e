"""ASCII text to token ids word by word: a tokenizer encodes each word by itself, and the same ones come all the time.

Text that nobody sent before is made of words that somebody did. Where a tokenizer cuts text by one expression whose
meaning for ASCII is known, the cut is made here and words are looked up; all else is the tokenizer's own work, so
that the ids are its own in any case. `Vocabulary` proves this on texts made at random when a tokenizer is loaded.
"""

from __future__ import annotations

import json
import re
import string
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from infera_cli.tokens.memo import OVERHEAD

SLICE = 2048
"""Characters that are cut at once: nothing else runs in this process meanwhile."""
KNOWN_BYTES = 24 << 20
"""What all known words may take; then they are forgotten at once, and learned again."""
_LONGEST_WORD = 256
"""Characters; a longer word is not remembered."""
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
"""What the byte-level pre-tokenizer cuts by when it is not told otherwise."""
_KEEPS_ASCII = ("NFC", "NFD", "NFKC", "NFKD")
_BORDER = re.compile(r"(?<=[A-Za-z0-9])(?=\s)", re.ASCII)
_TOGETHER = 16
"""Slices whose unknown words are learned at once."""
_LONGEST_SLICE = 4
"""Times `SLICE`; text without borders is left to the tokenizer, beside which others run."""

_SYMBOLS = "$+<=>^`|~"
_PROPERTIES = {
    "L": string.ascii_letters, "Lu": string.ascii_uppercase, "Ll": string.ascii_lowercase, "Lt": "", "Lm": "",
    "Lo": "", "M": "", "N": string.digits, "Nd": string.digits, "S": _SYMBOLS,
    "P": "".join(sorted(set(string.punctuation) - set(_SYMBOLS))),
}  # fmt: skip
"""ASCII characters by their Unicode property."""
_PART = re.compile(r"\\p\{(\w+)\}|\\(.)|(.)", re.DOTALL)
_SAME_ESCAPES = frozenset("sSdDwWrntfv" + string.punctuation)

_OF_SETS = ("&&", "--", "||", "~~")
"""May join two sets."""

Encode = Callable[[Sequence[str]], Sequence[bytes]]


class ByWord:
    """Packed ids of ASCII text. `encode` is the tokenizer's own way, text by text. Threads may share one."""

    def __init__(self, cut: re.Pattern[str], encode: Encode, *, step: int = SLICE, limit: int = KNOWN_BYTES) -> None:
        self._cut = cut.findall
        self._encode = encode
        self._step = step
        self._limit = limit
        self._size = 0
        self._known: dict[str, bytes] = {}

    def encode(self, text: str) -> bytes:
        """All of `text`; slices that are not ASCII are left to the tokenizer."""
        packed: list[bytes] = []
        parts = list(slices(text, self._step))
        for at in range(0, len(parts), _TOGETHER):
            packed += self._some(parts[at : at + _TOGETHER])
        return b"".join(packed)

    def _some(self, parts: Sequence[str]) -> list[bytes]:
        known = self._known
        packed: list[bytes] = []
        later: list[tuple[int, list[str]]] = []
        for part in parts:
            words = self._cut(part) if part.isascii() and len(part) <= _LONGEST_SLICE * self._step else [part]
            if "".join(words) != part:
                words = [part]
            try:
                packed.append(b"".join(map(known.__getitem__, words)))
            except KeyError:
                later.append((len(packed), words))
                packed.append(b"")
        if later:
            fresh = self._learn(known, {word for _, words in later for word in words if word not in known})
            for at, words in later:
                packed[at] = b"".join([fresh[word] if word in fresh else known[word] for word in words])
        return packed

    def _learn(self, known: dict[str, bytes], unknown: set[str]) -> dict[str, bytes]:
        words = list(unknown)
        fresh = dict(zip(words, self._encode(words), strict=True))
        kept = {word: packed for word, packed in fresh.items() if len(word) <= _LONGEST_WORD and word.isascii()}
        known.update(kept)
        self._size += sum(map(len, kept)) + sum(map(len, kept.values())) + OVERHEAD * len(kept)
        if self._size > self._limit:  # a new one: other threads may be at work with this one
            self._known = {}
            self._size = 0
        return fresh


def slices(text: str, step: int) -> Iterator[str]:
    """`text` in slices of about `step` characters that end where a word does; one without white space stays whole."""
    at = 0
    while len(text) - at > step:
        border = _BORDER.search(text, at + step)
        if border is None:
            break
        yield text[at : border.start()]
        at = border.start()
    if at < len(text):
        yield text[at:]


def cut_of(tokenizer: Any) -> re.Pattern[str] | None:
    """The expression that cuts ASCII text as `tokenizer` (`tokenizers.Tokenizer`) does; None where it is not known.

    Known are byte-level tokenizers that cut by one expression, as those of GPT, Llama 3, Qwen and their kin do.
    """
    added = tokenizer.get_added_tokens_decoder().values()
    if any(token.normalized and not token.special for token in added):
        return None  # such a token is found in the midst of words
    if not all(kind in _KEEPS_ASCII for kind in _normalizers(_state(tokenizer.normalizer))):
        return None
    expression = _expression(_state(tokenizer.pre_tokenizer))
    return for_ascii(expression) if expression is not None else None


def _state(part: Any) -> dict[str, Any]:
    """What a tokenizer's part is made of; empty where it has none or does not say."""
    try:
        found = json.loads(part.__getstate__()) if part is not None else {}
    except Exception:  # noqa: BLE001 - a part written in Python; it raises what it likes
        return {"type": "unknown"}
    return found if isinstance(found, dict) else {"type": "unknown"}


def _normalizers(state: dict[str, Any]) -> list[str]:
    """All steps, by their type."""
    if state.get("type") == "Sequence":
        return [kind for step in state["normalizers"] for kind in _normalizers(step)]
    return [state["type"]] if state else []


def _expression(state: dict[str, Any]) -> str | None:
    steps = state["pretokenizers"] if state.get("type") == "Sequence" else [state]
    match steps:
        case [{"type": "ByteLevel", "add_prefix_space": False, "use_regex": True}]:
            return _GPT2
        case [
            {"type": "Split", "pattern": {"Regex": str(expression)}, "behavior": "Isolated", "invert": False},
            {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False},
        ]:
            return expression
    return None


def for_ascii(expression: str) -> re.Pattern[str] | None:
    """A tokenizer's expression as Python's, for ASCII text; None where it has anything whose meaning may differ."""
    made, in_set = [], False
    for found in _PART.finditer(expression):
        name, escaped, plain = found.groups()
        if name is not None:
            characters = _PROPERTIES.get(name)
            if characters is None or not (characters or in_set):
                return None
            made.append(re.escape(characters) if in_set else f"[{re.escape(characters)}]")
        elif escaped is not None:
            if escaped not in _SAME_ESCAPES:
                return None
            made.append(found[0])
        else:
            if (plain == "[" and in_set) or (plain in "^$" and not in_set):
                return None
            in_set = plain == "[" or (in_set and plain != "]")
            made.append(plain)
    if any(pair in expression for pair in _OF_SETS):
        return None
    try:
        cut = re.compile("".join(made), re.ASCII)
    except re.error:
        return None
    return cut if cut.groups == 0 else None
