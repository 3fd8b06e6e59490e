"""`infera` with simulated engines of another speed: `python -m bench.sim_server TOKENS_A_SECOND serve --sim 3 …`.

`--sim` starts engines of one fixed speed. A measurement that shares its machine with them wants them so slow that the
machine matters little.
"""

from __future__ import annotations

import sys
from unittest import mock

from infera_cli.cli.app import run
from infera_cli.wiring import sources


class Slowed(sources.FromSimulation):
    """`--sim` with that many prompt tokens a second."""

    def __init__(self, count: int, *, kv_events: bool = False) -> None:
        super().__init__(count, kv_events=kv_events)
        self._options = {**self._options, "prefill-rate": sys.argv[1]}


if __name__ == "__main__":
    with mock.patch.object(sources, "FromSimulation", Slowed):
        sys.exit(run(sys.argv[2:]))
