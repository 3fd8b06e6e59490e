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

    Open a new shell after these lines.

    \b
    bash, by a line in ~/.bashrc:
      echo 'source <(infera completion bash)' >> ~/.bashrc
    or, where the package bash-completion is installed, by a file that is read at the first TAB:
      mkdir -p ~/.local/share/bash-completion/completions
      infera completion bash > ~/.local/share/bash-completion/completions/infera

    \b
    zsh, by a folder of your own:
      mkdir -p ~/.zfunc
      infera completion zsh > ~/.zfunc/_infera
      echo 'fpath=(~/.zfunc $fpath); autoload -Uz compinit && compinit' >> ~/.zshrc

    \b
    fish:
      mkdir -p ~/.config/fish/completions
      infera completion fish > ~/.config/fish/completions/infera.fish

    \b
    PowerShell:
      infera completion powershell >> $PROFILE
    """
    if shell not in SHELLS:
        what = "name the shell" if shell is None else f"no completion for {shell!r}; name the shell"
        raise UsageError(f"{what}: infera completion {'|'.join(SHELLS)}")
    console.data(script(shell).rstrip("\n"))
