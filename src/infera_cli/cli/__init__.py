"""The command line: one noun a folder or file, one verb a function; console.py does all the talking."""

from __future__ import annotations

import os
import sys


def main() -> None:
    """The `infera` command; ends the process with its exit code."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:      # closed by whoever started us (`>&-`): nobody wants to hear it
            setattr(sys, name, open(os.devnull, "w"))  # noqa: PTH123, SIM115 - as open as the process
    try:
        from infera_cli.cli.app import run
    except KeyboardInterrupt:  # while Python is still loading
        sys.exit(130)
    sys.exit(run(sys.argv[1:]))
