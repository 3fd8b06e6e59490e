"""What a request takes, and the names of its prefixes (replica-router §2.5, §2.6)."""

from __future__ import annotations

import pytest

from infera_cli.routing.reader import Message, Reader
from infera_cli.routing.work import Work, output_tokens, parameters


def said(system: bool, text: str) -> Message:
    return system, text.encode(), b""


SYSTEM, ASK, ANSWER, MORE = said(True, "be kind"), said(False, "hello"), said(False, "hi"), said(False, "more")


def work(*messages: Message, model: str = "m", hint: str | None = None, ignore: tuple[str, ...] = ()) -> Work:
    return Reader(ignore).work(model, messages, hint=hint)


@pytest.mark.parametrize(
    ("model", "billions"),
    [
        ("meta-llama/Llama-3-8B-Instruct", 8), ("Llama-3-8B", 8), ("llama-3.1-70b", 70), ("Qwen2.5-0.5B", 0.5),
        ("Mixtral-8x7B", 7), ("gpt-4", 8), ("bert", 8), ("8bit", 8), (None, 8), ("model-3B-8bit", 3),
    ],
)  # fmt: skip
def test_the_size_is_read_off_the_name(model: str | None, billions: float) -> None:
    """The number before a B; 8 billion where the name has none."""
    assert parameters(model) == billions * 1e9


@pytest.mark.parametrize(("wanted", "tokens"), [(None, 256), (1, 1), (4096, 4096), (100_000, 4096)])
def test_answers_are_taken_to_have_at_most_4096_tokens(wanted: int | None, tokens: int) -> None:
    """256 where the client is silent."""
    assert output_tokens(wanted) == tokens


@pytest.mark.parametrize(
    ("texts", "tokens"), [([], 1), ([""], 1), (["abcd"], 1), (["abcde"], 2), (["é" * 4], 2), (["ab", "cd", "e"], 2)]
)
def test_prompts_have_a_token_for_four_bytes(texts: list[str], tokens: int) -> None:
    """UTF-8 bytes of all text ÷ 4, rounded up, at least 1."""
    assert work(*[said(False, text) for text in texts]).prompt == tokens


def test_a_later_turn_begins_with_the_names_of_the_earlier() -> None:
    """The chain of a conversation grows at its end alone, so its longest known prefix is found."""
    first, second = work(SYSTEM, ASK), work(SYSTEM, ASK, ANSWER, MORE)
    assert second.chain[:2] == first.chain
    assert second.sizes == (2, 3, 4, 5)
    assert second.pinned == 1


def test_agents_share_their_system_prompt_and_no_more() -> None:
    """Another question after the same system prompt has the same first name, and another second one."""
    one, two = work(SYSTEM, ASK), work(SYSTEM, MORE)
    assert one.chain[0] == two.chain[0]
    assert one.chain[1] != two.chain[1]


def test_names_are_scoped_by_model_and_role() -> None:
    """The same text to another model, or said by another role, is another prefix."""
    assert work(SYSTEM).chain != work(SYSTEM, model="n").chain
    assert work(SYSTEM).chain != work((False, *SYSTEM[1:])).chain
    assert work(ASK).chain != work((*ASK[:2], b"[image]")).chain


def test_a_hint_stands_for_the_system_prompt() -> None:
    """With kv_prefix_hint the leading system messages are one prefix, whatever they say today."""
    one = work(SYSTEM, said(True, "Monday"), ASK, hint="sys_v3")
    two = work(SYSTEM, said(True, "Sunday"), ASK, hint="sys_v3")
    assert one.chain == two.chain
    assert len(one.chain) == 2
    assert one.pinned == 1
    assert one.chain != work(SYSTEM, said(True, "Monday"), ASK, hint="sys_v4").chain
    assert one.sizes[0] == 4


def test_lines_left_out_by_rule_do_not_change_a_prefix() -> None:
    """A date or an attribution line that clients change on every call does not hide what is shared."""
    rules = ("^x-anthropic-billing-header:", r"Today is \d")
    one = work(said(True, "x-anthropic-billing-header: 17\nbe kind\nToday is 1 May\nend"), ignore=rules)
    two = work(said(True, "x-anthropic-billing-header: 18\nbe kind\nToday is 2 May\nend"), ignore=rules)
    assert one.chain == two.chain
    assert one.chain != work(said(True, "be cruel\nend"), ignore=rules).chain


def test_no_messages_means_no_prefix() -> None:
    """A body without text has no key, and the policy does not apply."""
    assert work().chain == ()
    assert work(hint="x").chain == ()


def test_without_chains_only_sizes_are_read() -> None:
    """Where no policy asks for prefixes nothing is hashed; tokens are the same."""
    reader = Reader(chains=False)
    found = reader.work("m", [SYSTEM, said(False, "é" * 4)], 7)
    assert (found.chain, found.prompt, found.output) == ((), 4, 7)
    assert found.prompt == work(SYSTEM, said(False, "é" * 4)).prompt
    assert reader.work("m", []).prompt == 1
