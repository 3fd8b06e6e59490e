"""Running a benchmark from a test, and what came out: figures, and a row per request."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec

from infera_cli.loadtest.bench import Bench, Plan
from infera_cli.loadtest.job import DatasetSpec, Progress
from infera_cli.loadtest.options import Options
from infera_cli.workload.result import Document, Run

SHORT = DatasetSpec(input_len=8, output_len=4)


class Quiet:
    """A watcher that keeps what it was told."""

    def __init__(self) -> None:
        self.plans: list[Plan] = []
        self.progress: list[Progress] = []

    def begins(self, plan: Plan) -> None:
        self.plans.append(plan)

    def goes(self, progress: list[Progress]) -> None:
        self.progress += [msgspec.structs.replace(one) for one in progress]

    def ended(self, run: Run) -> None:
        assert run.figures.counts.sent >= 0


def document(url: str, *, details: Path | None = None, watcher: Quiet | None = None, **options: Any) -> Document:
    """Run a benchmark against `url`."""
    return Bench(Options(url, **{"dataset": SHORT, **options}), watcher or Quiet(), details=details).run()


def run(url: str, *, details: Path | None = None, **options: Any) -> Run:
    """Run one cell against `url`."""
    found = document(url, details=details, **options).runs
    assert len(found) == 1
    return found[0]


def rows(details: Path) -> list[dict[str, Any]]:
    """The requests of a run, by number."""
    found = [json.loads(line) for line in details.read_text().splitlines()]
    return sorted(found, key=lambda row: (row["index"], row["turn"]))


def prompts(folder: Path, names: list[str]) -> DatasetSpec:
    """A dataset whose prompts are `names`, so that a target knows which script to play."""
    path = folder / "prompts.jsonl"
    path.write_text("".join(json.dumps({"prompt": name}) + "\n" for name in names))
    return DatasetSpec(name="openai", path=str(path), output_len=None)
