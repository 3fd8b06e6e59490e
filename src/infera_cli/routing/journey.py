"""A request's life as a table; an illegal move raises and changes nothing (design.md §4; style.md 2).

The rule that matters most stands in it: from `answering` nothing leads back to `routed`, so a request whose
first byte went to the client is never sent twice.
"""

from __future__ import annotations

from typing import Final, Literal

from infera_cli.errors import IllegalMove

State = Literal["received", "admitted", "routed", "sent", "answering", "done", "failed", "gone", "refused"]
"""received: head read; admitted: let in; routed: a worker chosen, nothing sent; sent: bytes are on their way;
answering: bytes went to the client; then one of the ends: done, failed (the fleet's fault), gone (the client
left), refused (by us, before any worker was asked)."""

MOVES: Final[dict[str, frozenset[str]]] = {
    "received": frozenset(("admitted", "refused", "failed", "gone")),
    "admitted": frozenset(("routed", "refused", "failed", "gone")),
    "routed": frozenset(("routed", "sent", "failed", "gone")),
    "sent": frozenset(("routed", "answering", "failed", "gone")),
    "answering": frozenset(("done", "failed", "gone")),
    "done": frozenset(),
    "failed": frozenset(),
    "gone": frozenset(),
    "refused": frozenset(),
}
"""State → where it may go. `routed` to itself: the connection failed before anything was sent (rulings 2)."""

_MAY_RETRY: Final = frozenset(state for state, nexts in MOVES.items() if "routed" in nexts)


class Journey:
    """Where one request is."""

    __slots__ = ("state",)

    def __init__(self) -> None:
        self.state: State = "received"

    def move(self, state: State) -> None:
        """Go on to `state`. Raises IllegalMove."""
        if state not in MOVES[self.state]:
            raise IllegalMove(f"A request that is {self.state} cannot become {state}.")
        self.state = state

    @property
    def may_retry(self) -> bool:
        """Whether it may be given to a worker (again): it was let in and no byte of an answer went out."""
        return self.state in _MAY_RETRY

    @property
    def ended(self) -> bool:
        """Whether it is over, one way or another."""
        return not MOVES[self.state]
