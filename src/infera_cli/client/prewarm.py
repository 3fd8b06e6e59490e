"""Prefixes into caches ahead of traffic: by a hint to the cache daemon, or by a request of one token.

(Source: infera-wire §3.4, §4.5; rulings 25: hashes are the block chain, eight bytes, big end first, as hex.)
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any
from urllib.parse import urlsplit

from infera_cli.blocks import FIRST_PARENT
from infera_cli.client.http import Server
from infera_cli.client.workers import array, workers
from infera_cli.errors import ConfigError, InferaError, ServerUnreachable
from infera_cli.tokens.load import load
from infera_cli.tokens.prompts import Chat, Told
from infera_cli.tokens.template import Unrenderable

_SHOWN = 40
_UNAVAILABLE = 503


@dataclass(frozen=True, slots=True)
class Item:
    """One prefix: a text, or a conversation."""

    prompt: str | None = None
    messages: tuple[dict[str, Any], ...] = ()

    @property
    def path(self) -> str:
        """The route that takes it."""
        return "/v1/chat/completions" if self.messages else "/v1/completions"

    @property
    def shown(self) -> str:
        """How it begins."""
        text = self.prompt if self.prompt is not None else str(self.messages[-1].get("content"))
        line = " ".join(text.split())
        return line if len(line) <= _SHOWN else line[: _SHOWN - 1] + "…"

    def body(self, model: str) -> dict[str, Any]:
        """The smallest request that has it computed."""
        said: dict[str, Any] = {"messages": list(self.messages)} if self.messages else {"prompt": self.prompt}
        return {"model": model, "max_tokens": 1, "temperature": 0, **said}


# ── what to warm ─────────────────────────────────────────────────────────────────────────────────────
def read_items(path: Path) -> list[Item]:
    """The items of a file: a JSON list or JSON Lines of texts, `{"prompt": …}`, `{"messages": […]}`; anything else is
    one prompt. Raises ConfigError."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as fault:
        raise ConfigError(f"{path} cannot be read: {getattr(fault, 'strerror', None) or fault}") from None
    return [_item(value, path) for value in _values(text)]


def _values(text: str) -> list[Any]:
    try:
        value = json.loads(text)
    except ValueError:
        return _lines(text)
    if isinstance(value, list) and not _is_conversation(value):
        return value
    return [value]


def _lines(text: str) -> list[Any]:
    try:
        return [json.loads(line) for line in text.splitlines() if line.strip()]
    except ValueError:
        return [text]


def _is_conversation(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(one, dict) and "role" in one for one in value)


def _item(value: Any, path: Path) -> Item:
    if isinstance(value, dict):
        value = value.get("messages") or value.get("prompt")
    if isinstance(value, str) and value.strip():
        return Item(prompt=value)
    if _is_conversation(value):
        return Item(messages=tuple(value))
    raise ConfigError(f"{path} must hold texts, prompts or messages, not {str(value)[:60]!r}")


# ── by the daemon ────────────────────────────────────────────────────────────────────────────────────
def hashes_of(items: Iterable[Item], tokenizer: str, block_size: int) -> list[list[str]]:
    """The block hashes of each item, as hex. Raises ConfigError (no such tokenizer, a prompt it cannot render)."""
    prompts = load(tokenizer)
    found = []
    for item in items:
        try:
            if item.messages:
                told = [Told(str(one.get("role")), json.dumps(one).encode()) for one in item.messages]
                job = prompts.chat("vllm", Chat(told))
            else:
                job = prompts.completion("vllm", item.prompt)
            blocks = prompts.chains.of(job.run(), block_size, FIRST_PARENT)
        except Unrenderable as no:
            raise ConfigError(f"{item.shown!r} cannot be made into tokens: {no}") from None
        found.append([one.to_bytes(8, "big").hex() for one in blocks])
    return found


def hint(server: Server, model: str, hashes: Sequence[str], compat_key: str, deadline_ms: int) -> bool:
    """Tell the daemon; False where there is none. Raises InferaError for any other refusal."""
    body = {"model": model, "block_hashes": list(hashes), "compat_key": compat_key, "deadline_ms": deadline_ms}
    answer = server.send("POST", "/v1/cache/prewarm", json.dumps(body).encode())
    if answer.status == _UNAVAILABLE:
        return False
    server.read(answer)
    return True


# ── by a request ─────────────────────────────────────────────────────────────────────────────────────
def model_of(server: Server) -> str:
    """The one model that is served; other names of it do not count. Raises ConfigError where there are several."""
    cards = array(server, server.get("/v1/models"), "data")
    every = {str(card.get("id")): card.get("root") for card in cards}
    names = [name for name, root in every.items() if root == name or root not in every]
    if len(names) != 1:
        raise ConfigError(f"--model must name one of {', '.join(names) or 'the models, and none is served'}")
    return names[0]


def nearest(admin: Server, item: Item, model: str, count: int) -> list[dict[str, Any]]:
    """`count` workers: the one that routing would choose now, then the least busy that serve the model.

    Raises InferaError when there are fewer.
    """
    asked = {"path": item.path, "body": item.body(model)}
    first = admin.post("/v1/admin/explain", asked).get("worker")
    able = [one for one in workers(admin) if one.get("ready") and not one.get("draining")]
    serving = [one for one in able if model in (one.get("models") or [model])]
    serving.sort(key=lambda one: (one.get("worker_id") != first, one.get("outstanding") or 0))
    if len(serving) < count:
        raise InferaError(f"--workers {count}: only {len(serving)} serve {model} now")
    return serving[:count]


def warm(server: Server, item: Item, model: str, worker: str | None = None) -> dict[str, Any]:
    """Have the prefix computed by one token; a row of the table. A refusal is a row too."""
    began = monotonic()
    try:
        answer = server.send("POST", item.path, json.dumps(item.body(model)).encode())
    except ServerUnreachable as fault:
        return _row(item, worker, error=fault.message)
    taken = monotonic() - began
    served = answer.headers.get("x-infera-worker") or worker
    try:
        usage = dict(server.read(answer)).get("usage") or {}
    except InferaError as fault:
        return _row(item, served, error=fault.message)
    details = usage.get("prompt_tokens_details") or {}
    return _row(item, served, tokens=usage.get("prompt_tokens"), cached=details.get("cached_tokens"), seconds=taken)


def hinted(item: Item, blocks: Sequence[str]) -> dict[str, Any]:
    """The row of an item that the daemon was told of."""
    return {**_row(item, None), "how": "daemon", "blocks": len(blocks)}


def _row(
    item: Item, worker: str | None, *, tokens: int | None = None, cached: int | None = None,
    seconds: float | None = None, error: str | None = None,
) -> dict[str, Any]:  # fmt: skip
    return {
        "prompt": item.shown, "how": "request", "worker": worker, "tokens": tokens, "cached": cached, "blocks": None,
        "seconds": seconds, "error": error,
    }  # fmt: skip


def engine(worker: dict[str, Any], timeout: float) -> Server:
    """A worker itself. Raises ConfigError for an address that is none."""
    url = str(worker.get("url"))
    if urlsplit(url).scheme not in {"http", "https"}:
        raise ConfigError(f"worker {worker.get('worker_id')} has no address that can be asked: {url!r}")
    return Server(url, timeout=timeout)
