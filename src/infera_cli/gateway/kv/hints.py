"""`--inject-retention`: every attempt tells its engine how long the prompt should stay (infera-wire §4.6)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infera_cli.errors import InferaError
from infera_cli.events import Outcome
from infera_cli.gateway.upstream.receiver import Receiver
from infera_cli.protocol.retention import Hint, with_hint
from infera_cli.routing.health import Score
from infera_cli.routing.types import Worker

if TYPE_CHECKING:
    from infera_cli.gateway.relay import Relay


_GENERATING = frozenset({b"/v1/chat/completions", b"/v1/completions", b"/v1/messages", b"/v1/responses"})


def takes_hints(target: bytes) -> bool:
    """Whether a request to this path and query has a prompt whose cache is worth a word."""
    return target.partition(b"?")[0] in _GENERATING


class HintedTrip:
    """A gateway.plan.Trip that goes the usual way, and writes `hint` into what is sent."""

    __slots__ = ("_hint", "_plain", "_relay", "_translated")

    stays = False
    limit: float | None = None

    def __init__(self, relay: Relay, hint: Hint) -> None:
        self._relay = relay
        self._hint: Hint = hint
        self._plain: bytes | bytearray | None = None
        self._translated: bytes | None = None

    def route(self, now: float) -> None:
        """See Trip."""
        relay = self._relay
        decision, relay.lease = relay.gate.dispatcher.route(relay.ask, now)
        relay.placed(decision)

    def receiver(self, relay: Relay) -> Receiver:
        """See Trip: the last moment before the body goes out. Another attempt may go to another kind of engine."""
        assert relay.lease is not None  # noqa: S101 - it is about to be sent there
        engine = relay.lease.worker.spec.engine
        if relay.body is not None:
            self._plain = relay.body if self._plain is None else self._plain
            relay.body = with_hint(self._plain, engine, self._hint)
            relay.bytes_in = len(relay.body)
        translation = getattr(relay, "translation", None)
        if translation is not None:
            self._translated = translation.body if self._translated is None else self._translated
            translation.body = with_hint(self._translated, engine, self._hint)
        return relay

    def overdue(self, now: float) -> str:
        """See Trip."""
        return ""

    def scored(self, worker: Worker, score: Score, now: float) -> None:
        """See Trip."""

    def gave_up(self, error: InferaError, outcome: Outcome) -> bool:
        """See Trip."""
        return False

    def ended(self, outcome: Outcome) -> None:
        """See Trip."""
