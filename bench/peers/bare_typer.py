"""The least that a Typer application can be: what `infera --help` is measured against."""

from __future__ import annotations

import typer

app = typer.Typer()


@app.command()
def serve(port: int = 8000) -> None:
    """Do nothing."""


@app.command()
def demo() -> None:
    """Do nothing either."""


if __name__ == "__main__":
    app()
