"""What is generated is fresh."""

from __future__ import annotations

from pathlib import Path

import pytest

from docs.generate import main, pages

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


def test_the_tool_writes_all_of_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Under the folder that is named."""
    monkeypatch.setattr("sys.argv", ["reference", str(tmp_path)])
    main()
    written = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert written == set(pages())
