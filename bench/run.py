"""`python -m bench.run`: measure, print the table, and with a full run keep it under bench/results/."""

from __future__ import annotations

import argparse
import datetime as dt
import os
import sys
import tempfile
from pathlib import Path

from bench import machine
from bench.contenders import install_peers
from bench.results import Results
from bench.scenarios import FULL, QUICK, SCENARIOS, Bench
from bench.table import page

RESULTS = Path(__file__).parent / "results"


def arguments() -> argparse.Namespace:
    """What to measure, and how long."""
    parser = argparse.ArgumentParser(prog="python -m bench.run", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=SCENARIOS, metavar="SCENARIO", help=", ".join(SCENARIOS))
    parser.add_argument("--quick", action="store_true", help="a first impression; nothing is kept")
    parser.add_argument("--out", type=Path, help="folder for serve.md and serve.json, also of a partial run")
    return parser.parse_args()


def main() -> int:
    """Run what was asked for; 1 when a bar is missed, or in a full run was not measured."""
    chosen = arguments()
    scenarios = chosen.only or list(SCENARIOS)
    plan = QUICK if chosen.quick else FULL
    out = chosen.out or (None if chosen.quick or chosen.only else RESULTS)
    router_core, load_core = machine.two_cores()
    machine.raise_file_limit()
    if {"unary", "sse"} & set(scenarios):
        install_peers()
    os.sched_setaffinity(0, {load_core})
    today = dt.datetime.now(dt.UTC).date().isoformat()
    results = Results(about={"date": today, **machine.describe()})
    with tempfile.TemporaryDirectory(prefix="infera-bench-") as folder:
        bench = Bench(plan, Path(folder), router_core, load_core, results)
        for name in scenarios:
            SCENARIOS[name](bench)
    text = page(results, plan)
    print(text)
    if out:
        out.mkdir(parents=True, exist_ok=True)
        (out / "serve.md").write_text(text)
        results.save(out / "serve.json")
    unmeasured = "| NOT MEASURED |" in text and not chosen.only
    return 1 if "| missed |" in text or unmeasured else 0


if __name__ == "__main__":
    sys.exit(main())
