"""Explaining a request under `kv-aware` costs nobody anything and is seen nowhere."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from infera_cli.tokens.prompts import Prompts
from tests.gateway.kv.worlds import serving
from tests.support import raw

EXPLAIN = "/v1/admin/explain"


def _counted(found: dict[str, float]) -> dict[str, float]:
    """Every series of ours that is not 0, of counters and of whatever else is told of prompts and caches.

    Those of workers and their models are there at 0 once a probe has found them, and probes open connections.
    """
    ours = {name: value for name, value in found.items() if name.startswith("infera_") and value}
    return {
        name: value for name, value in ours.items()
        if name.partition("{")[0].endswith("_total") or name.startswith(("infera_kv", "infera_cache"))
        if not name.startswith("infera_upstream_")
    }  # fmt: skip


@pytest.mark.parametrize(
    "body",
    [
        {"messages": [{"role": "user", "content": "What is a cache? " * 40}], "prompt_cache_retention": "24h"},
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "https://a/b"}}]}]},
        {"messages": 7},
        {"messages": [{"role": "user", "content": "What is a cache? " * 9000}]},
    ],
)
async def test_an_explanation_is_not_counted(
    tmp_path: Path, model: Path, body: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    """Metrics of prompts, hints and fallbacks stay as they are, and the one warning is left to a real request."""
    async with serving(tmp_path, model) as server:
        before = _counted(await server.metrics())
        for _ in range(3):
            asked = {"path": raw.CHAT, "body": {"model": "m", **body}}
            assert (await raw.post(server.url, EXPLAIN, asked)).status == 200
        after = _counted(await server.metrics())
    assert after == before
    assert not [record for record in caplog.records if record.name == "infera.kv"]


@pytest.mark.parametrize("words", [1000, 20_000])
async def test_a_long_prompt_is_explained_beside_the_event_loop(
    tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch, words: int
) -> None:
    """As that of a request: in a thread for tokens."""
    async with serving(tmp_path, model) as server:
        names, chat = set(), Prompts.chat

        def noted(self: Prompts, *args: Any) -> Any:
            job = chat(self, *args)
            run = job.run

            def run_and_note() -> Any:
                names.add(threading.current_thread().name)
                return run()

            monkeypatch.setattr(job, "run", run_and_note)
            return job

        monkeypatch.setattr(Prompts, "chat", noted)
        text = " ".join(f"word{number}" for number in range(words))
        asked = {"path": raw.CHAT, "body": {"model": "m", "messages": [{"role": "user", "content": text}]}}
        told = (await raw.post(server.url, EXPLAIN, asked)).json()
    assert told["why"].startswith("kv-aware:0/")
    assert told["why"] != "kv-aware:0/0"
    assert {name.startswith("infera-tokens") for name in names} == {True}
