"""The generated page of metrics."""

from __future__ import annotations

from pathlib import Path

from infera_cli.telemetry.reference import metrics_page

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "metrics.md"


def test_metrics_page_is_fresh() -> None:
    """docs/reference/metrics.md is what `make docs` writes now."""
    assert PAGE.read_text(encoding="utf-8") == metrics_page()
