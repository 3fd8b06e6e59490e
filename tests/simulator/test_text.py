"""Prompts, tokens and answers of the stand-in tokenizer."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infera_cli.simulator import text


@given(st.text())
def test_tokens_turn_back_into_their_text(given_text: str) -> None:
    """Decoding what was encoded gives the same text, and ids fit into 32 bits."""
    ids = text.encode(given_text)
    assert text.decode(ids) == given_text
    assert all(0 <= number < text.VOCABULARY <= 2**32 for number in ids)


def test_a_token_is_four_bytes() -> None:
    """Plain text has a quarter as many tokens as bytes, rounded up."""
    assert [len(text.encode("x" * size)) for size in (0, 1, 4, 5, 400)] == [0, 1, 1, 2, 100]


def test_specials_are_one_token_each() -> None:
    """Special tokens typed by a user count as special (engines §6.1)."""
    assert text.encode("<|im_end|>") == [text.END]
    assert len(text.encode("<|im_start|>ab<|im_end|>")) == 3


@pytest.mark.parametrize("number", [-1, 2**32, text.VOCABULARY])
def test_an_impossible_id_is_the_replacement_character(number: int) -> None:
    """Ids that no text has do not break decoding."""
    assert text.decode([number]) == "\ufffd"


@given(st.text(max_size=40), st.integers(0, 2**64 - 1), st.integers(1, 60), st.text(max_size=20))
def test_a_later_turn_extends_the_earlier_prompt(question: str, seed: int, tokens: int, more: str) -> None:
    """Prompt and generated ids are the beginning of the next turn's prompt, so its blocks are found."""
    first = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": question}]
    answer = text.answer(seed, tokens)
    second = [*first, {"role": "assistant", "content": answer}, {"role": "user", "content": more}]
    known = text.encode(text.render_chat(first)) + text.encode(answer)
    assert text.encode(text.render_chat(second))[: len(known)] == known
    assert len(text.encode(answer)) == tokens


def test_answers_are_deterministic_and_differ() -> None:
    """The same seed says the same, another seed something else, and a longer answer begins with the
    shorter."""
    assert text.answer(1, 20) == text.answer(1, 20) != text.answer(2, 20)
    assert text.answer(1, 40).startswith(text.answer(1, 20))


def test_natural_lengths_lie_around_their_mean() -> None:
    """An unlimited answer is between half and one and a half of the mean."""
    lengths = {text.natural_length(seed, 64) for seed in range(0, 10**6, 997)}
    assert min(lengths) >= 32
    assert max(lengths) <= 97
    assert len(lengths) > 20


@pytest.mark.parametrize(
    ("content", "flat"),
    [(None, ""), ("a", "a"), (["a"], "a"),
     ([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], "a\nb"),
     ([{"type": "image_url", "x": 1}], '{"type": "image_url", "x": 1}')],
)
def test_content_is_flattened_as_vllm_does(content: object, flat: str) -> None:
    """Null is empty, text parts join with a line break (engines §6.1)."""
    assert text.flatten(content) == flat


def test_tools_and_tool_calls_are_part_of_the_prompt() -> None:
    """Tools come first and calls after the content, so that they change the blocks."""
    turn = {"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]}
    rendered = text.render_chat([turn], [{"name": "t"}], add_generation_prompt=False)
    assert rendered == ('<|im_start|>system\n# Tools\n[{"name": "t"}]<|im_end|>\n'
                        '<|im_start|>assistant\n[{"id": "1"}]<|im_end|>\n')
