"""pypto-serving (engines.md §4)."""

from __future__ import annotations

import tempfile
from pathlib import Path

from infera_cli.launch.dialects.base import Dialect


class Pypto(Dialect):
    """`python -m pypto_serving.cli`. Devices are chosen by its flags, and it publishes no KV events."""

    name = "pypto"
    bind_host = "0.0.0.0"

    def program(self, python: str) -> list[str]:
        """See Dialect."""
        return [python, "-m", "pypto_serving.cli"]

    def environment(self, port: int) -> dict[str, str]:
        """See Dialect; a build folder for each replica, or their builds collide."""
        folder = Path(tempfile.gettempdir()) / f"pypto-build-{port}"
        return {**super().environment(port), "PYPTO_PROG_BUILD_DIR": str(folder)}
