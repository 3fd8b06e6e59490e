"""What a load process is told: one value, passed as a file that only the owner can read."""

from __future__ import annotations

from pathlib import Path

import msgspec

from infera_cli.workload.arrivals import Arrivals
from infera_cli.workload.requests import Shape

HARD_CAP = 20_000   # open requests of one process; beyond it a due request is recorded as not sent


class Target(msgspec.Struct, frozen=True):
    """One address. `headers` are sent with every request; `ca` is a file of certificates to trust."""

    url: str
    headers: dict[str, str] = {}
    insecure: bool = False
    ca: str | None = None


class DatasetSpec(msgspec.Struct, frozen=True):
    """Which dataset, and its parameters; lengths in tokens. `content` replaces the file at `path`."""

    name: str = "random"
    path: str | None = None
    content: str | None = None
    input_len: int = 1024
    output_len: int | None = 128
    range_ratio: float = 0.0
    prefix_len: int = 0
    groups: int = 10
    zipf: float = 0.0
    turns: int = 3
    turns_ratio: float = 0.0
    think: float = 0.0
    block: int = 512
    multi_turn: bool = False


class Limits(msgspec.Struct, frozen=True):
    """Seconds a request may take: to connect, to the first token, between tokens, in all. 0: no limit."""

    connect: float = 5.0
    first_token: float = 0.0
    idle: float = 0.0
    total: float = 3600.0


class Job(msgspec.Struct, frozen=True):
    """The load of one process: its part is number `part` of `parts`.

    `direct` are workers that every second arrival goes to, past the router. `salt` begins every prompt, so
    that no cache has seen it; `run` ends every session id. `warm` sends the whole plan once, unmeasured,
    before the clock starts.
    """

    target: Target
    shape: Shape
    arrivals: Arrivals
    dataset: DatasetSpec
    seed: int
    direct: tuple[str, ...] = ()
    path: str = ""
    salt: str = ""
    run: str = ""
    warmups: int = 0
    warm: bool = False
    max_concurrency: int | None = None
    hard_cap: int = HARD_CAP
    limits: Limits = Limits()
    grace: float = 30.0
    feed_back: bool = True
    sessions: bool = True
    always_session: bool = False
    tokenizer: str | None = None
    keep_text: bool = False
    part: int = 0
    parts: int = 1

    def for_part(self, part: int, parts: int) -> Job:
        """The same load, as seen by one of several processes."""
        return msgspec.structs.replace(self, part=part, parts=parts)


class Progress(msgspec.Struct):
    """What a load process says of itself, twice a second. Rates are left to the reader.

    `lag` is the worst send lag, `ttft` the median of late, both seconds; `cpu` the share of a core over the
    last five seconds, `cpu_max` the highest so far.
    """

    state: str = "running"      # ready, running, done, failed
    sent: int = 0
    done: int = 0
    failed: int = 0
    open: int = 0
    tokens: int = 0
    ttft: float | None = None
    lag: float = 0.0
    cpu: float = 0.0
    cpu_max: float = 0.0
    cpu_mean: float = 0.0
    message: str = ""


def together(parts: list[Progress]) -> Progress:
    """Several processes as one; its state is that of the slowest."""
    order = ("starting", "ready", "running", "done")
    known = [part.ttft for part in parts if part.ttft is not None]
    return Progress(
        state=min((part.state for part in parts), key=order.index, default="starting"),
        sent=sum(part.sent for part in parts), done=sum(part.done for part in parts),
        failed=sum(part.failed for part in parts), open=sum(part.open for part in parts),
        tokens=sum(part.tokens for part in parts), ttft=sum(known) / len(known) if known else None,
        lag=max((part.lag for part in parts), default=0.0), cpu=max((part.cpu for part in parts), default=0.0),
        cpu_max=max((part.cpu_max for part in parts), default=0.0),
        cpu_mean=sum(part.cpu_mean for part in parts) / len(parts) if parts else 0.0,
    )


def write(job: Job, path: Path) -> None:
    """Write `job`, readable by the owner only: headers may carry a key (rulings 7)."""
    path.touch(mode=0o600)
    path.write_bytes(pack(job))


def read(path: Path) -> Job:
    """Read a job that `write` wrote."""
    return unpack(path.read_bytes())


def pack(job: Job) -> bytes:
    """`job` as bytes; not JSON, which has no infinite rate."""
    return msgspec.msgpack.encode(job)


def unpack(data: bytes) -> Job:
    """The job in `data`."""
    return msgspec.msgpack.decode(data, type=Job)
