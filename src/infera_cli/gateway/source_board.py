"""What `/health` says of the places that workers come from: whether each could be read last time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath

from infera_cli.events import Bus, Event, Reloaded
from infera_cli.gateway.endpoints.parts import SourceState


class SourceBoard:
    """Listens to reloads; call it for the states, in the order of `sources` and then of first mention.

    A file goes by its name alone: everybody may look, and folders are nobody's business.
    """

    def __init__(self, bus: Bus, sources: Sequence[str] = ()) -> None:
        self._stale = dict.fromkeys(sources, False)
        bus.subscribe(self._hear, Reloaded)

    def __call__(self) -> Sequence[SourceState]:
        """All states now."""
        return [SourceState(name=PurePath(name).name, stale=stale) for name, stale in self._stale.items()]

    def _hear(self, event: Event) -> None:
        if isinstance(event, Reloaded):
            self._stale[event.source] = event.error is not None
