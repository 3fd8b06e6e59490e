"""What an engine says of tokens, as far as it is read; apart from its reader, which is compiled."""

from __future__ import annotations

import msgspec


class Details(msgspec.Struct, gc=False):
    """OpenAI's part on the prompt."""

    cached_tokens: int | None = None


class Numbers(msgspec.Struct, gc=False):
    """A usage object of OpenAI's or Anthropic's."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: Details | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_input_tokens: int | None = None


class Rest(msgspec.Struct, gc=False):
    """The end of an answer."""

    usage: Numbers | None = None


decode = msgspec.json.Decoder(Rest).decode
decode_all = msgspec.json.Decoder(list[Rest]).decode
UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
