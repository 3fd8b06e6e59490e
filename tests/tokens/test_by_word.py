"""Words looked up one by one are what the tokenizer makes of the whole text, for the expressions of known families."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, Regex, Tokenizer, normalizers, pre_tokenizers

from infera_cli.tokens import by_word
from infera_cli.tokens.by_word import ByWord, cut_of, for_ascii, slices
from infera_cli.tokens.load import load
from infera_cli.tokens.vocabulary import Vocabulary, pack
from tests.tokens import models

LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+"
)
QWEN = LLAMA3.replace("{1,3}", "")
O200K = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
FAMILIES = {"gpt2": None, "llama3": LLAMA3, "qwen": QWEN, "o200k": O200K}


@functools.cache
def tokenizer_of(family: str) -> Tokenizer:
    """The tests' small vocabulary, cut as the family does."""
    tokenizer = Tokenizer.from_str(models.tokenizer_json())
    expression = FAMILIES[family]
    if expression is not None:
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
            pre_tokenizers.Split(Regex(expression), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ])  # fmt: skip
    return tokenizer


def plain(tokenizer: Tokenizer, text: str) -> bytes:
    """What the tokenizer itself makes of it."""
    return pack(tokenizer.encode(text, add_special_tokens=False).ids)


def by_words(tokenizer: Tokenizer, step: int = by_word.SLICE, limit: int = by_word.KNOWN_BYTES) -> ByWord:
    """Over the tokenizer, which must be of a kind that is known."""
    cut = cut_of(tokenizer)
    assert cut is not None
    return ByWord(cut, lambda texts: [plain(tokenizer, text) for text in texts], step=step, limit=limit)


ANY_ASCII = st.text(st.characters(max_codepoint=127), max_size=200)
PARTS = [*" \n\r\t'.,/{}-_", "  ", "'s", "'LL", "word", "Word", "WORD", "12345", "é", "你好"]
LIKELY = st.lists(st.sampled_from(PARTS))


@pytest.mark.parametrize("family", FAMILIES)
@given(text=ANY_ASCII | LIKELY.map("".join), step=st.integers(1, 40))
def test_words_are_encoded_as_the_whole_text_is(family: str, text: str, step: int) -> None:
    """Whatever the text, and wherever a slice of it ends."""
    tokenizer = tokenizer_of(family)
    assert by_words(tokenizer, step).encode(text) == plain(tokenizer, text)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_vocabulary_of_a_known_family_cuts_words(family: str) -> None:
    """GPT-2, Llama 3, Qwen and o200k; a whole module is the same tokens."""
    vocabulary = Vocabulary(tokenizer_of(family))
    text = Path(json.__file__).read_text()
    assert vocabulary.cuts_words
    assert vocabulary.encode(text) == plain(tokenizer_of(family), text)


def test_known_words_are_not_encoded_again() -> None:
    """The tokenizer is asked for each word once."""
    tokenizer, asked = tokenizer_of("gpt2"), []

    def encode(texts: Any) -> list[bytes]:
        asked.extend(texts)
        return [plain(tokenizer, text) for text in texts]

    cut = cut_of(tokenizer)
    assert cut is not None
    words = ByWord(cut, encode)
    assert words.encode("one two") == plain(tokenizer, "one two")
    assert words.encode("one two three two") == plain(tokenizer, "one two three two")
    assert sorted(asked) == [" three", " two", "one"]


def test_words_are_forgotten_when_they_take_too_much() -> None:
    """Bounded, and right all the time."""
    words = by_words(tokenizer_of("gpt2"), limit=50_000)
    for number in range(2000):
        text = f"word w{number:x}y and then {number:x} more"
        assert words.encode(text) == plain(tokenizer_of("gpt2"), text)
    assert len(words._known) < 300


def test_text_without_white_space_is_left_to_the_tokenizer() -> None:
    """The expression would hold up everything else in the process for as long as it takes."""
    words, text = by_words(tokenizer_of("llama3"), step=100), "x" * 401 + " and 'tis"
    assert words.encode(text) == plain(tokenizer_of("llama3"), text)
    assert "x" not in words._known
    assert "".join(slices(text, 100)) == text


def altered(**parts: Any) -> Tokenizer:
    """The small tokenizer with something else in it."""
    tokenizer = Tokenizer.from_str(models.tokenizer_json())
    for name, part in parts.items():
        setattr(tokenizer, name, part)
    return tokenizer


def with_word() -> Tokenizer:
    """A token of its own that is found in the midst of text, after it is normalized."""
    tokenizer = altered()
    tokenizer.add_tokens([AddedToken("wor", normalized=True, special=False)])
    return tokenizer


@pytest.mark.parametrize("tokenizer", [
    altered(normalizer=normalizers.Lowercase()),
    altered(normalizer=normalizers.Sequence([normalizers.NFC(), normalizers.Strip()])),
    altered(pre_tokenizer=pre_tokenizers.Metaspace()),
    altered(pre_tokenizer=pre_tokenizers.ByteLevel(add_prefix_space=True)),
    altered(pre_tokenizer=pre_tokenizers.Sequence([
        pre_tokenizers.Digits(), pre_tokenizers.ByteLevel(add_prefix_space=False),
    ])),
    with_word(),
], ids=["lowercase", "strip", "metaspace", "prefix", "digits", "word"])  # fmt: skip
def test_other_tokenizers_do_their_own_work(tokenizer: Tokenizer) -> None:
    """What changes ASCII, or cuts in another way, is not imitated."""
    vocabulary = Vocabulary(tokenizer)
    assert not vocabulary.cuts_words
    assert vocabulary.encode("A word, 12 words") == plain(tokenizer, "A word, 12 words")


def test_a_normalizer_that_keeps_ascii_is_allowed() -> None:
    """Unicode's own forms leave ASCII alone."""
    assert Vocabulary(altered(normalizer=normalizers.NFC())).cuts_words


@pytest.mark.parametrize("expression", [
    r"\P{L}+", r"\p{Han}+", r"\p{Lo}+", r"\h+", r"(a)b", r"^a", r"a$", r"[a[b]]", r"[a&&b]", r"[a--b]", r"a(", r"\X",
])  # fmt: skip
def test_an_expression_that_may_mean_something_else_is_not_taken(expression: str) -> None:
    """Python would read these otherwise, or not at all."""
    assert for_ascii(expression) is None


def test_a_wrong_cut_is_found_out_when_the_tokenizer_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The proof sees a property that lacks letters."""
    monkeypatch.setitem(by_word._PROPERTIES, "L", "abcdefghij")
    assert not Vocabulary(tokenizer_of("llama3")).cuts_words


def test_a_tokenizer_file_that_cuts_and_fills_up_does_neither(tmp_path: Path) -> None:
    """Engines encode whole prompts whatever the file says."""
    models.write(tmp_path)
    tokenizer = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    text = "Some words that are more than eight tokens, and some more of them."
    whole = plain(tokenizer, text)
    tokenizer.enable_truncation(8)
    tokenizer.enable_padding(length=64)
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    assert load(str(tmp_path)).words.encode(text) == whole
