"""A table of measurements and the bars they meet or miss, as a page under bench/results/."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from bench import machine

RESULTS = Path(__file__).with_name("results")


@dataclass(frozen=True)
class Bar:
    """A promise: what is claimed, what is allowed, what was measured."""

    claim: str
    allowed: str
    measured: str
    met: bool


def grid(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def compared(
    found: Mapping[str, Sequence[tuple[float, float]]], claim: str, *, against: str, limit: float, places: int
) -> tuple[list[tuple[str, ...]], list[Bar]]:
    """Rows (kind, medians of both, median ratio) of rounds of (usual, ours) by kind, and what each kind has to keep."""
    rows, bars = [], []
    for kind, rounds in found.items():
        ratio = median(ours / usual for usual, ours in rounds)
        medians = [f"{median(column):.{places}f}" for column in zip(*rounds, strict=True)]
        rows.append((kind, *medians, f"{ratio:.2f}"))
        bars.append(Bar(f"{claim}, {kind}", f"≤ {limit:g} × {against}", f"{ratio:.2f} ×", ratio <= limit))
    return rows, bars


def publish(out: Path, title: str, *, how: str, tables: Sequence[str], bars: Sequence[Bar]) -> bool:
    """Write the page and print its bars; whether all are met. `how` says how the figures were obtained."""
    about = ", ".join(f"{key} {value}" for key, value in machine.describe().items())
    verdicts = [(bar.claim, bar.allowed, bar.measured, "met" if bar.met else "MISSED") for bar in bars]
    parts = [f"# {title}", f"{about}.", how, *tables, grid(("bar", "allowed", "measured", ""), verdicts)]
    out.write_text("\n\n".join(parts) + "\n", encoding="utf-8")
    for claim, allowed, measured, verdict in verdicts:
        print(f"{claim}: {measured}, allowed {allowed}: {verdict}")
    print(f"written to {out}")
    return all(bar.met for bar in bars)
