"""Prompts become the tokens that engines make of them (engines §6; S73–S77, R079, R089; rulings 18)."""

from __future__ import annotations

import gc
import json
import random
import struct
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer

from infera_cli.blocks import chain
from infera_cli.errors import ConfigError
from infera_cli.tokens.chains import Chains, Piece
from infera_cli.tokens.load import load, load_all
from infera_cli.tokens.memo import Memo
from infera_cli.tokens.prompts import Chat, Prompts, Told
from infera_cli.tokens.template import ChatTemplate, Unrenderable
from tests.fixtures.kv_events.recorded import Recording
from tests.tokens import models, templates


def chat_of(messages: list[dict[str, Any]], tools: list[Any] | None = None, **rest: Any) -> Chat:
    told = [Told(message["role"], json.dumps(message).encode()) for message in messages]
    return Chat(told, json.dumps(tools).encode() if tools else b"", rest)


def ids(pieces: list[Piece]) -> list[int]:
    packed = b"".join(part for _, part in pieces)
    return list(struct.unpack(f"<{len(packed) // 4}I", packed))


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def assistant(text: str, **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": text, **more}


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Prompts:
    return load(str(models.write_tiny(tmp_path_factory.mktemp("tiny"))))


@pytest.fixture(scope="module")
def thinking(tmp_path_factory: pytest.TempPathFactory) -> Prompts:
    return load(str(models.write(tmp_path_factory.mktemp("thinking"), templates.THINKING)))


def test_rulings_31_ids_equal_those_of_a_real_vllm(tiny: Prompts) -> None:
    """A chat and a completion, as /tokenize of the recorded engine has them."""
    said = Recording("int").tokenized
    messages = said["chat"]["ask"]["messages"]
    assert ids(tiny.chat("vllm", chat_of(messages)).run()) == said["chat"]["tokens"]
    assert ids(tiny.completion("vllm", said["text"]["ask"]["prompt"]).run()) == said["text"]["tokens"]


def test_r089_a_completion_of_the_rendered_text_is_the_same_prompt(tiny: Prompts) -> None:
    """Chat is hashed from the templated tokens, so the same text by the other route has the same blocks; tools
    change them."""
    messages = [user("x " * 60)]
    assert tiny.template is not None
    text = tiny.template.render(messages)
    by_chat = tiny.chains.of(tiny.chat("vllm", chat_of(messages)).run(), 16)
    by_text = tiny.chains.of(tiny.completion("vllm", text).run(), 16)
    assert by_chat == by_text
    assert by_text


def test_r089_tools_are_part_of_the_prompt(thinking: Prompts) -> None:
    """The same messages with a tool are other tokens from the first block on."""
    tool = {"type": "function", "function": {"name": "f", "parameters": {}}}
    plain, tooled = (thinking.chains.of(thinking.chat("vllm", chat_of([user("x " * 60)], tools)).run(), 16)
                     for tools in (None, [tool]))  # fmt: skip
    assert plain[0] != tooled[0]


@pytest.mark.parametrize("template", [templates.CHATML, templates.HEADERS, templates.THINKING])
def test_conversations_are_put_together_message_by_message(tmp_path: Path, template: str) -> None:
    """Where it is proven, the pieces are exactly what one rendering gives, and a next turn costs its own text."""
    prompts = load(str(models.write(tmp_path, template)))
    assert prompts.cuts
    dice = random.Random(1)
    messages = [{"role": "system", "content": "Be brief."}, user("Hello there")]
    for turn in range(12):
        job = prompts.chat("vllm", chat_of(messages))
        assert job.cost < 400
        whole = prompts.words.encode(_rendered(prompts, messages))
        assert ids(job.run()) == list(struct.unpack(f"<{len(whole) // 4}I", whole))
        messages.append(assistant(f"answer {turn} " + "la " * dice.randrange(9), reasoning_content="hm"))
        messages.append(user(f"question {turn} " + "<|im_end|> 你好 " * dice.randrange(3)))


def _rendered(prompts: Prompts, messages: list[dict[str, Any]]) -> str:
    assert prompts.template is not None
    tidy = [{**message, "reasoning": message.get("reasoning_content")} for message in messages]
    return prompts.template.render(tidy)


def test_an_agents_steps_are_remembered_too(thinking: Prompts) -> None:
    """One user message and hundreds of tool calls: each step is rendered once, thoughts included."""
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
    messages = [user("do it")]
    for step in range(30):
        messages.append(assistant("", tool_calls=[call], reasoning_content=f"step {step}"))
        messages.append({"role": "tool", "content": f"result {step} " * 20, "tool_call_id": "c1"})
        job = thinking.chat("vllm", chat_of(messages))
        assert job.cost < 1500
        job.run()
    fresh = load_fresh(thinking)
    assert ids(fresh.chat("vllm", chat_of(messages)).run()) == ids(thinking.chat("vllm", chat_of(messages)).run())


def load_fresh(prompts: Prompts) -> Prompts:
    return Prompts(prompts.words, prompts.template)


def test_templates_that_number_their_messages_are_rendered_whole(tmp_path: Path) -> None:
    """The proof at load fails, so nothing is cut, and the text is right all the same."""
    prompts = load(str(models.write(tmp_path, templates.NUMBERED)))
    assert not prompts.cuts
    messages = [user("a"), assistant("b"), user("c")]
    whole = prompts.words.encode("<|im_start|>1a<|im_end|><|im_start|>2b<|im_end|><|im_start|>3c<|im_end|>")
    assert b"".join(part for _, part in prompts.chat("vllm", chat_of(messages)).run()) == whole


def test_template_variables_are_heeded(thinking: Prompts) -> None:
    """`enable_thinking: false` and `reasoning_effort: none` change the end of the prompt."""
    plain = ids(thinking.chat("vllm", chat_of([user("a"), assistant("b"), user("c")])).run())
    for rest in ({"chat_template_kwargs": {"enable_thinking": False}}, {"reasoning_effort": "none"}):
        quiet = ids(thinking.chat("vllm", chat_of([user("a"), assistant("b"), user("c")], **rest)).run())
        assert quiet[: len(plain)] == plain
        assert len(quiet) > len(plain)


@pytest.mark.parametrize(
    "message",
    [{"role": "assistant", "content": None}, {"role": "developer", "content": "be good"},
     {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
     {"role": "assistant", "content": "x", "tool_calls": []}],
)  # fmt: skip
def test_messages_are_tidied_as_the_engine_does(tiny: Prompts, message: dict[str, Any]) -> None:
    """Null is empty, developer becomes system, text parts join with a line break, empty calls are none."""
    tidy = {"role": {"developer": "system"}.get(message["role"], message["role"]), "content": "a\nb"}
    if not isinstance(message["content"], list):
        tidy["content"] = message["content"] or ""
    got, wanted = (ids(tiny.chat("vllm", chat_of([one, user("q")])).run()) for one in (message, tidy))
    assert got == wanted


def test_s74_s77_tools_are_dumped_as_the_engines_schema_has_them(thinking: Prompts) -> None:
    """vLLM: name, description, parameters in this order, nulls included, strict and strangers left out."""
    tool = {"function": {"x": 1, "parameters": {"b": 1, "a": "ü<"}, "name": "f", "strict": None}, "type": "function"}
    text = thinking.words.encode(
        '<|im_start|>system\n# Tools\n{"type": "function", "function": {"name": "f", "description": null, '
        '"parameters": {"b": 1, "a": "ü<"}}}<|im_end|>\n'
    )
    got = b"".join(part for _, part in thinking.chat("vllm", chat_of([user("q")], [tool])).run())
    assert got.startswith(text)


def test_s73_special_tokens_are_added_as_each_engine_does(tmp_path: Path) -> None:
    """A tokenizer that adds BOS, a template that writes it: one for vLLM's chat, two for ATOM's; completions
    get one, with pypto none."""
    prompts = load(str(models.write(tmp_path, templates.HEADERS, bos=True)))
    bos = ids(prompts.completion("vllm", "").run())[0]
    styles = ("vllm", "sglang", "atom", "pypto")
    chats = [ids(prompts.chat(style, chat_of([user("hi")])).run()).count(bos) for style in styles]
    assert chats == [1, 1, 2, 1]
    texts = [ids(prompts.completion(style, "hi").run()).count(bos) for style in styles]
    assert texts == [1, 1, 1, 0]


@pytest.mark.parametrize("options", [{"strips": True}, {"metaspace": True}])
def test_borders_that_are_not_hard_switch_the_memory_off(tmp_path: Path, options: dict[str, bool]) -> None:
    """A border that eats spaces, or a mark on the first word: said, and encoded whole, with the right ids."""
    prompts = load(str(models.write(tmp_path, templates.CHATML, **options)))
    assert not prompts.words.exact
    assert prompts.words.why
    assert not prompts.cuts
    plain = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    text = "Hello  <mask> world <|im_end|> again"
    assert ids([(0, prompts.words.encode(text))]) == plain.encode(text, add_special_tokens=False).ids


def test_token_arrays_are_prompts_as_they_are(tiny: Prompts) -> None:
    """Ids in, the same ids out; of several prompts the first counts."""
    assert ids(tiny.completion("vllm", [5, 6, 7]).run()) == [5, 6, 7]
    assert ids(tiny.completion("vllm", [[5, 6], [7]]).run()) == [5, 6]
    assert ids(tiny.completion("vllm", ["a", "b"]).run()) == ids(tiny.completion("vllm", "a").run())


@pytest.mark.parametrize("prompt", [None, 7, {}, [-1], [1 << 33], [True], [1, "x"]])
def test_prompts_that_are_none_are_unrenderable(tiny: Prompts, prompt: Any) -> None:
    """The engine judges them; here nothing is known."""
    with pytest.raises(Unrenderable):
        tiny.completion("vllm", prompt)


@pytest.mark.parametrize(
    "rest", [{"continue_final_message": True}, {"chat_template": "x"}],
)
def test_what_engines_treat_in_their_own_way_is_unrenderable(tiny: Prompts, rest: dict[str, Any]) -> None:
    """A continued message, a template of the request's own."""
    with pytest.raises(Unrenderable):
        tiny.chat("vllm", chat_of([user("a")], **rest))


def test_s76_json_in_templates_is_python_s() -> None:
    """Spaces after separators, no HTML escapes, other scripts as they are, keys in the order of the request."""
    template = ChatTemplate("{{ messages[0].content | tojson }}", {})
    value = {"z": "<b>&\"'</b>", "a": ["ü", 1, None, True], "m": {"你": 1.5}}
    expected = '{"z": "<b>&\\"\'</b>", "a": ["ü", 1, null, true], "m": {"你": 1.5}}'
    assert template.render([{"role": "user", "content": value}]) == expected


def test_templates_run_in_a_sandbox() -> None:
    """What a template must not reach, it does not; endless or failing ones are unrenderable."""
    for source in ("{{ ''.__class__.__mro__ }}", "{{ raise_exception('no') }}", "{{ messages[9].x.y }}", "{{ 1/0 }}"):
        template = ChatTemplate(source, {})
        try:
            text = template.render([user("a")])
        except Unrenderable:
            continue
        assert "object" not in text


def test_r079_a_tokenizer_that_cannot_be_loaded_stops_with_one_sentence(tmp_path: Path) -> None:
    """An empty folder, a broken file, a path that is not there: the message names it."""
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "tokenizer.json").write_text("{}")
    for place in (tmp_path, tmp_path / "broken", tmp_path / "no" / "such" / "place"):
        with pytest.raises(ConfigError) as refused:
            load(str(place))
        assert str(place) in refused.value.message
        assert "\n" not in refused.value.message


def test_c31_each_model_may_have_its_own_tokenizer(tmp_path: Path) -> None:
    """`MODEL=PATH` is for one model, a bare path for all others; naming one twice is refused."""
    one, two = models.write(tmp_path / "one"), models.write(tmp_path / "two", None)
    found = load_all([str(one), f"org/b={two}"])
    assert found.of("a") is found.of(None) is not found.of("org/b")
    assert found.of("org/b") is not None
    only = load_all([f"b={two}"])
    assert only.of("a") is None
    with pytest.raises(ConfigError):
        load_all([str(one), str(two)])


def test_r098_the_garbage_collector_does_not_look_at_chains() -> None:
    """A look at each number of many long prompts would hold up everybody."""
    chains = Chains()
    made = chains.of([(1, bytes(64)), (2, bytes(64)), (0, bytes(64))], 16)
    assert len(made) == 3
    assert not gc.is_tracked(made)
    assert not gc.is_tracked(chains.of([(1, bytes(64)), (2, bytes(64)), (3, bytes(64))], 16))


def test_chains_of_pieces_are_chains_of_all_tokens() -> None:
    """However a prompt is cut, its hashes are those of its tokens; what was seen before is not hashed again."""
    dice = random.Random(4)
    chains = Chains()
    for _ in range(200):
        numbers = [dice.randrange(1 << 32) for _ in range(dice.randrange(400))]
        cuts = sorted(dice.randrange(len(numbers) + 1) for _ in range(dice.randrange(6)))
        borders = list(zip([0, *cuts], [*cuts, len(numbers)], strict=True))
        pieces = [(hash((place, tuple(numbers[a:b]))) & 0xFFFF_FFFF or 1, struct.pack(f"<{b - a}I", *numbers[a:b]))
                  for place, (a, b) in enumerate(borders)]  # fmt: skip
        size, first = dice.choice((1, 4, 16)), dice.choice((0, 77))
        for _ in range(2):
            assert list(chains.of(pieces, size, first)) == chain(numbers, size, first)
        grown = [*pieces[:-1], (dice.randrange(1, 1 << 62), pieces[-1][1] + struct.pack("<I", 3))]
        grown.append((0, struct.pack("<I", 4)))
        assert list(chains.of(grown, size, first)) == chain([*numbers, 3, 4], size, first)


def test_memory_is_bounded() -> None:
    """Least recently used entries leave first; what alone is too large is not kept."""
    memo: Memo[int, bytes] = Memo(3000)
    for number in range(10):
        memo.put(number, b"x", 800)
        memo.get(0)
    assert memo.size <= 3000
    assert memo.get(0) == b"x"
    assert memo.get(9) == b"x"
    assert memo.get(5) is None
    memo.put(11, b"y", 5000)
    assert memo.get(11) is None
