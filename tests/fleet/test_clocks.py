"""Clocks that jump: what ends after a time is measured by one that does not (R085)."""

from __future__ import annotations

import ast
import inspect
import time
from pathlib import Path

import pytest

import infera_cli
from infera_cli.fleet.kv_feed.feed import KvFeed
from infera_cli.fleet.kv_feed.intake import Intake
from infera_cli.fleet.sources.etcd import EtcdSource

SOURCES = Path(infera_cli.__file__).parent
WALL = {"time.time", "time.time_ns", "time.localtime", "time.gmtime", "datetime.now", "datetime.utcnow", "date.today"}


@pytest.mark.parametrize("part", ["fleet", "routing"])
def test_nobody_there_asks_for_the_time_of_day(part: str) -> None:
    """Leases, breakers, pins, promises and views end by monotonic time alone."""
    files = sorted((SOURCES / part).rglob("*.py"))
    asked = [
        f"{file.name}:{node.lineno}" for file in files for node in ast.walk(ast.parse(file.read_text()))
        if (isinstance(node, ast.Attribute) and ast.unparse(node) in WALL)
        or (isinstance(node, ast.ImportFrom) and node.module in ("time", "datetime"))
    ]  # fmt: skip
    assert len(files) > 10
    assert asked == []


@pytest.mark.parametrize("owner", [Intake, KvFeed, EtcdSource])
def test_clocks_are_monotonic_unless_told_otherwise(owner: type) -> None:
    """The default of each `clock` is the one that never jumps."""
    assert inspect.signature(owner).parameters["clock"].default is time.monotonic
