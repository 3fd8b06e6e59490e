"""Aliases of models."""

from __future__ import annotations

import asyncio

import pytest

from infera_cli.errors import ConfigError
from infera_cli.gateway.translation.aliases import Aliases, with_model
from tests.gateway.conftest import Serve
from tests.support import raw


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


@pytest.mark.parametrize(("alias", "asked", "told"), [
    ("gpt-5=m", "nope", "The model 'nope' is not served here; served are: m. Other names: gpt-5."),
    ("claude-*=gone", "claude-x", "The model 'gone' is not served here; served are: m. 'claude-x' stands for it."),
])
@pytest.mark.asyncio(loop_scope="session")
async def test_an_unknown_model_is_told_with_the_names_that_stand_for_others(
    serve: Serve, alias: str, asked: str, told: str
) -> None:
    """What is served, what else may be asked for, and whose alias leads nowhere."""
    setup = await serve(1, "--anthropic", "translate", "--model-alias", alias)
    async with asyncio.timeout(10):
        while not (await raw.get(setup.url, "/v1/models")).json().get("data"):  # noqa: ASYNC110 - no event for us
            await asyncio.sleep(0.02)
    body = {"model": asked, "max_tokens": 8, "messages": [{"role": "user", "content": "hi"}]}
    for path in ("/v1/messages", raw.CHAT):
        response = await raw.post(setup.url, path, body)
        assert (response.status, response.json()["error"]["message"]) == (404, told)
