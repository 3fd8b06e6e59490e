"""What was measured, as plain values: samples by scenario and contender, one a round."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median


@dataclass
class Results:
    """`samples[scenario][contender]` holds one value a round; `missing` says why somebody has none."""

    about: dict[str, str] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    samples: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    failures: dict[str, int] = field(default_factory=dict)

    def add(self, scenario: str, contender: str, value: float) -> None:
        """One round's value."""
        self.samples.setdefault(scenario, {}).setdefault(contender, []).append(value)

    def fail(self, scenario: str, contender: str, count: int) -> None:
        """`count` requests failed, which makes a cost per request doubtful; the table says so."""
        if count:
            key = f"{scenario}, {contender}"
            self.failures[key] = self.failures.get(key, 0) + count

    def value(self, scenario: str, contender: str) -> float:
        """The median over the rounds; NaN when it was not measured."""
        rounds = self.samples.get(scenario, {}).get(contender)
        return median(rounds) if rounds else math.nan

    def compare(self, scenario: str, ours: str, theirs: str, *, difference: bool = False) -> float:
        """The median over the rounds of ours ÷ theirs (or ours − theirs) in one round; NaN without both."""
        measured = self.samples.get(scenario, {})
        pairs = list(zip(measured.get(ours, []), measured.get(theirs, []), strict=False))
        if not pairs:
            return math.nan
        return median(a - b if difference else a / b if b else math.nan for a, b in pairs)

    def save(self, path: Path) -> None:
        """All of it, as JSON."""
        path.write_text(json.dumps(asdict(self), indent=1) + "\n")
