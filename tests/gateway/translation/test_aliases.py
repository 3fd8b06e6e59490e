"""Aliases of models."""

from __future__ import annotations

import pytest

from infera_cli.errors import ConfigError
from infera_cli.gateway.translation.aliases import Aliases, with_model


def test_an_exact_name_wins_over_patterns_and_the_first_pattern_over_others() -> None:
    """Order matters among patterns alone."""
    aliases = Aliases(["claude-*=a", "claude-3*=b", "claude-3=c"])
    assert [aliases.resolve(name) for name in ("claude-3", "claude-3-5", "gpt")] == ["c", "a", None]
    assert not Aliases()


@pytest.mark.parametrize("pair", ["claude", "=m", "claude=", ""])
def test_a_pair_that_is_none_is_refused(pair: str) -> None:
    """The sentence shows how it should look."""
    with pytest.raises(ConfigError, match="NAME=MODEL"):
        Aliases([pair])


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b"\xff"])
def test_a_body_that_is_no_object_is_left_alone(body: bytes) -> None:
    """Engines judge what is malformed (R035)."""
    assert with_model(body, "m") == body
