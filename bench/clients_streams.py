"""What translation costs: CPU of the router per event of a Messages stream over chat, beside the same stream relayed.

    python -m bench.clients_streams [--quick]

One router, loaded in turn with both kinds of stream; the ratio is taken within each round and must not exceed 3.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from statistics import median

from bench import machine
from bench.contenders import Contender, infera
from bench.load import Traffic, closed_loop
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
    """Print a table; 1 where the limit is not kept."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    found = measure(2 if quick else 5, 1.0 if quick else 2.5)
    worst = 0.0
    for kind, rounds in found.items():
        ratio = median(translated / relayed for relayed, translated in rounds)
        worst = max(worst, ratio)
        relayed, translated = (median(column) for column in zip(*rounds, strict=True))
        print(f"{kind:8} relayed {relayed:6.1f} µs/event   translated {translated:6.1f} µs/event   {ratio:4.2f} ×")
    print(f"translated streams: {worst:.2f} × the CPU of relayed ones, at most {LIMIT:g} × promised")
    return 0 if worst <= LIMIT else 1


if __name__ == "__main__":
    sys.exit(main())
