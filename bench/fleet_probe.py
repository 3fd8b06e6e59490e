"""What it costs to probe and supervise a fleet: CPU of one core, as a share of the time that passes.

`python -m bench.fleet_probe [--workers 512] [--seconds 20]`. The workers are sockets of one other process; the page is
bench/results/fleet-probe.md.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import resource
import sys
import time
from multiprocessing.connection import Connection as Pipe
from pathlib import Path
from typing import cast

import uvloop

from bench.record import RESULTS, Bar, publish
from infera_cli.events import Bus
from infera_cli.fleet.probe import Prober
from infera_cli.fleet.registry import Registry
from infera_cli.gateway.upstream.dial import Dialer
from infera_cli.gateway.upstream.fetch import Fetcher
from infera_cli.gateway.upstream.http import Client
from infera_cli.launch.engines import ENGINES
from infera_cli.launch.plan import Launch
from infera_cli.launch.processes import Processes
from infera_cli.launch.replacement import Rules
from infera_cli.launch.script import Identity
from infera_cli.launch.seat import Pool
from infera_cli.launch.state import Record, StateFile
from infera_cli.launch.supervisor import Supervisor
from infera_cli.routing.sessions import Pins
from infera_cli.wiring.launching import RegistryTable
from infera_cli.wiring.machines import RealNet, RealTime

BAR = 4.0
_MODELS = b'{"object":"list","data":[{"id":"m","object":"model"}]}'
_ANSWER = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: %d\r\n\r\n%b"


class Worker(asyncio.Protocol):
    """Answers anything with 200 and a list of one model."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the way back."""
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """One request, one answer, and good-bye."""
        body = _MODELS if b"/v1/models" in data else b""
        self.transport.write(_ANSWER % (len(body), body))
        self.transport.close()


def workers(count: int, pipe: Pipe) -> None:
    """The other process."""

    async def serve() -> None:
        loop = asyncio.get_running_loop()
        servers = [await loop.create_server(Worker, "127.0.0.1", 0) for _ in range(count)]
        pipe.send([server.sockets[0].getsockname()[1] for server in servers])
        await loop.run_in_executor(None, pipe.recv)

    uvloop.run(serve())


async def measure(ports: list[int], seconds: float) -> float:
    """Percent of one core, with everything that runs in a quiet server for launched replicas."""
    bus = Bus()
    registry = Registry(bus, pins=Pins(600.0))
    dialer = Dialer(5.0)
    fetch = Fetcher(Client(dialer, idle_limit=4.0, clock=time.monotonic), dialer)
    table = RegistryTable(registry)
    pool = Pool([launch(number, port) for number, port in enumerate(ports)], len(ports))
    supervisor = Supervisor(
        pool, Processes({}, RealNet(fetch), RealTime(), Rules()), table, StateFile(None), rules=Rules(), time=RealTime()
    )
    for seat in pool.seats:
        seat.move("adopt_serving")
        seat.record = record(seat.launch)
        table.enter(seat.record, seat.launch, ready=True)
    supervisor.begin()
    prober = Prober(registry, fetch)
    prober.start()
    await asyncio.sleep(7.0)
    begun, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_SELF)
    await asyncio.sleep(seconds)
    after, spent = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter() - begun
    assert all(member.ready for member in registry.members())
    await prober.stop()
    supervisor.abandon()
    return 100 * (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) / spent


def launch(number: int, port: int) -> Launch:
    """A launch that nobody starts."""
    return Launch(
        slot=f"x-d{number}", host="x", place="local", address="127.0.0.1", port=port, devices=(number,),
        engine=ENGINES["custom"], model="m", command=(), env={}, workdir=None, log="", record="", stop_command=(),
        digest="",
    )  # fmt: skip


def record(made: Launch) -> Record:
    """As if it ran."""
    identity = Identity("n", 2, "1", "b")
    return Record(slot=made.slot, host="x", devices=made.devices, address=made.address, port=made.port,
                  ready=True, identity=identity)  # fmt: skip


def main() -> int:
    """Measure, print, and say whether the bar is met."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=512)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--out", type=Path, default=RESULTS / "fleet-probe.md")
    asked = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(65536, resource.getrlimit(resource.RLIMIT_NOFILE)[1]),) * 2)
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=workers, args=(asked.workers, theirs), daemon=True)
    process.start()
    percent = uvloop.run(measure(ours.recv(), asked.seconds))
    ours.send("done")
    process.join(10)
    met = publish(
        asked.out, "Probing and supervising",
        how=f"Written by `python -m bench.fleet_probe`: registry, prober and supervisor of {asked.workers} launched "
            f"replicas that nobody sends requests to, for {asked.seconds:g} s at the default interval.",
        tables=[],
        bars=[Bar(f"CPU for {asked.workers} replicas", f"≤ {BAR:g} % of a core", f"{percent:.2f} %", percent <= BAR)],
    )  # fmt: skip
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
