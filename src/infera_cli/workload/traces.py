"""Recorded arrivals: Mooncake JSONL, Azure CSV, BurstGPT CSV (bench-and-cli §A13).

A trace holds times and lengths, and for Mooncake which blocks are equal; the text is made up so that equal
prefixes stay equal. Every reader gives items sorted by time, with `at` in seconds from the first row.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from functools import lru_cache
from typing import Any

from infera_cli.errors import ConfigError
from infera_cli.workload import text
from infera_cli.workload.files import fault, numbered
from infera_cli.workload.items import Item, Turn

BLOCK = 512  # tokens a hash id stands for in Mooncake traces
MOST_TOKENS = 10_000_000    # of one prompt or answer
LATEST = 1e15               # milliseconds or seconds; time stamps of today are below
MEASURES = {"timestamp": "milliseconds", "delay": "milliseconds", "Timestamp": "seconds"}


class Row:
    """One recorded request: `at` in seconds, lengths in tokens."""

    __slots__ = ("at", "blocks", "delay", "output", "pin", "prompt", "session", "text")

    def __init__(self, at: float, prompt: int, output: int) -> None:
        self.at, self.prompt, self.output = at, prompt, output
        self.blocks: tuple[int, ...] = ()
        self.session: str | None = None
        self.pin: str | None = None     # a session key that goes along, without making rows one conversation
        self.delay = 0.0
        self.text: str | None = None


class Trace:
    """Rows as a dataset; prompts are made when they are asked for.

    Rows of one session become one conversation, turn after turn: each at its own time, but never before the answer to
    the one before it (bench-and-cli §B5). A block's text depends on
    (seed, block id) alone, so a repeated id repeats the text. Rows without a token of prompt or answer (a failure on
    the recorded service) are left out: no engine takes such a request.
    """

    def __init__(
        self, found: list[Row], seed: int, origin: str, *, block: int = BLOCK, count: text.Count | None = None
    ) -> None:
        rows = [row for row in found if row.output > 0 and (row.prompt > 0 or row.text)]
        if not rows:
            raise ConfigError(f"{origin}: the trace holds not one request{' with an answer' if found else ''}")
        self.left_out = len(found) - len(rows)
        rows.sort(key=lambda row: row.at)
        first = rows[0].at
        for row in rows:
            row.at -= first
        self._items = _by_session(rows)
        self._seed, self._size, self._count = seed, block, count
        self._block = lru_cache(maxsize=4096)(self._make_block)

    @property
    def size(self) -> int | None:
        """How many conversations the trace has."""
        return len(self._items)

    @property
    def sessions(self) -> list[list[Row]]:
        """The rows, each list one conversation, in the order of their beginnings."""
        return self._items

    @property
    def page(self) -> int:
        """Tokens that a block id stands for."""
        return self._size

    @property
    def span(self) -> float:
        """Seconds from the first conversation's start to the last's."""
        return self._items[-1][0].at

    def item(self, index: int) -> Item:
        """Conversation `index`; after the last the trace starts again, at the later time."""
        rows = self._items[index % len(self._items)]
        turns = tuple(
            Turn(self._prompt(row, index, turn), row.output, think=row.delay, after=row.at - rows[0].at)
            for turn, row in enumerate(rows)
        )
        return Item(turns=turns, session=rows[0].session or rows[0].pin, asked=rows[0].prompt)

    def at(self, index: int) -> float:
        """When conversation `index` begins, in seconds from the first."""
        lap, number = divmod(index, len(self._items))
        return self._items[number][0].at + lap * self.span

    def _prompt(self, row: Row, index: int, turn: int) -> str:
        if row.text is not None:
            return row.text
        length = row.prompt
        parts = [self._block(block) for block in row.blocks[: length // self._size]]
        rest = length - len(parts) * self._size
        if rest > 0 and len(row.blocks) > len(parts):   # the last, partial block has an id too
            dice = text.dice(self._seed, "block", row.blocks[len(parts)])
        else:
            dice = text.dice(self._seed, "own", index, turn)
        return " ".join([*parts, *([text.text(rest, dice, self._count)] if rest > 0 else [])])

    def _make_block(self, block: int) -> str:
        return text.text(self._size, text.dice(self._seed, "block", block), self._count)


def _by_session(rows: list[Row]) -> list[list[Row]]:
    items: list[list[Row]] = []
    open_sessions: dict[str, list[Row]] = {}
    for row in rows:
        if row.session is not None and row.session in open_sessions:
            open_sessions[row.session].append(row)
            continue
        items.append([row])
        if row.session is not None:
            open_sessions[row.session] = items[-1]
    return items


def _whole(value: Any, origin: str, number: int, what: str) -> int:
    try:
        exact = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        exact = math.nan
    if not exact.is_integer():
        raise fault(origin, number, f"{what} is {str(value)[:40]!r}, not a whole number")
    found = int(exact)
    if not 0 <= found <= MOST_TOKENS:
        wrong = "negative" if found < 0 else f"more than {MOST_TOKENS:,}"
        raise fault(origin, number, f"{what} is {wrong}")
    return found


def _amount(value: Any, origin: str, number: int, what: str) -> float:
    """A finite number, of seconds or milliseconds."""
    try:
        found = float(value)
    except (TypeError, ValueError, OverflowError):
        found = math.nan
    if not abs(found) <= LATEST:
        raise fault(origin, number, f"{what} is {str(value)[:40]!r}, not a number of {MEASURES[what]}")
    return found


# ── Mooncake ─────────────────────────────────────────────────────────────────────────────────────────
def mooncake(
    lines: Iterable[str], origin: str, seed: int, *, block: int = BLOCK, count: text.Count | None = None
) -> Trace:
    """`{"timestamp": ms, "input_length", "output_length", "hash_ids": […]}` a line.

    Read as well: `session_id`, `delay` (ms), `text_input`, the aliases `input_tokens`, `output_tokens`,
    `created_time`, `delay_ms`, and what `infera record` adds: `session`, the key a request came with, its prompt
    holding all of the conversation already, and `block_size`, which then counts instead of `block`.
    """
    rows: list[Row] = []
    size: int | None = None
    last: dict[str, float] = {}     # the time of a session's row, which the next one follows where it has none
    for number, raw in numbered(lines, origin):
        row = _mooncake_row(raw, origin, number, last)
        if row.session is not None:
            last[row.session] = row.at
        said = block if raw.get("block_size") is None else _whole(raw["block_size"], origin, number, "block_size")
        if said < 1:
            raise fault(origin, number, "block_size is not at least 1")
        if size not in (None, said):
            raise fault(origin, number, f"block_size is {said}, and {size} in the rows before: replay them one by one")
        size = said
        rows.append(row)
    return Trace(rows, seed, origin, block=size or block, count=count)


def _mooncake_row(raw: Any, origin: str, number: int, last: Mapping[str, float]) -> Row:
    if not isinstance(raw, dict):
        raise fault(origin, number, "a row is a JSON object")

    def first(*names: str) -> Any:
        return next((raw[name] for name in names if raw.get(name) is not None), None)

    at = first("timestamp", "created_time")
    if isinstance(at, str | bool):
        raise fault(origin, number, f"timestamp is {at!r}, not a number of milliseconds")
    session = None if raw.get("session_id") is None else str(raw["session_id"])
    row = Row(
        last.get(session or "", 0.0) if at is None else _amount(at, origin, number, "timestamp") / 1000,
        _whole(first("input_length", "input_tokens"), origin, number, "input_length"),
        _whole(first("output_length", "output_tokens"), origin, number, "output_length"),
    )
    ids = raw.get("hash_ids") or []
    if not isinstance(ids, list) or not all(isinstance(block, int) for block in ids):
        raise fault(origin, number, "hash_ids is not a list of whole numbers")
    row.blocks, row.text = tuple(ids), raw.get("text_input")
    if not isinstance(row.text, str | None):
        raise fault(origin, number, "text_input is not text")
    row.session = session
    row.pin = None if raw.get("session") is None else str(raw["session"])
    row.delay = max(0.0, _amount(first("delay", "delay_ms") or 0, origin, number, "delay") / 1000)
    return row


# ── CSV traces ───────────────────────────────────────────────────────────────────────────────────────
def azure(lines: Iterable[str], origin: str, seed: int, *, count: text.Count | None = None) -> Trace:
    """Azure LLM inference traces: `TIMESTAMP,ContextTokens,GeneratedTokens`, the time a date."""
    rows = []
    for number, raw in _table(lines, origin, ("TIMESTAMP", "ContextTokens", "GeneratedTokens")):
        row = Row(
            _date(raw["TIMESTAMP"], origin, number),
            _whole(raw["ContextTokens"], origin, number, "ContextTokens"),
            _whole(raw["GeneratedTokens"], origin, number, "GeneratedTokens"),
        )
        rows.append(row)
    return Trace(rows, seed, origin, count=count)


def burstgpt(lines: Iterable[str], origin: str, seed: int, *, count: text.Count | None = None) -> Trace:
    """BurstGPT: `Timestamp,Model,Request tokens,Response tokens,…`, the time in seconds."""
    rows = []
    for number, raw in _table(lines, origin, ("Timestamp", "Request tokens", "Response tokens")):
        row = Row(
            _amount(raw["Timestamp"], origin, number, "Timestamp"),
            _whole(raw["Request tokens"], origin, number, "Request tokens"),
            _whole(raw["Response tokens"], origin, number, "Response tokens"),
        )
        row.session = raw.get("Session ID") or None
        rows.append(row)
    return Trace(rows, seed, origin, count=count)


def _table(
    lines: Iterable[str], origin: str, columns: tuple[str, ...]
) -> Iterator[tuple[int, dict[str, str]]]:
    reader = csv.DictReader(lines)
    missing = [name for name in columns if name not in (reader.fieldnames or ())]
    if missing:
        raise fault(origin, 1, f"the header lacks {', '.join(missing)}")
    try:
        for raw in reader:
            if any(raw[name] is None for name in columns):
                raise fault(origin, reader.line_num, f"the row has fewer than {len(columns)} columns")
            yield reader.line_num, raw
    except csv.Error as error:
        raise fault(origin, reader.line_num + 1, f"not CSV ({error})") from None


def _date(value: str, origin: str, number: int) -> float:
    try:   # seven digits of a second are one more than fromisoformat takes
        head, dot, fraction = value.strip().partition(".")
        digits = "".join(c for c in fraction if c.isdigit()) if dot else ""
        seconds = datetime.fromisoformat(head)
    except ValueError:
        raise fault(origin, number, f"TIMESTAMP is {value!r}, not a date and time") from None
    return (seconds - datetime(1970, 1, 1, tzinfo=seconds.tzinfo)).total_seconds() + float(f"0.{digits or 0}")
