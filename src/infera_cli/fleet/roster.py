"""The table of workers: who is in it, from which source, and in what order (rulings 21)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from infera_cli.fleet.member import Member
from infera_cli.protocol.address import one_spelling
from infera_cli.routing.types import WorkerSpec


class Enter(Protocol):
    """Makes a worker live."""

    def __call__(self, spec: WorkerSpec, *, ready: bool, owned: bool) -> Member:
        """The member of `spec`."""


class Roster:
    """Members in table order. Names and base URLs are unique; who came first wins.

    Who came second is remembered, and gets the place once it is free: a worker that two sources name does not
    vanish because one of them forgets it. `tell(worker id, what, detail)` is called for each change.
    """

    def __init__(
        self, enter: Enter, leave: Callable[[Member], None], tell: Callable[[str, str, str], None]
    ) -> None:
        self._enter = enter
        self._leave = leave
        self._tell = tell
        self.by_id: dict[str, Member] = {}
        self._by_url: dict[str, Member] = {}
        self._waiting: dict[tuple[str, str], tuple[WorkerSpec, bool, bool]] = {}

    @property
    def members(self) -> Sequence[Member]:
        """In table order."""
        return tuple(self.by_id.values())

    def add(self, spec: WorkerSpec, *, ready: bool, owned: bool) -> Member | None:
        """Enter `spec`, or keep the member it already has; None when someone else holds its name or URL."""
        own = self.by_id.get(spec.id)
        if own is not None and own.spec == spec:
            return own
        if own is not None and own.spec.source == spec.source:
            self._drop(own)
        holder = self.by_id.get(spec.id) or self._by_url.get(_base(spec))
        if holder is None:
            self._waiting.pop((spec.source, spec.id), None)
            return self._seat(spec, ready=ready, owned=owned)
        self._refuse(spec, holder, ready=ready, owned=owned)
        return None

    def remove(self, member: Member) -> None:
        """Take `member` out; whoever waited for its name or URL gets in."""
        self._drop(member)
        self._admit_waiting()

    def withdraw(self, source: str, worker_id: str) -> None:
        """Take out what `source` brought under that name, seated or waiting; nothing is no fault."""
        self._waiting.pop((source, worker_id), None)
        member = self.by_id.get(worker_id)
        if member is not None and member.spec.source == source:
            self.remove(member)

    def replace(self, source: str, specs: Sequence[WorkerSpec], *, ready: bool) -> None:
        """Make `specs` all that `source` has in the table."""
        wanted = {spec.id: spec for spec in specs}
        for member in self.members:
            if member.spec.source == source and wanted.get(member.id) != member.spec:
                self._drop(member)
        for key in [key for key in self._waiting if key[0] == source and wanted.get(key[1]) is None]:
            del self._waiting[key]
        for spec in wanted.values():
            self.add(spec, ready=ready, owned=False)
        self._admit_waiting()

    def _seat(self, spec: WorkerSpec, *, ready: bool, owned: bool) -> Member:
        member = self._enter(spec, ready=ready, owned=owned)
        self.by_id[spec.id] = member
        self._by_url[_base(spec)] = member
        self._tell(spec.id, "added", spec.url)
        return member

    def _drop(self, member: Member) -> None:
        del self.by_id[member.id]
        del self._by_url[_base(member.spec)]
        self._leave(member)
        self._tell(member.id, "removed", member.spec.url)

    def _refuse(self, spec: WorkerSpec, holder: Member, *, ready: bool, owned: bool) -> None:
        key = spec.source, spec.id
        if key in self._waiting and self._waiting[key][0] == spec:
            return  # it was told before
        self._waiting[key] = spec, ready, owned
        shared = "URL" if _base(holder.spec) == _base(spec) else "name"
        sentence = f"{spec.url} of {spec.source or 'no source'} has the {shared} "
        sentence += f"of {holder.id!r} of {holder.spec.source or 'no source'}"
        self._tell(spec.id, "ignored", sentence)

    def _admit_waiting(self) -> None:
        for spec, ready, owned in list(self._waiting.values()):
            if spec.id not in self.by_id and _base(spec) not in self._by_url:
                del self._waiting[spec.source, spec.id]
                self._seat(spec, ready=ready, owned=owned)


def _base(spec: WorkerSpec) -> str:
    return f"{spec.scheme}://{one_spelling(spec.host)}:{spec.port}{spec.path_prefix.rstrip('/')}"
