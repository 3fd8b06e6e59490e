"""The names of the slots of a replica file, for the shell to complete; imports little, since a person waits."""

from __future__ import annotations

from pathlib import Path

from infera_cli.protocol.replica_file import parse
from infera_cli.protocol.slots import pool_of


def slot_names(file: str) -> list[str]:
    """In the order in which they are filled. Raises ConfigError, OSError."""
    text = Path(file).read_bytes()
    return [slot.name for slot in pool_of(parse(text, path=file, router_port=None).hosts)]
