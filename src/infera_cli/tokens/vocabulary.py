"""Text to token ids, span by span: special tokens are hard borders, so what lies between is worked out once.

Whether borders are hard is proven when the tokenizer is loaded, on texts cut at random; where they are not (a
border that strips spaces, a prefix for the first word) nothing is remembered and the reason is said. Spans of ASCII
are looked up word by word where that is proven in the same way.
Ids are packed, four bytes each, little-endian, as the hash chain wants them (infera-wire §4.5).
"""

from __future__ import annotations

import random
import re
import struct
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

from infera_cli.tokens.by_word import ByWord, cut_of
from infera_cli.tokens.memo import Memo

SPAN_BYTES = 64 << 20
_LONGEST_SPAN = 256 << 10
"""Characters; a longer span is not remembered."""


T = TypeVar("T")


class Panicked(Exception):
    """The tokenizer's own code gave up."""


def unpanicked(work: Callable[[], T]) -> T:
    """What `work` gives. A panic of Rust, which Python takes for something like Ctrl-C, is raised as Panicked."""
    try:
        return work()
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        raise Panicked(str(error)) from error


class Encoding(Protocol):
    """Token ids of one text."""

    @property
    def ids(self) -> list[int]:
        """In order."""


class Encoder(Protocol):
    """The part of `tokenizers.Tokenizer` that is used."""

    @property
    def normalizer(self) -> Any:
        """What is done to text first; None where nothing is."""

    @property
    def pre_tokenizer(self) -> Any:
        """How text is cut into words."""

    def encode_batch_fast(self, input: Sequence[str], *, add_special_tokens: bool) -> Sequence[Encoding]:  # noqa: A002
        """Encodings without offsets; lets other threads run meanwhile."""

    def get_added_tokens_decoder(self) -> dict[int, Any]:
        """Added tokens by id."""


