"""Asks one engine of each model whether it makes the same tokens as we do, once (engines §6.3)."""

from __future__ import annotations

import asyncio
import logging
import struct
from typing import Any

import msgspec

from infera_cli.gateway.upstream.fetch import Fetcher
from infera_cli.routing.types import WorkerSpec
from infera_cli.tokens.load import Tokenizers
from infera_cli.tokens.prompts import Chat, Job, Prompts, Told
from infera_cli.tokens.template import Unrenderable

log = logging.getLogger("infera.kv")

_MESSAGES = (
    {"role": "system", "content": "You are a careful engineer."},
    {"role": "user", "content": "Hello, world! 你好 1234\n  def f(x): return x"},
    {"role": "assistant", "content": "Done."},
    {"role": "user", "content": "And again?"},
)
_TEXT = "Hello, world! 你好 1234\n  def f(x): return x"
TIMEOUT = 10.0


class TokensCheck:
    """Compares ids for one chat and one completion. Both say yes, or a warning says what differs."""

    def __init__(self, tokenizers: Tokenizers) -> None:
        self._tokenizers = tokenizers
        self._tasks: set[asyncio.Task[None]] = set()
        self.verdicts: dict[str, bool] = {}
        """By model: whether the engine agreed; models whose engine has no /tokenize are left out."""
        self._asked: set[str] = set()

    def look(self, spec: WorkerSpec, models: tuple[str, ...], style: str, fetch: Fetcher) -> None:
        """`spec` serves `models`: ask about those that nobody was asked about. Needs a running loop."""
        if style not in ("vllm", "sglang"):  # others have no such route
            return
        for model in models:
            prompts = self._tokenizers.of(model)
            if prompts is None or model in self._asked:
                continue
            self._asked.add(model)
            task = asyncio.get_running_loop().create_task(self._compare(spec, model, style, prompts, fetch))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _compare(self, spec: WorkerSpec, model: str, style: str, prompts: Prompts, fetch: Fetcher) -> None:
        told = [Told(str(message["role"]), msgspec.json.encode(message)) for message in _MESSAGES]
        asks: list[tuple[str, dict[str, Any], Job]] = []
        try:
            asks.append(("completion", {"prompt": _TEXT}, prompts.completion(style, _TEXT)))
            if prompts.template is not None:
                asks.append(("chat", {"messages": _MESSAGES}, prompts.chat(style, Chat(told))))
            for what, body, job in asks:
                theirs = await self._ask(spec, {"model": model, **body}, fetch)
                if theirs is None:
                    self._asked.discard(model)
                    return
                self._judge(spec, model, what, theirs, _ids(job))
        except Unrenderable as no:
            log.warning("%s: a plain chat cannot be rendered with the tokenizer of %s: %s", spec.id, model, no)

    async def _ask(self, spec: WorkerSpec, body: dict[str, Any], fetch: Fetcher) -> list[int] | None:
        try:
            reply = await fetch(spec, "/tokenize", timeout=TIMEOUT, body=msgspec.json.encode(body))
            found = msgspec.json.decode(reply.body) if reply.status == 200 else None
        except (OSError, TimeoutError, msgspec.DecodeError):
            return None
        tokens = found.get("tokens") if isinstance(found, dict) else None
        return tokens if isinstance(tokens, list) else None

    def _judge(self, spec: WorkerSpec, model: str, what: str, theirs: list[int], ours: list[int]) -> None:
        same = theirs == ours
        self.verdicts[model] = self.verdicts.get(model, True) and same
        if same:
            log.info("%s makes the same tokens of a %s for %s as we do", spec.id, what, model)
            return
        differ = (at for at, (a, b) in enumerate(zip(theirs, ours, strict=False)) if a != b)
        at = next(differ, min(len(theirs), len(ours)))
        log.warning(
            "%s makes other tokens of a %s for %s than --router-tokenizer-path does, from token %d on (%d against "
            "%d in all): its cache will not be found. Give the tokenizer and chat template that the engine uses.",
            spec.id, what, model, at, len(theirs), len(ours),
        )  # fmt: skip


def _ids(job: Job) -> list[int]:
    packed = b"".join(piece for _, piece in job.run())
    return list(struct.unpack(f"<{len(packed) // 4}I", packed))
