"""Conversations to measure cache-aware routing with: one of 4,000 tokens, a coding agent's, and text never seen."""

from __future__ import annotations

import json
import random
import struct
import sysconfig
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tokenizers import Tokenizer, pre_tokenizers, trainers
from xxhash import xxh3_64_hexdigest

from infera_cli.blocks import chain
from infera_cli.tokens.prompts import Chat, Prompts, Told

BLOCK = 16
"""Tokens."""
STEPS_SEEN = 299
"""Messages of the agent's first request."""


def write_model(folder: Path) -> Path:
    """A model folder with a tokenizer made on the spot, as the tests have it."""
    from tests.tokens import models, templates  # noqa: PLC0415 - it trains one when it is asked

    return models.write(folder, templates.THINKING)


def write_reader(folder: Path) -> Path:
    """The same with a vocabulary of a usual size, learned from every second module of the standard library."""
    from tests.tokens import models  # noqa: PLC0415 - as above

    write_model(folder)
    tokenizer = Tokenizer.from_str(models.tokenizer_json())
    trainer = trainers.BpeTrainer(
        vocab_size=32_000, special_tokens=list(models.SPECIALS), show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )  # fmt: skip
    tokenizer.train_from_iterator(_library()[::2], trainer)
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


def _library() -> list[str]:
    folder = Path(sysconfig.get_path("stdlib"))
    return [path.read_text(encoding="utf-8", errors="replace") for path in sorted(folder.glob("*.py"))]


def tokens_of(prompts: Prompts, body: dict[str, Any]) -> list[int]:
    """The tokens that an engine makes of a chat."""
    told = [Told(message["role"], json.dumps(message).encode()) for message in body["messages"]]
    tools = json.dumps(body["tools"]).encode() if "tools" in body else b""
    packed = b"".join(piece for _, piece in prompts.chat("vllm", Chat(told, tools)).run())
    return list(struct.unpack(f"<{len(packed) // 4}I", packed))


class Announced(NamedTuple):
    """The blocks that an engine announces when it has served a request, known by the digest of its body: those after
    `parent`, with their tokens."""

    digest: str
    parent: int | None
    hashes: list[int]
    tokens: list[int]


def announced(prompts: Prompts, bodies: Iterable[bytes]) -> list[Announced]:
    """What becomes of requests in a row: each announces what it has more than the one before."""
    found: list[Announced] = []
    before: list[int] = []
    for body in bodies:
        tokens = tokens_of(prompts, json.loads(body))
        hashes = chain(tokens, BLOCK)
        start = next((at for at, pair in enumerate(zip(hashes, before, strict=False)) if pair[0] != pair[1]),
                     min(len(hashes), len(before)))  # fmt: skip
        found.append(Announced(xxh3_64_hexdigest(body), hashes[start - 1] if start else None, hashes[start:],
                               tokens[start * BLOCK : len(hashes) * BLOCK]))  # fmt: skip
        before = hashes
    return found


def conversation(messages: int = 20, words: int = 33) -> dict[str, Any]:
    """A conversation of some 4,000 tokens."""
    roles = ("user", "assistant")
    told = [
        {"role": roles[at % 2], "content": " ".join(f"word{at}{n}" for n in range(words))} for at in range(messages - 1)
    ]
    return {"model": "m", "messages": told}


class Agent:
    """A coding agent at work: 40 tools, and two messages more with every request."""

    def __init__(self, seed: int = 3) -> None:
        self._source = Path(json.__file__).with_name("decoder.py").read_text() * 4
        self._dice = random.Random(seed)
        self.tools = [{"type": "function", "function": {
            "name": f"tool_{n}", "description": self._text(300),
            "parameters": {"type": "object", "properties": {"path": {"type": "string"}}},
        }} for n in range(40)]  # fmt: skip
        self.messages: list[dict[str, Any]] = [
            {"role": "system", "content": self._text(6000)}, {"role": "user", "content": self._text(2000)},
        ]  # fmt: skip
        while len(self.messages) < STEPS_SEEN:
            self._step(f"c{len(self.messages)}", "Let me look.", 1900)

    def _text(self, length: int) -> str:
        at = self._dice.randrange(len(self._source) - length)
        return self._source[at : at + length]

    def _step(self, name: str, said: str, answer: int) -> None:
        call = {"id": name, "type": "function", "function": {"name": "tool_1", "arguments": '{"path": "a"}'}}
        self.messages += [
            {"role": "assistant", "content": said, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": name, "content": self._text(answer)},
        ]

    def requests(self, **more: Any) -> Iterator[bytes]:
        """Request after request, each with one step more than the one before."""
        while True:
            yield json.dumps({"model": "m", "messages": self.messages, "tools": self.tools, **more}).encode()
            self._step("c", self._text(200), 1500)


def readings(size: int = 32_000, seed: int = 4) -> Iterator[bytes]:
    """Text as people write it and nobody saw before: pieces of the modules that `write_reader` did not learn from, each
    of them once."""
    pieces = [piece for text in _library()[1::2] for piece in text.split("\n\n")]
    random.Random(seed).shuffle(pieces)
    text = "\n\n".join(pieces)
    for start in range(0, len(text) - size, size):
        yield json.dumps({"model": "m", "messages": [{"role": "user", "content": text[start : start + size]}]}).encode()


def strangers(size: int = 32_000, seed: int = 4, **more: Any) -> Iterator[bytes]:
    """Text that nobody saw before, `size` characters a request."""
    dice = random.Random(seed)
    while True:
        words = " ".join(f"{dice.choice('abcdefgh')}{dice.getrandbits(24):x}" for _ in range(size // 7))[:size]
        yield json.dumps({"model": "m", "messages": [{"role": "user", "content": words}], **more}).encode()
