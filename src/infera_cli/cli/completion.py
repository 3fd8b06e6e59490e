"""`infera completion`: the script that teaches a shell to complete `infera`."""

from __future__ import annotations

from typing import Annotated

import typer

from infera_cli.cli.console import console
from infera_cli.cli.groups import PlainCommand, verb
from infera_cli.cli.scripts import SHELLS, script
from infera_cli.errors import UsageError

app = verb()

Shell = Annotated[str | None, typer.Argument(metavar="SHELL", help=", ".join(SHELLS),
                                             autocompletion=lambda: list(SHELLS))]


@app.command(cls=PlainCommand)
def completion(shell: Shell = None) -> None:
    """Print the completion script of a shell; nothing on this machine is changed.

    \b
    bash        infera completion bash > ~/.local/share/bash-completion/completions/infera
    zsh         infera completion zsh > "${fpath[1]}/_infera"
    fish        infera completion fish > ~/.config/fish/completions/infera.fish
    powershell  infera completion powershell >> $PROFILE
    """
    if shell not in SHELLS:
        what = "name the shell" if shell is None else f"no completion for {shell!r}; name the shell"
        raise UsageError(f"{what}: infera completion {'|'.join(SHELLS)}")
    console.data(script(shell).rstrip("\n"))
