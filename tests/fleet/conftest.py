"""A real etcd for the tests of discovery."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.etcd import Etcd


@pytest.fixture
def etcd(tmp_path: Path) -> Iterator[Etcd]:
    """An empty etcd that runs."""
    server = Etcd(tmp_path)
    server.start()
    yield server
    server.stop()
