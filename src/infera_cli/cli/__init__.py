"""The command line: one noun a folder or file, one verb a function; console.py does all the talking."""

from __future__ import annotations

import sys


def main() -> None:
    """The `infera` command; ends the process with its exit code."""
    try:
        from infera_cli.cli.app import run
    except KeyboardInterrupt:  # while Python is still loading
        sys.exit(130)
    sys.exit(run(sys.argv[1:]))
