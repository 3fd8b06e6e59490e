"""`infera launch`: one engine on this machine, registered, and drained when it is told to stop."""

from __future__ import annotations

import os
from typing import Annotated, Any

import typer

from infera_cli.cli.console import console
from infera_cli.cli.groups import PlainCommand, verb
from infera_cli.cli.options import settings_of
from infera_cli.config.launch import load_launch
from infera_cli.config.launch_settings import LaunchSettings

app = verb()
_ENGINES = ["vllm", "sglang", "atom", "pypto", "sim"]


@app.command(cls=PlainCommand, context_settings={"ignore_unknown_options": True, "allow_extra_args": True})
@settings_of(LaunchSettings)
def launch(
    typed: dict[str, Any],
    ctx: typer.Context,
    engine: Annotated[str, typer.Argument(
        metavar="ENGINE", help="vllm, sglang, atom, pypto or sim.", autocompletion=lambda: _ENGINES)],
) -> int:
    """Run one engine on this machine, register it, and drain it when told to stop.

    \b
    infera launch vllm --etcd-endpoint 10.0.0.5:2379 --model Qwen/Qwen3-0.6B -tp 2
    infera launch sim --etcd-endpoint 127.0.0.1:2379
    infera launch vllm --etcd-endpoint 10.0.0.5:2379 --no-engine --url http://10.0.0.7:8000

    Flags that are not listed here go to the engine as they are; so does everything after `--`. SIGTERM, Ctrl-C
    and the end of the terminal (SIGHUP) take the worker out of discovery, wait for its open requests, and stop the
    engine; once more does not wait.
    """
    loaded = load_launch(typed, os.environ, ctx.args)
    if loaded.origins["etcd_password"].layer == "flag":
        console.warn("--etcd-password is visible in the process list; use --etcd-password-file or INFERA_ETCD_PASSWORD")
    from infera_cli.wiring import worker

    return worker.run(loaded.settings, engine, ctx.args)
