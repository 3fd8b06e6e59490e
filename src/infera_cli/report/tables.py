"""Tables on a terminal that fit into it: closer together, heads in two lines, then without the columns that say least.

A number is never cut nor wrapped, and neither is the first column, which says what a line is about.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence

from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType
from rich.table import Table
from rich.text import Text

USUAL = 110         # columns of what is no terminal
NARROWEST = 40
GAPS = {3: (0, 1, 0, 1), 2: (0, 1, 0, 0), 1: (0, 0, 0, 0)}    # between columns: the padding of a cell that gives it


def width() -> int:
    """The columns of the terminal that stdout is, else the usual."""
    return max(NARROWEST, shutil.get_terminal_size().columns) if sys.stdout.isatty() else USUAL


class Grid:
    """A table. `words` are the places of columns of words, which may wrap; `spare` those that go first, in
    order; `left` those that begin at the left."""

    def __init__(
        self, heads: Sequence[str], lines: Iterable[Sequence[str]], *, title: str = "", words: Sequence[int] = (),
        spare: Sequence[int] = (), left: Sequence[int] = (0,), styles: Sequence[str] = (), plain: bool = False,
    ) -> None:
        self._heads, self._lines = heads, list(lines)
        self._title, self._words, self._spare, self._left = title, words, spare, left
        self._styles, self._plain = styles, plain

    def __rich_console__(self, _console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        shown, gap, folded = self._layout(options.max_width)
        widths = {place: self._width(place, folded=folded) for place in shown}
        left = options.max_width - sum(widths.values()) - gap * (len(shown) - 1)
        if left < 0:
            widths[0] = max(1, widths[0] + left)
        for place in self._words:
            more = min(max(left, 0), self._width(place, folded=False) - widths[place])
            widths[place], left = widths[place] + more, left - more
        yield self._table(widths, gap)
        missing = [self._heads[place] for place in range(len(self._heads)) if place not in widths]
        if missing:
            yield Text(f"too narrow for {', '.join(missing)}", style="dim")

    def _layout(self, space: int) -> tuple[list[int], int, bool]:
        """(places of the columns shown, gap between them, whether heads and words are folded)."""
        shown = list(range(len(self._heads)))
        for gap, folded in ((3, False), (2, False), (2, True), (1, True)):
            if self._fits(shown, gap, space, folded=folded):
                return shown, gap, folded
        for place in self._spare:
            shown.remove(place)
            for gap in (2, 1):
                if self._fits(shown, gap, space, folded=True):
                    return shown, gap, True
        return shown, 1, True

    def _fits(self, shown: Sequence[int], gap: int, space: int, *, folded: bool) -> bool:
        return sum(self._width(place, folded=folded) for place in shown) + gap * (len(shown) - 1) <= space

    def _width(self, place: int, *, folded: bool) -> int:
        head, cells = self._heads[place], [line[place] for line in self._lines]
        pieces = [*head.split(), *cells] if folded else [head, *cells]
        if folded and place in self._words:
            pieces = [word for piece in pieces for word in piece.split()]
        return max((cell_len(piece) for piece in pieces), default=1) or 1

    def _table(self, widths: dict[int, int], gap: int) -> Table:
        table = Table(
            title=self._title or None, title_justify="left", box=None if self._plain else box.SIMPLE_HEAD,
            show_header=not self._plain, pad_edge=False, show_edge=False, padding=GAPS[gap],
        )
        for place, wide in widths.items():
            head = self._heads[place]
            table.add_column(
                head if cell_len(head) <= wide else head.replace(" ", "\n"), width=wide, overflow="fold",
                justify="left" if place in self._left else "right", vertical="top",
            )
        styles = self._styles or [""] * len(self._lines)
        for line, style in zip(self._lines, styles, strict=True):
            table.add_row(*(line[place] for place in widths), style=style)
        return table
