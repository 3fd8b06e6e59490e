"""A tiny random-weight Qwen3 model folder, made offline in a second (engines.md §9.2).

Run by the interpreter of the vLLM environment, where `tokenizers` lives: `python tinymodel.py FOLDER`.
"""

from __future__ import annotations

import json
import sys
import sysconfig
from pathlib import Path

VOCABULARY = 2048
POSITIONS = 4096
SPECIALS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")  # ids 0, 1, 2

CHATML = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)

CONFIG = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 32,  # the smallest that CPU attention accepts
    "vocab_size": VOCABULARY,
    "max_position_embeddings": POSITIONS,
    "rope_theta": 10000.0,
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": True,
    "hidden_act": "silu",
    "bos_token_id": 0,
    "eos_token_id": 2,
    "torch_dtype": "float32",
}

TOKENIZER_CONFIG = {
    "tokenizer_class": "PreTrainedTokenizerFast",
    "bos_token": None,
    "eos_token": SPECIALS[2],
    "pad_token": SPECIALS[0],
    "model_max_length": POSITIONS,
    "clean_up_tokenization_spaces": False,
    "chat_template": CHATML,
}


def write_model(folder: Path) -> None:
    """Fill `folder` with config, tokenizer and chat template; no weights (`--load-format dummy`)."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(CONFIG, indent=2))
    (folder / "tokenizer_config.json").write_text(json.dumps(TOKENIZER_CONFIG, indent=2))
    _train_tokenizer(folder / "tokenizer.json")


def _train_tokenizer(path: Path) -> None:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers  # noqa: PLC0415 - only vLLM has it

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=list(SPECIALS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train(_local_text(), trainer)
    tokenizer.save(str(path))


def _local_text() -> list[str]:
    """A few of Python's own sources: text that every machine has."""
    library = Path(sysconfig.get_path("stdlib"))
    names = ("argparse.py", "ast.py", "inspect.py", "tarfile.py", "typing.py", "subprocess.py")
    return [str(library / name) for name in names]


if __name__ == "__main__":
    write_model(Path(sys.argv[1]))
