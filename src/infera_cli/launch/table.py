"""The fleet as a launcher sees it."""

from __future__ import annotations

from typing import Protocol

from infera_cli.launch.plan import Launch
from infera_cli.launch.state import Record


class Table(Protocol):
    """What the supervisor needs of the fleet; a replica's name is its slot's."""

    def enter(self, record: Record, launch: Launch, *, ready: bool) -> bool:
        """A replica came, owned; False where its name or address belongs to another."""

    def leave(self, name: str) -> None:
        """It went; nothing is no fault."""

    def drain(self, name: str) -> None:
        """Give it no new work."""

    def outstanding(self, name: str) -> int:
        """Requests open on it."""

    def is_ready(self, name: str) -> bool:
        """As far as probes tell."""

    def is_draining(self, name: str) -> bool:
        """It was told to take no new work."""
