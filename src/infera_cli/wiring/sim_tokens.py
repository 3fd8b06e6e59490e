"""The simulated engine's own way to make tokens, for `--sim` without any tokenizer file."""

from __future__ import annotations

import re

from infera_cli.simulator import text
from infera_cli.tokens.prompts import Prompts
from infera_cli.tokens.template import ChatTemplate
from infera_cli.tokens.vocabulary import pack

_TEMPLATE = (
    "{% if tools %}{{ '<|im_start|>system\\n# Tools\\n' + (tools | tojson) + '<|im_end|>\\n' }}{% endif %}"
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message.role + '\\n' + message.content }}"
    "{% if message.tool_calls %}{{ message.tool_calls | tojson }}{% endif %}"
    "{{ '<|im_end|>\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


class SimWords:
    """simulator.text as tokens.prompts.Words."""

    border: re.Pattern[str] | None = re.compile("|".join(map(re.escape, text.SPECIALS)))
    before = b""
    after = b""
    exact = True
    why = ""

    def encode(self, text_: str, *, specials: bool = False) -> bytes:
        """See Words."""
        return pack(text.encode(text_))

    def unknown(self, text_: str) -> int:
        """See Words."""
        return 0


def sim_prompts() -> Prompts:
    """Tokens as simulated engines make them."""
    return Prompts(SimWords(), ChatTemplate(_TEMPLATE, {}))


BUILT_IN = {"sim": sim_prompts}
"""In place of a path of a tokenizer."""
