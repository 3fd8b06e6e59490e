"""What was worked out before, kept within bounds, for several threads (rulings 18)."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from infera_cli.tokens.memo import Memo


@pytest.fixture
def eager() -> Iterator[None]:
    """Threads take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("eager")
def test_threads_may_read_and_write_at_once() -> None:
    """Nothing raises, a key never gives another one's value, and the size is that of what is there."""
    memo: Memo[int, int] = Memo(40 * 250)

    def work(seed: int) -> int:
        dice = random.Random(seed)
        wrong = 0
        for _ in range(4000):
            key = dice.randrange(80)
            found = memo.get(key)
            wrong += found is not None and found != key
            memo.put(key, key, 50)
        return wrong

    with ThreadPoolExecutor(4) as threads:
        assert sum(threads.map(work, range(4))) == 0
    assert memo.size == 250 * len(memo)
    assert memo.size <= memo.limit
