"""`make docs`: writes what is generated, under the folder that is named (the current one by default).

The reference pages and the completion scripts; a test fails when one of them is stale (style.md 28).
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from infera_cli.cli.reference import commands_page
from infera_cli.cli.scripts import FILES, script
from infera_cli.config.reference import settings_page
from infera_cli.telemetry.reference import metrics_page


def pages() -> Mapping[str, str]:
    """Every generated file, by its path in the repository."""
    return {
        "docs/reference/settings.md": settings_page(),
        "docs/reference/cli.md": commands_page(),
        "docs/reference/metrics.md": metrics_page(),
        **{f"completions/{name}": script(shell) for shell, name in FILES.items()},
    }


def main() -> None:
    """Write every page."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    for name, text in pages().items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
