"""Loads tokenizers: a directory, a tokenizer.json, or an id on Hugging Face's hub; one for all models or one each."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from infera_cli.errors import ConfigError
from infera_cli.tokens.prompts import Prompts
from infera_cli.tokens.template import ChatTemplate
from infera_cli.tokens.vocabulary import Vocabulary, unpanicked

_HUB_ID = re.compile(r"\w[\w.-]*(?:/\w[\w.-]*)?")
_LONGEST_ID = 96
"""As the hub has it."""
_LONGEST_SHOWN = 300
_HUB_FILES = ("tokenizer*", "chat_template*", "special_tokens_map.json")
_SPECIAL = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")


class Tokenizers:
    """Prompts by model name; the one without a name serves every other model."""

    def __init__(self, by_model: Mapping[str | None, Prompts]) -> None:
        self.by_model = dict(by_model)

    def of(self, model: str | None) -> Prompts | None:
        """Those of `model`, None where none is configured for it."""
        found = self.by_model.get(model)
        return found if found is not None else self.by_model.get(None)


def load_all(sources: Iterable[str], built_in: Mapping[str, Callable[[], Prompts]] | None = None) -> Tokenizers:
    """Each source is `PATH`, for all models, or `MODEL=PATH`; `built_in` are words for a path. Raises ConfigError."""
    makers = built_in or {}
    by_model: dict[str | None, Prompts] = {}
    loaded: dict[str, Prompts] = {}
    for source in sources:
        model, where = _parted(source)
        if model in by_model:
            named = _shown(model) if model is not None else "all models"
            raise ConfigError(f"--router-tokenizer-path names two tokenizers for {named}")
        if where not in loaded:
            loaded[where] = makers[where]() if where in makers else load(where)
        by_model[model] = loaded[where]
    return Tokenizers(by_model)


def _parted(source: str) -> tuple[str | None, str]:
    """The model, None for all of them, and where its tokenizer is."""
    name, equals, path = source.partition("=")
    model: str | None = name
    if not equals or _is(Path.exists, Path(source)):
        model, path = None, source
    if (model is not None and not model.strip()) or not path.strip():
        raise ConfigError(f"--router-tokenizer-path {_shown(ascii(source))} is malformed; write PATH or MODEL=PATH")
    return model, path


def load(source: str) -> Prompts:
    """The tokenizer at `source` with its chat template, if it has one. Raises ConfigError."""
    from tokenizers import Tokenizer  # noqa: PLC0415 - only servers that need tokens pay for it

    folder, file = _place(source)
    try:
        tokenizer = unpanicked(partial(Tokenizer.from_file, str(file)))
        tokenizer.no_truncation()  # engines do neither, whatever the file says
        tokenizer.no_padding()
    except Exception as error:
        raise ConfigError(f"the tokenizer {_shown(file)} cannot be loaded: {_why(error)}") from error
    try:
        words = Vocabulary(tokenizer)
    except Exception as error:
        raise ConfigError(f"the tokenizer {_shown(file)} does not encode a text: {_why(error)}") from error
    config = _json(folder / "tokenizer_config.json")
    variables = _variables(config, _json(folder / "special_tokens_map.json"))
    template = _template(folder, config, variables)
    try:
        return Prompts(words, template)
    except Exception as error:
        raise _useless_template(folder, error) from error


def _place(source: str) -> tuple[Path, Path]:
    """The folder and its tokenizer.json. Raises ConfigError."""
    path = Path(source)
    with contextlib.suppress(RuntimeError):  # the home of nobody
        path = path.expanduser()
    if _is(Path.is_file, path):
        return path.parent, path
    if not _is(Path.is_dir, path):
        if not _HUB_ID.fullmatch(source) or len(source) > _LONGEST_ID:
            raise ConfigError(f"--router-tokenizer-path: there is no {_shown(source)}")
        path = _from_hub(source)
    file = path / "tokenizer.json"
    if not _is(Path.is_file, file):
        raise ConfigError(f"--router-tokenizer-path: {_shown(source)} has no tokenizer.json")
    return path, file


def _is(what: Callable[[Path], bool], path: Path) -> bool:
    """Whether it is; a path that cannot even be looked at is nothing."""
    try:
        return what(path)
    except (OSError, ValueError):
        return False


def _from_hub(source: str) -> Path:
    from huggingface_hub import snapshot_download  # noqa: PLC0415 - slow to import, seldom needed

    try:
        return Path(snapshot_download(source, allow_patterns=list(_HUB_FILES)))
    except Exception as error:
        raise ConfigError(
            f"--router-tokenizer-path: {_shown(source)} is no local path, and the hub says: {_why(error)}"
        ) from error


def _json(file: Path) -> dict[str, Any]:
    try:
        found = json.loads(_text(file))
    except (ValueError, RecursionError) as error:
        raise _unreadable(file, error) from error
    return found if isinstance(found, dict) else {}


def _text(file: Path) -> str:
    """What is in it; an empty object where there is no such file. Raises ConfigError."""
    try:
        return file.read_text(encoding="utf-8")
    except FileNotFoundError:
        return "{}"
    except (OSError, ValueError) as error:
        raise _unreadable(file, error) from error


def _variables(*layers: Mapping[str, Any]) -> dict[str, str]:
    """Special tokens by name; the first layer that has one counts."""
    found: dict[str, str] = {}
    for layer in layers:
        for name in _SPECIAL:
            token = layer.get(name)
            text = token.get("content") if isinstance(token, dict) else token
            if isinstance(text, str):
                found.setdefault(name, text)
    return found


def _template(folder: Path, config: Mapping[str, Any], variables: Mapping[str, str]) -> ChatTemplate | None:
    source: Any = None
    for name in ("chat_template.jinja", "chat_template.json"):
        file = folder / name
        if _is(Path.is_file, file):
            source = _text(file) if name.endswith("jinja") else _json(file).get("chat_template")
            break
    if source is None:
        source = config.get("chat_template")
    if isinstance(source, list):  # several by name; `default` is the one without a name
        named = {entry.get("name"): entry.get("template") for entry in source if isinstance(entry, dict)}
        source = named.get("default")
    if not isinstance(source, str):
        return None
    try:
        return ChatTemplate(source, variables)
    except Exception as error:
        raise _useless_template(folder, error) from error


# ── what is told ─────────────────────────────────────────────────────────────────────────────────────
def _unreadable(file: Path, error: Exception) -> ConfigError:
    return ConfigError(f"{_shown(file)} cannot be read: {_why(error)}")


def _useless_template(folder: Path, error: Exception) -> ConfigError:
    return ConfigError(f"the chat template in {_shown(folder)} cannot be used: {_why(error)}")


def _why(error: Exception) -> str:
    """Its first line, or what it is."""
    return _shown(str(error).strip().partition("\n")[0] or type(error).__name__)


def _shown(what: object) -> str:
    """In one line that is no longer than it needs to be known again."""
    text = str(what)
    text = text if text.isprintable() else ascii(text)[1:-1]
    return text if len(text) <= _LONGEST_SHOWN else f"{text[: _LONGEST_SHOWN // 2]}…{text[-_LONGEST_SHOWN // 2 :]}"
