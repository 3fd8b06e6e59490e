"""Tokenizers by their id on the hub: out of its cache on this machine, and what is told where that fails (R079)."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
from huggingface_hub import constants

from infera_cli.errors import ConfigError
from infera_cli.tokens.load import load, load_all
from infera_cli.tokens.prompts import Chat, Told
from tests.tokens import models

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The hub's cache of this machine, which has no network."""
    folder = tmp_path / "hub"
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(folder))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    return folder


def downloaded(cache: Path, name: str) -> Path:
    """A model that was downloaded once, as the hub's client lays it out."""
    folder = cache / f"models--{name.replace('/', '--')}"
    (folder / "refs").mkdir(parents=True)
    (folder / "refs" / "main").write_text(COMMIT)
    return models.write(folder / "snapshots" / COMMIT)


def test_a_model_of_the_hubs_cache_is_loaded_by_its_id(cache: Path) -> None:
    """With its template, for all models or for one, and as its folder would be."""
    where = downloaded(cache, "org/name-1.0")
    chat = Chat([Told("user", b'{"role":"user","content":"hi"}')], b"", {})
    by_id, by_path = load("org/name-1.0"), load(str(where))
    assert by_id.chat("vllm", chat).run() == by_path.chat("vllm", chat).run()
    found = load_all(["m=org/name-1.0"])
    assert found.of("m") is not None
    assert found.of("other") is None


def test_an_id_that_the_hub_cannot_give_is_one_sentence(cache: Path) -> None:
    """Neither here nor to be had: it says that it was taken for an id, and why that failed."""
    with pytest.raises(ConfigError) as refused:
        load("org/nothing")
    assert refused.value.message.startswith(
        "--router-tokenizer-path: org/nothing is no local path, and the hub says: "
    )
    assert "\n" not in refused.value.message


def test_a_model_of_the_hub_without_a_tokenizer_is_told(cache: Path) -> None:
    """Some have only the files of their own kind."""
    (downloaded(cache, "org/old") / "tokenizer.json").unlink()
    with pytest.raises(ConfigError, match=r"org/old has no tokenizer\.json"):
        load("org/old")


def test_only_the_files_of_the_tokenizer_are_downloaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Never the weights; a template and the special tokens come with it."""
    asked: list[tuple[str, Any]] = []

    def snapshot_download(name: str, *, allow_patterns: list[str]) -> str:
        asked.append((name, allow_patterns))
        return str(models.write(tmp_path / "there"))

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    load("org/name")
    ((name, patterns),) = asked
    assert name == "org/name"
    wanted = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "special_tokens_map.json")
    others = ("model.safetensors", "pytorch_model.bin", "config.json", "README.md")
    assert [file for file in (*wanted, *others) if any(Path(file).match(one) for one in patterns)] == list(wanted)


@pytest.mark.parametrize("source", ["no/such/place", "../x", "./x", "~/x", "org/.x", "org/", "a b", "/abs", ""])
def test_what_is_no_id_never_reaches_the_hub(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A path that is not there is told as one."""

    def snapshot_download(*_args: object, **_named: object) -> str:
        raise AssertionError

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    with pytest.raises(ConfigError, match=r"there is no|has no tokenizer\.json"):
        load(source)


def test_a_folder_comes_before_an_id(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where both are there, the one that can be seen counts."""
    here = downloaded(cache, "org/name")
    monkeypatch.chdir(tmp_path)
    shutil.copytree(here, tmp_path / "org" / "name")
    (tmp_path / "org" / "name" / "tokenizer.json").write_text("{}")
    with pytest.raises(ConfigError, match="cannot be loaded"):
        load("org/name")