class Vocabulary:
    """One tokenizer. `exact` says whether spans may be encoded one by one; if not, `why` says the reason."""

    def __init__(self, encoder: Encoder, *, span_bytes: int = SPAN_BYTES, seed: int = 0) -> None:
        self._encoder = encoder
        added = encoder.get_added_tokens_decoder().values()
        names = sorted((token.content for token in added if not token.normalized or token.special), key=len)
        self.border = re.compile("|".join(map(re.escape, reversed(names)))) if names else None
        self._names = frozenset(names)
        self._spans: Memo[str, bytes] = Memo(span_bytes)
        self.before, self.after = self._frame()
        self.why = self._fault(random.Random(seed), names)  # noqa: S311 - the same texts at every start
        self.exact = not self.why
        self._by_word = self._words(random.Random(seed)) if self.exact else None  # noqa: S311 - as above

    @property
    def cuts_words(self) -> bool:
        """Whether ASCII text is looked up word by word."""
        return self._by_word is not None

    # ── encoding ─────────────────────────────────────────────────────────────────────────────────────
    def encode(self, text: str, *, specials: bool = False) -> bytes:
        """All of `text`, with what the tokenizer puts around it if `specials`."""
        packed = b"".join(self._cut(text)) if self.exact else self._plain([text])[0]
        return self.before + packed + self.after if specials else packed

    def unknown(self, text: str) -> int:
        """How many characters of `text` would have to be encoded now."""
        if not self.exact:
            return len(text)
        return sum(len(span) for span in self.spans(text) if span not in self._names and self._spans.get(span) is None)

    def spans(self, text: str) -> list[str]:
        """`text` in pieces, borders as pieces of their own."""
        if self.border is None:
            return [text] if text else []
        pieces, at = [], 0
        for found in self.border.finditer(text):
            start, end = found.span()
            if start > at:
                pieces.append(text[at:start])
            pieces.append(text[start:end])
            at = end
        if at < len(text):
            pieces.append(text[at:])
        return pieces

    def _cut(self, text: str) -> list[bytes]:
        spans = self.spans(text)
        found = [self._spans.get(span) for span in spans]
        missing = list(dict.fromkeys(span for span, packed in zip(spans, found, strict=True) if packed is None))
        fresh = dict(zip(missing, self._anew(missing), strict=True)) if missing else {}
        for span, packed in fresh.items():
            if len(span) <= _LONGEST_SPAN:
                self._spans.put(span, packed, len(packed) + 2 * len(span))
        return [packed if packed is not None else fresh[span] for span, packed in zip(spans, found, strict=True)]

    def _anew(self, texts: Sequence[str]) -> list[bytes]:
        by_word, names = self._by_word, self._names
        if by_word is None:
            return self._plain(texts)
        return [by_word.encode(text) if text not in names else self._plain([text])[0] for text in texts]

    def _plain(self, texts: Sequence[str]) -> list[bytes]:
        return [pack(e.ids) for e in self._encoded(texts)]

    def _encoded(self, texts: Sequence[str], *, framed: bool = False) -> Sequence[Encoding]:
        return unpanicked(lambda: self._encoder.encode_batch_fast(texts, add_special_tokens=framed))

    def _frame(self) -> tuple[bytes, bytes]:
        """What the tokenizer puts before and after any text."""
        bare = self._encoded(["a"])[0].ids
        framed = self._encoded(["a"], framed=True)[0].ids
        for at in range(len(framed) - len(bare) + 1):
            if framed[at : at + len(bare)] == bare:
                return pack(framed[:at]), pack(framed[at + len(bare) :])
        return b"", b""

    # ── the proof ────────────────────────────────────────────────────────────────────────────────────
    def _fault(self, dice: random.Random, names: Sequence[str]) -> str:
        """Why spans may not be encoded one by one; empty when they may."""
        for text in _texts(dice, names):
            whole = self._encoded([text])[0].ids
            if pack(whole) != b"".join(self._plain(self.spans(text))):
                return f"text around special tokens is not encoded by itself, as in {text[:40]!r}"
            framed = self._encoded([text], framed=True)[0].ids
            if pack(framed) != self.before + pack(whole) + self.after:
                return f"special tokens are added in an unusual way, as to {text[:40]!r}"
        return ""

    def _words(self, dice: random.Random) -> ByWord | None:
        """For ASCII text; None where its words are not what the tokenizer makes of it."""
        cut = cut_of(self._encoder)
        if cut is None:
            return None
        trial = ByWord(cut, self._plain, step=12)
        texts = _texts(dice, ()) + ["".join(dice.choices(_ASCII, k=60)) for _ in range(400)]
        if any(trial.encode(text) != packed for text, packed in zip(texts, self._plain(texts), strict=True)):
            return None
        return ByWord(cut, self._plain)


_WORDS = (
    " the", "the", "Hello", " wörld", "\n", "\n\n", " ", "   ", "\t", "1234567", "'s", "you're", " don't",
    "你好世界", "。", "🙂", "e\u0301", '{"a": 1}', "def f(x):\n    return x", "</", "<|", "|>", "\u00a0",
    "http://a.b/c?d=e", "…", "-", "A" * 40, "\r\n", ".", "!?",
)  # fmt: skip
_ASCII = "aaasStTdDxZ   ''\n\r\t1234..,-/<{}_\"\\|="


def _texts(dice: random.Random, names: Sequence[str], count: int = 160) -> list[str]:
    texts = []
    for _ in range(count):
        parts = [dice.choice(_WORDS) for _ in range(dice.randrange(1, 12))]
        for _ in range(dice.randrange(4)):
            if names:
                parts.insert(dice.randrange(len(parts) + 1), dice.choice(names))
        texts.append("".join(parts))
    return texts


def pack(ids: Sequence[int]) -> bytes:
    """Ids as four bytes each. Raises struct.error for what is no token id."""
    return struct.pack(f"<{len(ids)}I", *ids)
