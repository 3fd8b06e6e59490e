"""The page of a measurement."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.record import Bar, grid, publish


@pytest.mark.parametrize("met", [True, False])
def test_a_page_shows_each_bar_met_or_missed(tmp_path: Path, capsys: pytest.CaptureFixture[str], met: bool) -> None:
    """In the page and on the terminal, with what was allowed and what was measured; the answer is whether all are."""
    page = tmp_path / "page.md"
    bars = [Bar("one", "≤ 2 ×", "1.50 ×", True), Bar("other", "≤ 4 %", "4.10 %", met)]
    assert publish(page, "Title", how="Written by hand.", tables=[grid(("a",), [("1",)])], bars=bars) is met
    text = page.read_text()
    assert text.startswith("# Title\n")
    assert "| one | ≤ 2 × | 1.50 × | met |" in text
    verdict = "met" if met else "MISSED"
    assert f"| other | ≤ 4 % | 4.10 % | {verdict} |" in text
    assert f"other: 4.10 %, allowed ≤ 4 %: {verdict}" in capsys.readouterr().out
