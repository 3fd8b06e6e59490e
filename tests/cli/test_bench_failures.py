"""Whether a refusal is JSON where JSON was asked for."""

from __future__ import annotations

import json

import pytest

from infera_cli.cli.failures import refuse


@pytest.mark.parametrize("words", [["-o", "json"], ["-ojson"], ["-o=json"], ["--output=json"], ["--output", "json"]])
def test_every_spelling_of_json_is_seen(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Before an option that does not parse, too."""
    assert refuse("no such option", 2, ["bench", *words, "--odd"]) == 2
    said = capsys.readouterr()
    assert json.loads(said.out or said.err)["error"]["message"] == "no such option"
