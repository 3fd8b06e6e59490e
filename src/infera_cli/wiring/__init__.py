"""Settings in, running parts out: the one package that knows every layer (design.md §2)."""

from infera_cli.wiring.server import Server, run

__all__ = ["Server", "run"]
