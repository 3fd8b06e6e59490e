"""`infera simulate`: which policy, and how many replicas, in seconds and without a GPU."""

from __future__ import annotations

import sys
from typing import Any

import typer

from infera_cli.cli.bench_checks import first_look
from infera_cli.cli.bench_options import spread
from infera_cli.cli.console import console
from infera_cli.cli.groups import PlainCommand, verb
from infera_cli.cli.simulate_options import options
from infera_cli.errors import ConfigError, UsageError


class SimulateCommand(PlainCommand):
    """One command, whose options may have several values."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Let several values follow one option, as in `infera bench`."""
        found: list[str] = super().parse_args(ctx, spread(args))
        return found


app = verb()


@app.command(cls=SimulateCommand)
@options
def simulate(ctx: typer.Context, asked: dict[str, Any]) -> int:
    """Replay a trace or a made-up load against simulated engines behind the real routing core.

    \b
    infera simulate --workers 8 --policy session,round-robin,kv-aware --dataset-name multi-turn --rate 20 -n 5000
    infera simulate --workers 4..64 --goodput ttft:500 tpot:40 --dataset-name mooncake --dataset-path trace.jsonl
    infera simulate --workers 4 --calibrate result.json --rate 12 -d 600

    The same seed gives the same figures. Exit code: 0 fine, 1 nothing was served, or no number of workers kept
    the limits of --goodput.
    """
    return _simulated(ctx, asked)


def _simulated(ctx: typer.Context, asked: dict[str, Any]) -> int:
    """Refuse what cannot be, say what does nothing, simulate, and show it."""
    if asked["output"] not in ("table", "json"):
        raise UsageError(f"-o must be table or json, not {asked['output']!r}")
    said = first_look(ctx, asked)
    from infera_cli.cli.simulate_asked import outputs_from, shown, wanted_from

    outputs, wanted = outputs_from(asked), wanted_from(asked)
    outputs.check()
    for sentence in said:
        console.warn(sentence)
    from infera_cli.wiring.simulation import Simulator

    simulator = Simulator(wanted, _tell)
    if short := simulator.cut_short():
        console.warn(short)
    found = simulator.run(shown(wanted))
    lost = outputs.write(found)
    if asked["output"] == "json":
        from infera_cli.workload.simulated import encode

        console.data(encode(found).decode())
    else:
        from infera_cli.report import simulated

        console.data(simulated.report(found, colour=console.colour(sys.stdout)))
    for sentence in lost:
        console.error(sentence)
    if not any(run.requests for run in found.outcomes):
        raise ConfigError(
            f"not one request was served: every one needs more than the {wanted.profile.blocks} KV blocks of an"
            f" engine; give more --blocks or shorter prompts"
        )
    return 1 if lost or None in found.replicas.values() else 0


def _tell(said: str) -> None:
    """Say on a terminal how far it is."""
    if sys.stderr.isatty():
        console.say(said)
