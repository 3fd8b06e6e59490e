"""Sources as `/health` shows them."""

from __future__ import annotations

from infera_cli.events import Bus, Reloaded, WorkerChanged
from infera_cli.gateway.endpoints.parts import SourceState
from infera_cli.gateway.source_board import SourceBoard


def test_refused_source_is_stale_until_it_can_be_read_again() -> None:
    """What was refused last time is stale, others are not; folders and reasons are not shown."""
    bus = Bus()
    board = SourceBoard(bus, ["/etc/infera/a.json", "b.json"])
    assert list(board()) == [SourceState(name="a.json"), SourceState(name="b.json")]
    bus.emit(Reloaded("b.json", "Line 3 is no JSON."))
    bus.emit(WorkerChanged("w", "ready"))
    assert list(board()) == [SourceState(name="a.json"), SourceState(name="b.json", stale=True)]
    bus.emit(Reloaded("b.json"))
    assert not any(state.stale for state in board())
