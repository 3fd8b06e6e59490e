"""What was promised, and whether it holds; a figure that was not measured is never met (rulings 28)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from bench.results import Results
from bench.scenarios import LARGE_FLEET, SMALL_FLEET, STREAMED, UNARY

OURS, NGINX, VLLM = "infera", "nginx", "vllm-router round-robin"


@dataclass(frozen=True)
class Bar:
    """`measure(results)` must not exceed `limit`."""

    claim: str
    limit: float
    measure: Callable[[Results], float]
    unit: str = "×"

    def verdict(self, results: Results) -> tuple[str, str]:
        """The figure as text, and `met`, `missed` or `NOT MEASURED`."""
        figure = self.measure(results)
        if math.isnan(figure):
            return "–", "NOT MEASURED"
        return f"{figure:.2f} {self.unit}", "met" if figure <= self.limit else "missed"

    @property
    def allowed(self) -> str:
        """The limit as text."""
        return f"≤ {self.limit:g} {self.unit}"


def _ratio(scenario: str, theirs: str, ours: str = OURS) -> Callable[[Results], float]:
    return lambda results: results.compare(scenario, ours, theirs)


def _added(scenario: str, theirs: str) -> Callable[[Results], float]:
    return lambda results: results.compare(scenario, OURS, theirs, difference=True)


def _value(scenario: str) -> Callable[[Results], float]:
    return lambda results: results.value(scenario, OURS)


def _growth(results: Results) -> float:
    return results.value("memory after many", OURS) / results.value("memory after few", OURS)


BARS = (
    *(Bar(f"{name}: CPU against vllm-router", 0.6, _ratio(name, VLLM)) for name in UNARY),
    *(Bar(f"{name}: CPU against nginx", 2, _ratio(name, NGINX)) for name in UNARY),
    *(Bar(f"{name}: CPU against nginx", 1.1, _ratio(name, NGINX)) for name in STREAMED),
    *(
        Bar(f"{name}: 512 replicas against 4", 2, _ratio(f"fleet, {name}", SMALL_FLEET, LARGE_FLEET))
        for name in ("unary 2 KB", "unary 2 KB, sessions")
    ),
    Bar("200 requests/s: added p50 over direct", 0.5, _added("latency p50", "direct"), "ms"),
    Bar("200 requests/s: added p99 over direct", 3, _added("latency p99", "direct"), "ms"),
    Bar("memory after 1,000,000 requests against 10,000", 1.1, _growth),
    Bar("memory with 2,000 slow streams", 600, _value("memory with streams"), "MB"),
    Bar("infera --help over a bare Typer application", 60, _added("--help", "bare Typer"), "ms"),
    Bar("/health from a cold start", 1.5, _value("/health after"), "s"),
)
