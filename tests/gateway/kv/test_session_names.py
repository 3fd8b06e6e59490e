"""What a completion that changed is said to have changed in (infera sessions)."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.kv.worlds import KvServer
from tests.support import raw
from tests.support.stub import StubWorker


@pytest.mark.parametrize(("first", "second"), [
    (list(range(200)), [7, *range(1, 200)]), ("word " * 200, "other " + "word " * 200),
])  # fmt: skip
async def test_a_changed_completion_is_its_prompt(tmp_path: Path, model: Path, first: Any, second: Any) -> None:
    """Tokens or text: it has no messages, and nothing of it is rendered."""
    async with contextlib.AsyncExitStack() as stack:
        workers = [await stack.enter_async_context(StubWorker("u0"))]
        server = await stack.enter_async_context(KvServer(workers, tmp_path, model))
        server.know_pages()
        for prompt in (first, second):
            answer = await raw.post(server.url, "/v1/completions", {"model": "m", "prompt": prompt},
                                    {"X-Session-Id": "s1"})  # fmt: skip
            assert answer.status == 200
        [row] = (await raw.get(server.url, "/v1/admin/sessions")).json()["sessions"]
        assert (row["part"], row["turn"]) == ("the prompt", 2)
