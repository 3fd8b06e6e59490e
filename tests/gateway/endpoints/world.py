"""A small fleet in memory, and the control plane over it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx

from infera_cli.errors import NotFound
from infera_cli.gateway.access import Access, RawHeaders
from infera_cli.gateway.app import ControlParts, build_app
from infera_cli.gateway.endpoints.parts import Explanation
from infera_cli.gateway.ports import Fleet, Lease, Score
from infera_cli.routing.types import Candidate, Decision, View, Worker, WorkerSpec

BASE = "http://127.0.0.1:8000"


@dataclass
class FakeMember:
    worker: Worker
    ready: bool = True
    draining: bool = False
    stalled: bool = False
    owned: bool = False
    outstanding: int = 0
    routed: int = 0
    failures: int = 0
    breaker: str = "closed"
    breaker_trips: int = 0
    models: tuple[str, ...] = ("m",)

    @property
    def spec(self) -> WorkerSpec:
        return self.worker.spec

    @property
    def routable(self) -> bool:
        return self.ready and not self.draining and self.breaker != "open"


def member(name: str, number: int = 0, **live: Any) -> FakeMember:
    spec = WorkerSpec(
        id=name, host="10.0.0.1", port=8001 + number, engine="vllm", source="replicas", api_key="wk"
    )
    return FakeMember(Worker(spec, number), **live)


@dataclass
class FakeFleet:
    table: list[FakeMember] = field(default_factory=list)
    cards: list[dict[str, Any]] = field(default_factory=list)

    def view(self, model: str | None, now: float) -> View:
        raise AssertionError("the control plane never looks for a worker")

    def explain(self, model: str | None, now: float) -> Sequence[Candidate]:
        return [Candidate(m.worker.id, m.outstanding) for m in self.table]

    def reserve(self, decision: Decision, session: str | None, now: float) -> Lease:
        raise AssertionError("the control plane never reserves")

    def score(self, worker: Worker, score: Score, now: float) -> None:
        raise AssertionError("the control plane never scores")

    def alive(self, worker: Worker, now: float) -> None:
        raise AssertionError("the control plane never hears bytes")

    def reject(self) -> None:
        raise AssertionError("the control plane never counts rejections")

    def members(self) -> Sequence[FakeMember]:
        return self.table

    def member(self, worker_id: str) -> FakeMember | None:
        return next((m for m in self.table if m.worker.id == worker_id), None)

    def drain(self, worker_id: str) -> FakeMember:
        return self._set(worker_id, True)

    def restore(self, worker_id: str) -> FakeMember:
        return self._set(worker_id, False)

    def _set(self, worker_id: str, draining: bool) -> FakeMember:
        found = self.member(worker_id)
        if found is None:
            raise NotFound(worker_id)
        found.draining = draining
        return found

    def model_cards(self) -> Sequence[dict[str, Any]]:
        return self.cards

    def counters(self) -> dict[str, int]:
        return {"sessions": 3, "routed": 7, "affinity_hits": 2, "rejected": 1}


class FakeMetrics:
    def render(self, accept: str) -> tuple[bytes, str]:
        kind = "application/openmetrics-text" if "openmetrics" in accept else "text/plain; version=0.0.4"
        return b"up 1\n", kind


class FakeJournal:
    def __init__(self) -> None:
        self.asked: dict[str, Any] = {}

    def query(self, **filters: Any) -> Sequence[Mapping[str, Any]]:
        self.asked = filters
        return [{"id": "r1"}]


async def explain(path: str, headers: RawHeaders, body: bytes) -> Explanation:
    """Tell back what came in."""
    return Explanation(
        model="m", session=f"{path} {list(headers)} {body.decode()}", policy="session", worker="a",
        why="least-loaded", affinity="none",
        candidates=[Candidate("a", 0, None, {"load": 0.0}), Candidate("b", 4, "draining")],
    )  # fmt: skip


def parts(fleet: Fleet, **changes: Any) -> ControlParts:
    given: dict[str, Any] = {
        "fleet": fleet, "access": Access(), "metrics": FakeMetrics(), "journal": FakeJournal(),
        "explain": explain, "version": "1.2.3", "policy": "session",
    }  # fmt: skip
    return ControlParts(**(given | changes))


@asynccontextmanager
async def client(made: ControlParts, peer: str = "127.0.0.1") -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(build_app(made), client=(peer, 4711), raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url=BASE) as http:
        yield http
