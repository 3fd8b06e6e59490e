"""Tokenizer files that are of no use: each is one sentence that names the path, never a fault of ours (R079)."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from infera_cli.errors import ConfigError
from infera_cli.tokens.load import load_all
from tests.tokens import models

DEEP = b"[" * 100_000
_BARE = {"version": "1.0", "added_tokens": []}


def without_unknown(kind: str, **more: Any) -> bytes:
    return json.dumps({**_BARE, "model": {"type": kind, "vocab": {}, "unk_token": "[UNK]", **more}}).encode()


def that_panics() -> bytes:
    """It puts a special token around texts that it does not have, which the library trips over."""
    frame = [{"SpecialToken": {"id": "zz", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]
    template = {"type": "TemplateProcessing", "single": frame, "pair": frame, "special_tokens": {}}
    return json.dumps({**json.loads(models.tokenizer_json()), "post_processor": template}).encode()


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("chat_template.jinja", b"\xff\xfe{{ x }}"), ("chat_template.json", b"\xff\xfe"),
        ("tokenizer_config.json", b"\xff\xfe"), ("tokenizer_config.json", DEEP), ("special_tokens_map.json", DEEP),
        ("chat_template.json", DEEP), ("tokenizer_config.json", b'{"a": ' + b"9" * 5000 + b"}"),
        ("tokenizer.json", b""), ("tokenizer.json", DEEP), ("tokenizer.json", b"\xff\xfe"),
        ("tokenizer.json", without_unknown("WordLevel")), ("tokenizer.json", that_panics()),
        ("tokenizer.json", without_unknown("WordPiece", continuing_subword_prefix="#", max_input_chars_per_word=9)),
    ],
)  # fmt: skip
def test_a_file_of_no_use_is_named(tmp_path: Path, name: str, content: bytes) -> None:
    """Not text, nested without end, numbers without end, or a tokenizer that cannot encode what people write."""
    (models.write(tmp_path) / name).write_bytes(content)
    with pytest.raises(ConfigError) as refused:
        load_all([f"m={tmp_path}"])
    assert str(tmp_path / name) in refused.value.message
    assert "\n" not in refused.value.message
    assert len(refused.value.message) < 700


@pytest.mark.parametrize(
    "template", [b"{% for x in %}", b"{{ " + b"-" * 30_000 + b"1 }}", b'{{ "a" * 10**14 }}', b"{{ 10**5000 }}"]
)
def test_a_template_of_no_use_is_named(tmp_path: Path, template: bytes) -> None:
    """One that is none, and one that needs more than there is."""
    (models.write(tmp_path) / "chat_template.jinja").write_bytes(template)
    with pytest.raises(ConfigError, match=rf"^the chat template in {tmp_path} cannot be used: .{{1,300}}$"):
        load_all([str(tmp_path)])


@pytest.mark.parametrize("model", ["", "m="])
@pytest.mark.parametrize(
    "path",
    ["x" * 5000, "/".join(["y" * 250] * 30), "~nobody-of-that-name/x", "a\nb", "a\0b", "\udcff/x", "a b",
     os.devnull, "/" + "\u4f60" * 200],
)  # fmt: skip
def test_a_path_that_is_none_is_told_in_short(model: str, path: str) -> None:
    """Too long to be looked at, with what no path has, or of nobody's home."""
    with pytest.raises(ConfigError, match=r"^--router-tokenizer-path: there is no \S[ -~\u4f60\u2026]{1,300}$"):
        load_all([model + path])


def test_two_tokenizers_for_one_long_name_are_told_in_short(tmp_path: Path) -> None:
    """The name is as long as somebody wrote it."""
    with pytest.raises(ConfigError, match=r"names two tokenizers for m{150}\u2026m{150}$"):
        load_all([f"{'m' * 5000}={models.write(tmp_path)}"] * 2)
