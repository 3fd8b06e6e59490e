"""A million requests over 64 workers: `python -m bench.simulation_memory`. Writes bench/results/simulation-memory.md.

The policy is `kv-aware`, which keeps the most: an index of every block of every worker. It takes some minutes, and
minds no neighbours.
"""

from __future__ import annotations

import argparse
import os
import resource
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from bench.record import RESULTS, Bar, grid, publish
from infera_cli.loadtest.job import DatasetSpec
from infera_cli.wiring.simulation import Simulator, Wanted
from infera_cli.workload.arrivals import OpenLoop

WORKERS, REQUESTS, RATE = 64, 1_000_000, 640.0
LIMIT = 2_000.0     # MB


def main(argv: Sequence[str] | None = None) -> int:
    """Simulate, then ask how large this process ever was; 1 where the bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--policy", default="kv-aware")
    parser.add_argument("--quick", action="store_true", help="a hundredth of the requests; writes nothing")
    asked = parser.parse_args(argv)
    count = REQUESTS // 100 if asked.quick else REQUESTS
    wanted = Wanted(
        arrivals=OpenLoop(RATE, count=count), policies=(asked.policy,), workers=(WORKERS, WORKERS),
        dataset=DatasetSpec("prefix", input_len=128, output_len=64, prefix_len=128, range_ratio=0.5),
    )
    started = time.process_time()
    found = Simulator(wanted).run({}).outcomes[0]
    took = time.process_time() - started
    largest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6
    rows = [("requests", f"{found.requests:,}"), ("policy", asked.policy), ("CPU", f"{took:,.0f} s"),
            ("prompt tokens found in caches", f"{found.hit_rate:.1%}")]
    met = publish(
        Path(os.devnull) if asked.quick else RESULTS / "simulation-memory.md", "Memory of a large simulation",
        how="Written by `python -m bench.simulation_memory`.", tables=[grid(("what", "how much"), rows)],
        bars=[Bar(f"largest resident size, {count:,} requests over {WORKERS} workers", f"≤ {LIMIT:,.0f} MB",
                  f"{largest:,.0f} MB", largest <= LIMIT)],
    )
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
