"""Tokens of a Messages request, counted here: no slot, no pin, no load on any engine (R056)."""

from __future__ import annotations

from typing import Protocol

from infera_cli.protocol.prompt_body import read
from infera_cli.tokens.prompts import Chat, Prompts, Told
from infera_cli.tokens.template import Unrenderable

_STYLE = "vllm"
"""Engines make the same tokens of a chat, save for specials at its beginning."""


class TokenizersOf(Protocol):
    """The tokenizers that are configured."""

    def of(self, model: str | None) -> Prompts | None:
        """The one for `model`."""


class PromptCounter:
    """A `desk.Counter` over the tokenizers that are configured."""

    def __init__(self, tokenizers: TokenizersOf) -> None:
        self._tokenizers = tokenizers

    def __call__(self, model: str | None, chat: bytes) -> int | None:
        """Tokens of the prompt of a chat body; None where images or the template are beyond this."""
        prompts = self._tokenizers.of(model)
        body = read(chat)
        if prompts is None or body is None or body.media is not None:
            return None
        messages = [Told(role, raw) for role, raw in body.messages]
        try:
            pieces = prompts.chat(_STYLE, Chat(messages, body.tools, body.rest)).run()
        except Unrenderable:
            return None
        return sum(len(packed) for _, packed in pieces) // 4
