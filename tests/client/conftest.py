"""The stub server for every test of the client."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.client.stub import Stub, serving


@pytest.fixture
def stub() -> Iterator[Stub]:
    with serving() as running:
        yield running
