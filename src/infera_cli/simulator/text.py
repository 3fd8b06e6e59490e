"""Prompts, tokens and answers without a tokenizer file (a stand-in; engines §6 says how real ones render).

A token is four bytes of UTF-8, and its id is those bytes as a number, so ids turn back into the same text.
Text is cut at special tokens first and then every four bytes, so a prompt that continues another begins
with the same ids. Leftovers of one to three bytes, and the special tokens, use numbers whose first byte
never occurs in UTF-8.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Mapping, Sequence
from typing import Any

SPECIALS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
END = 0xFB000002
"""The id of `<|im_end|>`, which ends an answer."""
VOCABULARY = 0xFB000003

_SPECIAL_IDS = {name: 0xFB000000 + number for number, name in enumerate(SPECIALS)}
_SPECIAL_NAMES = {number: name for name, number in _SPECIAL_IDS.items()}
_TAILS = {1: 0xFA000000, 2: 0xF9000000, 3: 0xF8000000}
# The header of a turn is a span of its own, so that an answer that comes back in a prompt begins at a border.
_BORDERS = re.compile(r"(<\|endoftext\|>|<\|im_end\|>|(?<=<\|im_start\|>)[a-z]+\n|<\|im_start\|>)")

_WORDS = """
    a able about after all also and answer any are as at be because before best block both build but
    by cache can carry change clear close come cost could day decide each early easy end even every
    fair far fast few find first for from full give go good great hand have here hold how idea in
    into is it just keep know large last later lead learn left less light like line little long look
    make many may mean more most move much must near need never new next no not note now of often
    old on one only open or order other our out over own part path place plain plan point press
    prompt quick quiet ready real reason right round route run same see send serve set share short
    show side simple since small so some soon start state step still stop such sure take tell than
    that the their them then there these they thing this those through time to token too turn two
    under until up use very wait walk want warm was way we well were what when where which while who
    why will with word work would year yet you your
""".split()  # noqa: SIM905 - a list of words reads better as words


def encode(text: str) -> list[int]:
    """The token ids of `text`; special tokens typed into it count as special, as in vLLM."""
    ids: list[int] = []
    for piece in _BORDERS.split(text) if "<|" in text else (text,):
        if piece in _SPECIAL_IDS:
            ids.append(_SPECIAL_IDS[piece])
        elif piece:
            ids += _plain(piece.encode("utf-8", "surrogatepass"))
    return ids


def _plain(data: bytes) -> list[int]:
    whole, rest = divmod(len(data), 4)
    ids = list(struct.unpack_from(f">{whole}I", data))
    if rest:
        ids.append(_TAILS[rest] + int.from_bytes(data[-rest:], "big"))
    return ids


def decode(ids: Sequence[int]) -> str:
    """The text of `ids`; ids that no text has become the replacement character."""
    return b"".join(_bytes_of(number) for number in ids).decode("utf-8", "replace")


def _bytes_of(number: int) -> bytes:
    if number in _SPECIAL_NAMES:
        return _SPECIAL_NAMES[number].encode()
    if not 0 <= number < 0xFB000000:
        return "\ufffd".encode()
    for length, base in _TAILS.items():
        if number >= base:
            return (number - base).to_bytes(3, "big")[3 - length :]
    return number.to_bytes(4, "big")


def render_chat(
    messages: Sequence[Mapping[str, Any]], tools: Sequence[Any] = (), *, add_generation_prompt: bool = True
) -> str:
    """The prompt of a conversation in ChatML; a later turn's prompt begins with the earlier one and its
    answer."""
    turns = []
    if tools:
        listed = json.dumps(list(tools), ensure_ascii=False)
        turns.append(f"<|im_start|>system\n# Tools\n{listed}<|im_end|>\n")
    turns += [f"<|im_start|>{message['role']}\n{_content(message)}<|im_end|>\n" for message in messages]
    return "".join(turns) + ("<|im_start|>assistant\n" if add_generation_prompt else "")


def _content(message: Mapping[str, Any]) -> str:
    text = flatten(message.get("content"))
    calls = message.get("tool_calls")
    return text + json.dumps(calls, ensure_ascii=False) if calls else text


def flatten(content: Any) -> str:
    """The text of a message's content: null is empty, parts join with a line break (engines §6.1)."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    return "\n".join(_part(part) for part in content)


def _part(part: Any) -> str:
    if isinstance(part, Mapping) and isinstance(part.get("text"), str):
        return str(part["text"])
    return part if isinstance(part, str) else json.dumps(part, ensure_ascii=False, sort_keys=True)


def answer(seed: int, tokens: int) -> str:
    """The text of an answer: `4 * tokens` ASCII characters that read like sentences, the same for the same
    seed."""
    state = (seed * 2 + 1) & 0xFFFFFFFFFFFFFFFF
    parts: list[str] = []
    size, left = 0, 0
    while size < 4 * tokens:
        state = (state * 6364136223846793005 + 1442695040888963407) & 0xFFFFFFFFFFFFFFFF
        word = _WORDS[(state >> 33) % len(_WORDS)]
        if left == 0:
            left = 6 + (state >> 40) % 9
            word = word.capitalize()
        left -= 1
        word += " " if left else ". "
        parts.append(word)
        size += len(word)
    return "".join(parts)[: 4 * tokens]


def natural_length(seed: int, mean: int) -> int:
    """How many tokens an answer has when nobody limits it: between half and one and a half of `mean`."""
    return max(1, mean // 2 + (seed * 2654435761 >> 7) % (mean + 1))
