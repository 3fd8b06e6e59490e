"""The members of a body that `prompt_text` reads: plain chat bodies the fast way, all others as they come."""

from __future__ import annotations

import msgspec

from infera_cli.protocol import extensions
from infera_cli.protocol.peek_members import Members

SYSTEM = frozenset({"system", "developer"})
"""The roles that speak for the operator."""


class Said(msgspec.Struct, forbid_unknown_fields=True, gc=False, rename={"text": "content"}):
    """A message that is a text and nothing else; a number stands for a text that was taken out."""

    role: str
    text: str | int


class Chat(Members, kw_only=True, rename={"x_inferact": extensions.NAME}):
    """A chat body whose messages all are."""

    messages: list[Said]
    max_completion_tokens: object = None
    max_tokens: object = None
    stream: object = None
    x_inferact: object = msgspec.UNSET
    system: msgspec.UnsetType = msgspec.UNSET
    instructions: msgspec.UnsetType = msgspec.UNSET


class Body(Members, rename={"x_inferact": extensions.NAME}):
    """Any body."""

    messages: object = None
    system: object = None
    prompt: object = None
    instructions: object = None
    input: object = None
    max_completion_tokens: object = None
    max_tokens: object = None
    max_output_tokens: object = None
    stream: object = None
    x_inferact: object = msgspec.UNSET


decode_chat = msgspec.json.Decoder(Chat).decode
decode_any = msgspec.json.Decoder(Body).decode
