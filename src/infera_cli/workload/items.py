"""What is sent: an item is one conversation of one or more turns."""

from __future__ import annotations

from typing import Any, Protocol

import msgspec


class Turn(msgspec.Struct, frozen=True):
    """One message of the user, and how long the answer shall be.

    `output` in tokens, None: let the model decide. `think` is the pause in seconds between the previous
    answer and this turn; a replay sends it no earlier than `after` seconds from the first, either. `recorded` is the
    answer in the dataset, used when answers are not fed back.
    """

    text: str
    output: int | None = None
    think: float = 0.0
    after: float = 0.0
    recorded: str | None = None


class Item(msgspec.Struct, frozen=True):
    """One unit of load.

    `body` is a complete request of the
    dataset's own (OpenAI JSONL), sent as it is but for model and streaming. `asked` is the intended length
    of the first prompt in tokens, where there is one.
    """

    turns: tuple[Turn, ...]
    system: str = ""
    session: str | None = None
    body: dict[str, Any] | None = None
    asked: int | None = None


class Dataset(Protocol):
    """Items by number, so that every load process can make just its own share."""

    @property
    def size(self) -> int | None:
        """How many different items there are; None: as many as one likes."""

    def item(self, index: int) -> Item:
        """Item number `index`; a dataset that ends starts again."""


class Listed:
    """A dataset that was read from a file."""

    def __init__(self, items: list[Item]) -> None:
        self._items = items

    @property
    def size(self) -> int | None:
        """How many items the file has."""
        return len(self._items)

    def item(self, index: int) -> Item:
        """Item `index`, from the start again after the last."""
        return self._items[index % len(self._items)]
