"""Template variables of a request: those that the template looks at decide its text, and what is remembered of it."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from infera_cli.tokens.load import load
from infera_cli.tokens.prompts import CUTTERS, Prompts
from infera_cli.tokens.template import ChatTemplate
from tests.tokens import models, templates
from tests.tokens.test_prompts import assistant, chat_of, ids, user

WITH_DOCUMENTS = "{% for d in documents or [] %}<|im_start|>{{ d.t }}<|im_end|>{% endfor %}" + templates.THINKING
LONG = "lorem ipsum dolor " * 60
TALK = [user("a"), *(turn for n in range(20) for turn in (assistant(f"{n} {LONG}"), user(f"q{n}")))]


def loaded(folder: Path, template: str) -> Prompts:
    prompts = load(str(models.write(folder, template)))
    assert prompts.cuts
    return prompts


def cost(prompts: Prompts, messages: list[dict[str, Any]] = TALK, **rest: Any) -> int:
    """In characters, of a prompt that is then worked out, and is as in one piece."""
    job = prompts.chat("vllm", chat_of(messages, **rest))
    found = job.cost
    assert prompts.template is not None
    more = {**rest.get("chat_template_kwargs", {}), **{key: rest[key] for key in rest if key == "documents"}}
    whole = prompts.words.encode(prompts.template.render(messages, more=more))
    assert b"".join(part for _, part in job.run()) == whole
    return found


@pytest.mark.parametrize(
    ("source", "uses"),
    [
        (templates.CHATML, set()), (templates.THINKING, {"enable_thinking"}), (templates.HEADERS, {"bos_token"}),
        ("{% if not a is defined %}{% set a = 1 %}{% endif %}{{ a }}", {"a"}),
        ("{% macro f(b) %}{{ b }}{{ c }}{% endmacro %}{{ f(1) }}", {"c"}), ("{% set d = d | default(1) %}", {"d"}),
        ("{% for m in messages %}{% if loop.first and e %}{% endif %}{% endfor %}", {"e"}),
        ("{% generation %}{{ f }}{% endgeneration %}", {"f"}),
        ("{% block x %}{{ g }}{% endblock %}{{ self.x() }}", {"g"}),
        ("{{ tools }}{{ add_generation_prompt }}{{ h.messages }}", {"h"}),
    ],
)  # fmt: skip
def test_a_template_says_what_it_uses(source: str, uses: set[str]) -> None:
    """Also where it gives a name a value of its own, if it may look at the request's first."""
    assert ChatTemplate(source, {}).uses == uses


def test_what_the_template_does_not_use_decides_nothing(tmp_path: Path) -> None:
    """Each request brings other documents, and all but the first cost nothing."""
    prompts = loaded(tmp_path, templates.THINKING)
    cost(prompts)
    for number in range(40):
        assert cost(prompts, documents=[{"t": f"d{number}"}], chat_template_kwargs={"x": number}) == 0
    job = prompts.chat("vllm", chat_of(TALK, reasoning_effort="low", chat_template_kwargs={"enable_thinking": True}))
    other = prompts.chat("vllm", chat_of(TALK, chat_template_kwargs={"enable_thinking": True}))
    assert ids(job.run()) == ids(other.run())


def test_a_set_that_comes_again_is_remembered_however_many_came_before(tmp_path: Path) -> None:
    """The first time in one piece, the second with the proof, and then a turn costs its own text."""
    prompts = loaded(tmp_path, WITH_DOCUMENTS)
    for number in range(3 * CUTTERS):
        assert cost(prompts, documents=[{"t": f"d{number}"}]) < 1 << 20, "no proof for what comes once"
        cost(prompts, documents=[{"t": f"e{number}"}])
        cost(prompts, documents=[{"t": f"e{number}"}])
    late: dict[str, Any] = {"chat_template_kwargs": {"enable_thinking": False}}
    assert len(LONG) < cost(prompts, **late) < 1 << 20
    assert cost(prompts, [*TALK, assistant("b"), user("c")], **late) > 1 << 20
    assert cost(prompts, [*TALK, assistant("b"), user("d")], **late) < 400
    assert len(prompts._cutters) <= CUTTERS


def test_the_sets_in_use_stay(tmp_path: Path) -> None:
    """What is asked for between others is not let go."""
    prompts = loaded(tmp_path, WITH_DOCUMENTS)
    quiet: dict[str, Any] = {"chat_template_kwargs": {"enable_thinking": False}}
    for number in range(2):
        cost(prompts, [*TALK, user(f"q{number}")][:-2], **quiet)
    cost(prompts, TALK[:-2], **quiet)
    for number in range(2 * CUTTERS):
        for turn in range(2):
            cost(prompts, [*TALK, assistant("b"), user(f"{turn}")], documents=[{"t": f"d{number}"}])
        assert cost(prompts, [*TALK, assistant("b"), user(f"q{number}")], **quiet) < 1 << 20


def test_a_set_larger_than_a_conversation_is_not_kept(tmp_path: Path) -> None:
    """It is rendered whole each time."""
    prompts = loaded(tmp_path, WITH_DOCUMENTS)
    for number in range(3):
        more = [*TALK, assistant("b"), user(f"{number}")]
        assert len(LONG) < cost(prompts, more, documents=[{"t": "x" * 70_000}]) < 1 << 20
    assert len(prompts._cutters) == 0


def test_threads_may_bring_new_sets_at_the_same_time(tmp_path: Path) -> None:
    """More of them than are kept, and every text is right."""
    prompts = loaded(tmp_path, WITH_DOCUMENTS)

    def work(seed: int) -> None:
        dice = random.Random(seed)
        for _ in range(30):
            cost(prompts, TALK[: 2 * dice.randrange(2, 6) + 1], documents=[{"t": f"d{dice.randrange(20)}"}])

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    assert len(prompts._cutters) <= CUTTERS
