"""The members of a request's body that routing reads; apart from their reader, which is compiled."""

from __future__ import annotations

import msgspec


class Members(msgspec.Struct, gc=False):
    """Whatever they hold."""

    model: object = None
    session_id: object = None
    prompt_cache_key: object = None
    metadata: object = None


decode = msgspec.json.Decoder(Members).decode
UNREADABLE = (msgspec.DecodeError, RecursionError, UnicodeDecodeError)
