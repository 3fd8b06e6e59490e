"""Tokenizers and templates made on the spot, like those of known model families."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

from tests.support import tinymodel
from tests.tokens import templates

SPECIALS = (
    "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<s>", "</s>", "<|start_header_id|>", "<|end_header_id|>",
    "<|eot_id|>", "<think>", "</think>", "<tool_call>", "</tool_call>",
)  # fmt: skip


@functools.cache
def tokenizer_json(*, bos: bool = False, strips: bool = False, metaspace: bool = False) -> str:
    """A small byte-level BPE; `bos` adds `<s>` by itself, `strips` has a border that eats spaces before it,
    `metaspace` marks the first word of a text."""
    tokenizer = Tokenizer(models.BPE())
    bytes_alone = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first") if metaspace else bytes_alone
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=700, special_tokens=list(SPECIALS), initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )  # fmt: skip
    tokenizer.train_from_iterator([Path(json.__file__).read_text(), Path(functools.__file__).read_text()], trainer)
    if strips:
        tokenizer.add_special_tokens([AddedToken("<mask>", lstrip=True, special=True)])
    if bos:
        tokenizer.post_processor = processors.TemplateProcessing(
            single="<s> $A", special_tokens=[("<s>", tokenizer.token_to_id("<s>"))]
        )
    return str(tokenizer.to_str())


def write(folder: Path, template: str | None = templates.CHATML, **options: Any) -> Path:
    """A model folder with tokenizer.json and tokenizer_config.json."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tokenizer.json").write_text(tokenizer_json(**options))
    config: dict[str, Any] = {"bos_token": {"content": "<s>"}, "eos_token": "</s>"}
    if template is not None:
        config["chat_template"] = template
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder


def write_tiny(folder: Path) -> Path:
    """The very model folder that the recorded vLLM served."""
    tinymodel.write_model(folder)
    return folder
