"""A world for each test."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from tests.fleet.kv_feed.worlds import Noise, Publisher, World


@pytest.fixture
async def world() -> AsyncIterator[World]:
    made = World()
    yield made
    made.feed.close()
    for publisher in list(Publisher.made):
        publisher.close()


@pytest.fixture
def noise() -> Iterator[Noise]:
    made = Noise()
    yield made
    made.close()
