"""What translation costs: CPU of the router per event of a Messages stream over chat, beside the same stream relayed.

    python -m bench.clients_streams [--quick] [--out PAGE]

One router, loaded in turn with both kinds of stream; the ratio is taken within each round and must not exceed 3. Writes
bench/results/clients.md, with --quick only where --out says.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path

from bench import machine
from bench.contenders import Contender, infera
from bench.load import Traffic, closed_loop
from bench.record import RESULTS, compared, grid, publish
from bench.scenarios import EVENTS, run

LIMIT = 3.0
CONNECTIONS = {False: 32, True: 128}


@dataclass(frozen=True)
class Messages(Traffic):
    """The same conversation on the other route."""

    def requests(self) -> Iterator[bytes]:
        """Endless requests, ready to write."""
        body = self._body()
        head = b"POST /v1/messages HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\n"
        return cycle([b"%bContent-Length: %d\r\n\r\n%b" % (head, len(body), body)])


def command(folder: Path, port: int, upstreams: list[int]) -> list[str]:
    """The router, translating."""
    return [*infera(folder, port, upstreams), "--anthropic", "translate"]


def cost(process: machine.Process, port: int, traffic: Traffic, seconds: float) -> float:
    """CPU µs per event. Raises SystemExit where a request failed."""
    before = process.cpu()
    tally = run(closed_loop(port, traffic, connections=CONNECTIONS[traffic.paced], seconds=seconds), 120)
    if tally.failed or not tally.done:
        raise SystemExit(f"{tally.failed} of {tally.done + tally.failed} requests failed")
    return (process.cpu() - before) / (tally.done * EVENTS) * 1e6


def measure(rounds: int, seconds: float) -> dict[str, list[tuple[float, float]]]:
    """(relayed, translated) of each round, unpaced and paced."""
    router_core, load_core = machine.two_cores()
    machine.raise_file_limit()
    found: dict[str, list[tuple[float, float]]] = {"unpaced": [], "paced": []}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        upstream = machine.Process([sys.executable, "-m", "bench.upstream", "2"], core=load_core,
                                   log=folder / "upstream.log", stdout=subprocess.PIPE)  # fmt: skip
        assert upstream.popen.stdout is not None
        ports = json.loads(upstream.popen.stdout.readline())
        contender = Contender("infera, translating", command, lambda: "")  # type: ignore[arg-type]
        process, port = contender.start(folder, ports, router_core)
        try:
            for _ in range(rounds):
                for kind, paced in (("unpaced", False), ("paced", True)):
                    relayed, translated = (
                        cost(process, port, traffic(prompt=2000, events=EVENTS, paced=paced), seconds)
                        for traffic in (Traffic, Messages)
                    )
                    found[kind].append((relayed, translated))
        finally:
            process.stop()
            upstream.stop()
    return found


def main() -> int:
    """Write the page; 1 where the limit is not kept."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    count, seconds = (2, 1.0) if asked.quick else (5, 2.5)
    found = measure(count, seconds)
    rows, bars = compared(found, "CPU of a translated stream", against="a relayed one", limit=LIMIT, places=1)
    met = publish(
        asked.out or (Path(os.devnull) if asked.quick else RESULTS / "clients.md"), "Translated streams",
        how=f"Written by `python -m bench.clients_streams`: medians of {count} interleaved rounds of {seconds:g} s, "
            f"streams of {EVENTS} events for prompts of 2 KB, Messages over chat beside chat, one router. CPU µs "
            "of the router an event:",
        tables=[grid(("stream", "relayed", "translated", "ratio"), rows)], bars=bars,
    )  # fmt: skip
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
