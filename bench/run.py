"""`python -m bench.run`: measure, print the table, and with a full run keep it under bench/results/."""

from __future__ import annotations

import argparse
import datetime as dt
import os
import signal
import sys
import tempfile
from pathlib import Path

from bench import machine
from bench.bars import BARS
from bench.contenders import ALL, install_peers
from bench.results import Results
from bench.scenarios import FULL, QUICK, SCENARIOS, Bench
from bench.table import page

RESULTS = Path(__file__).parent / "results"


def arguments() -> argparse.Namespace:
    """What to measure, and how long."""
    parser = argparse.ArgumentParser(prog="python -m bench.run", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=SCENARIOS, metavar="SCENARIO", help=", ".join(SCENARIOS))
    parser.add_argument("--routers", nargs="+", metavar="NAME", default=[contender.name for contender in ALL],
                        help="only those whose name begins so, e.g. infera nginx")
    parser.add_argument("--quick", action="store_true", help="a first impression; nothing is kept")
    parser.add_argument("--out", type=Path, help="folder for serve.md and serve.json, also of a partial run")
    return parser.parse_args()


def main() -> int:
    """Run what was asked for; 1 when a bar is missed, or in a full run was not measured."""
    chosen = arguments()
    scenarios = chosen.only or list(SCENARIOS)
    plan = QUICK if chosen.quick else FULL
    partial = bool(chosen.quick or chosen.only)
    out = chosen.out or (None if partial else RESULTS)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that nothing started here outlives us
    router_core, load_core = machine.two_cores()
    machine.raise_file_limit()
    contenders = [contender for contender in ALL if contender.name.startswith(tuple(chosen.routers))]
    if {"unary", "sse"} & set(scenarios):
        install_peers()
    os.sched_setaffinity(0, {load_core})
    today = dt.datetime.now(dt.UTC).date().isoformat()
    results = Results(about={"date": today, **machine.describe()})
    with tempfile.TemporaryDirectory(prefix="infera-bench-") as folder:
        bench = Bench(plan, contenders, Path(folder), router_core, load_core, results)
        for name in scenarios:
            SCENARIOS[name](bench)
    text = page(results, plan)
    print(text)
    if out:
        out.mkdir(parents=True, exist_ok=True)
        (out / "serve.md").write_text(text)
        results.save(out / "serve.json")
    verdicts = [bar.verdict(results)[1] for bar in BARS]
    missed, unmeasured = "missed" in verdicts, "NOT MEASURED" in verdicts and not partial
    return 1 if missed or unmeasured else 0


if __name__ == "__main__":
    sys.exit(main())
