"""A registry with everything around it, for tests: a clock, dice, pins, and what it told."""

from __future__ import annotations

import random
from collections import Counter

from infera_cli.events import Bus, Event, WorkerChanged
from infera_cli.fleet.member import Member
from infera_cli.fleet.registry import Registry
from infera_cli.gateway.ports import Lease
from infera_cli.routing.catalogue import POLICIES
from infera_cli.routing.health import Score
from infera_cli.routing.pipeline import decide
from infera_cli.routing.sessions import Pins
from infera_cli.routing.types import Ask, Role, WorkerSpec


def spec(
    name: str, *, source: str = "file", host: str | None = None, port: int = 8001, path: str = "",
    models: tuple[str, ...] = (), role: Role = "mixed",
) -> WorkerSpec:  # fmt: skip
    """A worker on a host of its own name."""
    return WorkerSpec(
        id=name, host=host or name, port=port, path_prefix=path, models=models, role=role, source=source
    )


class Fleet:
    """A registry of static workers of source `file`; `now` is its clock."""

    def __init__(self, *names: str, policy: str = "session", slack: float = 8, created: int = 0) -> None:
        self.events: list[WorkerChanged] = []
        bus = Bus()
        bus.subscribe(self._note)
        self.pins = Pins(3600.0)
        self.registry = Registry(bus, pins=self.pins, created=created)
        self.policy = POLICIES[policy]
        self.slack = slack
        self.dice = random.Random(1)
        self.now = 0.0
        for name in names:
            self.registry.add(spec(name))

    def _note(self, event: Event) -> None:
        assert isinstance(event, WorkerChanged)
        self.events.append(event)

    def __getitem__(self, name: str) -> Member:
        member = self.registry.member(name)
        assert member is not None
        return member

    def names(self) -> list[str]:
        return [member.id for member in self.registry.members()]

    def routable(self) -> list[str]:
        return [member.id for member in self.registry.members() if member.routable]

    def told(self, what: str) -> list[str]:
        """Of whom `what` was told, in order."""
        return [event.worker for event in self.events if event.what == what]

    def last(self, what: str) -> str:
        """The detail of the last event `what`."""
        return [event.detail for event in self.events if event.what == what][-1]

    def send(self, session: str | None = None, *, model: str | None = None) -> Lease:
        ask = Ask(model=model, session=session)
        view = self.registry.view(model, self.now)
        decision = decide(ask, view, self.policy, now=self.now, dice=self.dice, slack=self.slack)
        return self.registry.reserve(decision, session, self.now)

    def visit(self, session: str | None = None, *, model: str | None = None) -> str:
        """One request, over before the next; who served it."""
        lease = self.send(session, model=model)
        lease.settle(self.now)
        return lease.worker.id

    def serve(self, count: int, *, model: str | None = None) -> dict[str, int]:
        """How many of `count` requests each worker got."""
        return dict(Counter(self.visit(model=model) for _ in range(count)))

    def until(self, name: str) -> None:
        """Send requests until one goes to `name`."""
        for _ in range(20):
            if self.visit() == name:
                return
        raise AssertionError(f"nothing goes to {name}")

    def probe(self, name: str, *, ok: bool) -> None:
        self.registry.probed(self[name], ok, self.now)

    def score(self, name: str, score: Score) -> None:
        self.registry.score(self[name].worker, score, self.now)

    def step(self, what: str, name: str, leases: list[Lease]) -> None:
        """One step of a random history; steps on a worker that is not there do nothing."""
        here = self.registry.member(name)
        if what == "wait":
            self.now += 4.0
        elif what == "add":
            self.registry.add(spec(name))
        elif what == "reload":
            self.registry.replace_source("file", [spec(n) for n in "abcd" if n != name])
        elif what == "settle" and leases:
            leases.pop().settle(self.now)
        elif what == "send" and any(member.available for member in self.registry.members()):
            leases.append(self.send(name))
        elif here is not None:
            self._change(what, here)

    def _change(self, what: str, member: Member) -> None:
        if what in ("remove", "drain", "restore"):
            getattr(self.registry, what)(member.id)
        elif what in ("ok", "fail"):
            self.probe(member.id, ok=what == "ok")
        elif what == "learn":
            self.registry.models_learned(member, [{"id": "m"}])
        elif what in ("success", "fault", "neutral", "unreachable"):
            self.score(member.id, Score(what))


def broken(*names: str, policy: str = "round-robin") -> Fleet:
    """A fleet whose first worker has an open breaker since second 0."""
    fleet = Fleet(*names, policy=policy)
    for _ in range(3):
        fleet.score(names[0], Score.FAULT)
    return fleet
