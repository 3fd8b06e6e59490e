"""What is generated is fresh."""

from __future__ import annotations

from pathlib import Path

import pytest

from docs.generate import main, pages
from tests.cli.conftest import Infera

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", pages())
def test_generated_files_are_fresh(name: str) -> None:
    """`make docs` would change nothing."""
    assert (ROOT / name).read_text(encoding="utf-8") == pages()[name]


def test_every_command_has_its_help_in_the_reference() -> None:
    """The page follows the commands, verbs included."""
    page = pages()["docs/reference/cli.md"]
    for path in ("infera", "infera serve", "infera demo", "infera workers drain", "infera config check"):
        assert f"## `{path}`\n" in page


def test_no_line_of_a_list_of_commands_is_cut() -> None:
    """A verb is listed with its whole first sentence."""
    lists = [part.partition("\n\n")[0] for part in pages()["docs/reference/cli.md"].split("\nCommands:\n")[1:]]
    assert len(lists) >= 5
    assert [text for text in lists if "..." in text] == []


def test_the_verbs_that_stop_something_say_that_no_router_is_told(infera: Infera) -> None:
    """Their --server has no default, unlike that of the commands which look at a server."""
    for verb in ("down", "scale", "restart", "rollout"):
        text = " ".join(infera("fleet", verb, "--help").out.split())
        assert "[INFERA_SERVER; default: none is told]" in text
        assert "http://127.0.0.1:8000" not in text
        assert "Without it, no router is" in text


def test_the_tool_writes_all_of_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Under the folder that is named."""
    monkeypatch.setattr("sys.argv", ["reference", str(tmp_path)])
    main()
    written = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert written == set(pages())
