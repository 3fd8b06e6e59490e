"""What all rewritten requests share, and which routes are rewritten at all."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from infera_cli.gateway.relay import Relay
from infera_cli.gateway.relayed import RELAYED
from infera_cli.gateway.translation.aliases import Aliases
from infera_cli.gateway.translation.relay import AliasedRelay, CountRelay, MessagesRelay, ResponsesRelay
from infera_cli.gateway.translation.speakers import Speakers


class Counter(Protocol):
    """A tokenizer of ours."""

    def __call__(self, model: str | None, chat: bytes) -> int | None:
        """Tokens of a chat body's prompt, None where that model's are not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Desk:
    """`keepalive`: seconds of silence after which a translated stream is pinged, 0 for never."""

    speakers: Speakers
    aliases: Aliases = field(default_factory=Aliases)
    keepalive: float = 15.0
    counter: Counter | None = None


_TRANSLATED: dict[bytes, type[Relay]] = {
    b"/v1/messages": MessagesRelay, b"/v1/messages/count_tokens": CountRelay, b"/v1/responses": ResponsesRelay,
}  # fmt: skip


def kinds_of(aliases: Aliases) -> dict[bytes, type[Relay]]:
    """The relay of each route that is not simply passed on."""
    plain = {path.encode(): AliasedRelay for path in RELAYED} if aliases else {}
    return {**plain, **_TRANSLATED}
