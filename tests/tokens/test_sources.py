"""Which words name which tokenizer: a path, a model's path, a word for a built-in one (C31)."""

from __future__ import annotations

from pathlib import Path

import pytest

from infera_cli.errors import ConfigError
from infera_cli.tokens.load import load_all
from infera_cli.wiring.sim_tokens import BUILT_IN
from tests.tokens import models


def test_a_built_in_tokenizer_may_be_that_of_one_model(tmp_path: Path) -> None:
    """`sim=sim` beside a path for all others, and made once for as many models as name it."""
    found = load_all(["sim=sim", "also=sim", str(models.write(tmp_path))], BUILT_IN)
    assert found.of("sim") is found.of("also") is not None
    assert found.of("sim") is not found.of("other") is not None
    assert load_all(["sim"], BUILT_IN).of("any") is not None
    assert load_all(["sim=sim"], BUILT_IN).of("any") is None


@pytest.mark.parametrize("source", ["=sim", "a=", "=", "", " =sim", "a= "])
def test_half_a_mapping_is_named_as_what_it_is(source: str) -> None:
    """Not looked up on a hub, nor taken for a folder."""
    with pytest.raises(ConfigError) as refused:
        load_all([source], BUILT_IN)
    assert refused.value.message == f"--router-tokenizer-path {source!a} is malformed; write PATH or MODEL=PATH"


def test_a_path_with_such_a_sign_is_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it is there."""
    monkeypatch.chdir(tmp_path)
    models.write(tmp_path / "=odd")
    assert load_all(["=odd"], BUILT_IN).of("any") is not None
