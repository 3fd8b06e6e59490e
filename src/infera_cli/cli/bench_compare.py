"""`infera bench compare`: results side by side, with confidence."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from infera_cli.cli import bench_files
from infera_cli.cli.console import console
from infera_cli.errors import ConfigError, UsageError


def compare_files(results: list[str], *, html: str | None, as_json: bool, seed: int) -> None:
    """Read results and show each next to the first. Raises ConfigError for what is no result."""
    from infera_cli.report import compared as report

    if html is not None:
        bench_files.possible(Path(html))
        if Path(html).resolve() in [Path(path).resolve() for path in results]:
            raise UsageError(f"--html {html} would overwrite one of the results")
    documents = [read(path) for path in results]
    found = [compare_documents(documents[0], other, seed) for other in documents[1:]]
    told = list(warnings(results, documents))
    lost: list[str] = []
    if html is not None:
        from infera_cli.report import page

        both = (documents[0], documents[1])
        drawn = page.comparison((results[0], results[1]), both, found[0], told)
        lost = bench_files.each({Path(html): drawn.encode})
    if as_json:
        console.json({"a": results[0], "warnings": told, "compared": [
            {"b": name, "cells": {cell: _plain(rows) for cell, rows in cells.items()}}
            for name, cells in zip(results[1:], found, strict=True)
        ]})
    else:
        for name, cells in zip(results[1:], found, strict=True):
            console.data(report.comparison((results[0], name), cells, colour=console.colour(sys.stdout)))
    for said in told:
        console.warn(said)
    if lost:
        raise ConfigError(lost[0])


def read(path: str) -> Any:
    """One result file, a `workload.result.Document`."""
    from infera_cli.workload.result import decode

    try:
        return decode(Path(path).read_bytes(), path)
    except OSError as fault:
        raise ConfigError(f"cannot read {path}: {fault.strerror}") from None


def compare_documents(a: Any, b: Any, seed: int) -> dict[str, list[Any]]:
    """Cell by cell, where both have the cell; one run each is compared whatever its name."""
    from infera_cli.workload import text
    from infera_cli.workload.comparison import compare

    first, second = a.cells(), b.cells()
    if len(first) == len(second) == 1:
        pairs = {"": (*first.values(), *second.values())}
    else:
        pairs = {cell: (first[cell], second[cell]) for cell in first if cell in second}
    if not pairs:
        raise ConfigError("the two results have no cell in common")
    return {
        cell: compare([run.figures for run in left], [run.figures for run in right], text.dice(seed, cell))
        for cell, (left, right) in pairs.items()
    }


def _plain(rows: list[Any]) -> list[dict[str, Any]]:
    import msgspec

    return [msgspec.to_builtins(row) for row in rows]


def warnings(names: list[str], documents: list[Any]) -> Iterator[str]:
    """What makes a comparison less than it seems."""
    from infera_cli.report import words

    for name, document in zip(names, documents, strict=True):
        if cut := words.interrupted(document):
            yield f"{name} is {cut}"
        bad = sorted({run.verdict.status for run in document.runs} - {"VALID"})
        if bad:
            yield f"{name} holds runs judged {', '.join(bad)}"
        if lost := words.lost(document):
            yield f"{name}: {lost}"
    options = [document.runs[0].options for document in documents if document.runs]
    loads = [{**found, **{f"dataset {name}": value for name, value in found.get("dataset", {}).items()}}
             for found in options]
    datasets = dict.fromkeys(key for load in loads for key in load if key.startswith("dataset "))
    for key in (*datasets, "rate", "concurrency", "cache", "model"):
        if len({str(load.get(key)) for load in loads}) > 1:
            yield f"the runs differ in {key}: {' / '.join(str(load.get(key, '-')) for load in loads)}"
