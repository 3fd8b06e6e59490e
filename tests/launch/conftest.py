"""What the tests of launching share: a real etcd, and a folder that leaves no engine behind."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fleet.conftest import etcd
from tests.support.fleet import swept

__all__ = ["etcd", "folder"]


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder of the test's own; nothing that was launched below it outlives the test."""
    with swept(tmp_path) as path:
        yield path
