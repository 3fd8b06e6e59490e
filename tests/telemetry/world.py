"""Finished requests and a fleet to watch, in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from infera_cli.events import Bus, RequestDone
from infera_cli.routing.types import Worker, WorkerSpec
from infera_cli.telemetry.metrics import Metrics
from infera_cli.telemetry.recorder import Recorder
from infera_cli.telemetry.watched import Watched


def done(**changes: Any) -> RequestDone:
    """A unary request that went well on worker `a`."""
    given: dict[str, Any] = {
        "id": "r1", "path": "/v1/chat/completions", "model": "m", "session": "s1", "worker": "a",
        "why": "session:hit", "status": 200, "outcome": "ok", "retries": 0, "streamed": False,
        "started": 1_700_000_000.0, "received": 0.001, "picked": 0.0012, "sent": 0.0013,
        "first_byte": 0.2, "total": 0.25, "chunks": 1, "bytes_in": 100,
        "bytes_out": 200, "tail": b"", "peer": "127.0.0.1",
    }  # fmt: skip
    return RequestDone(**(given | changes))


@dataclass
class FakeMember:
    worker: Worker
    ready: bool = True
    draining: bool = False
    outstanding: int = 0
    routed: int = 0
    breaker: str = "closed"
    breaker_trips: int = 0
    models: tuple[str, ...] = ("m",)

    @property
    def spec(self) -> WorkerSpec:
        return self.worker.spec


def member(name: str, **live: Any) -> FakeMember:
    return FakeMember(Worker(WorkerSpec(id=name, host="h", port=1), 0), **live)


@dataclass
class FakePool:
    spec: WorkerSpec
    open_count: int = 5
    idle_count: int = 3
    created: int = 8
    taken_again: int = 90


@dataclass
class World:
    """A fleet that a test changes, and the metrics over it."""

    table: list[FakeMember] = field(default_factory=lambda: [member("a"), member("b")])
    pooled: list[FakePool] = field(default_factory=list)
    inside: int = 0

    def __post_init__(self) -> None:
        self.bus = Bus()
        self.recorder = Recorder(self.bus)
        watched = Watched(fleet=self, inflight=lambda: self.inside, pools=lambda: self.pooled)
        self.metrics = Metrics(self.bus, watched, version="1.2.3", flush=self.recorder.flush)
        self.recorder.feed(self.metrics.add)

    def members(self) -> Sequence[FakeMember]:
        return self.table

    def counters(self) -> Mapping[str, int]:
        return {"sessions": 4, "routed": 9, "affinity_hits": 6, "rejected": 0}

    def text(self, accept: str = "") -> str:
        return self.metrics.render(accept)[0].decode()

    def scrape(self) -> dict[str, float]:
        """Every sample by its name and labels, as a scraper reads them: `name{a="1",b="2"}`."""
        return samples(parse_text(self.text()))

    def scrape_openmetrics(self) -> dict[str, float]:
        text = self.text("application/openmetrics-text; version=1.0.0")
        return samples(parse_openmetrics(text))  # type: ignore[no-untyped-call]


def samples(families: Any) -> dict[str, float]:
    found = {}
    for family in families:
        for sample in family.samples:
            pairs = ",".join(f'{k}="{v}"' for k, v in sample.labels.items())
            found[f"{sample.name}{{{pairs}}}" if pairs else sample.name] = sample.value
    return found
