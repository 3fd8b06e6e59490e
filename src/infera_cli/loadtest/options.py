"""What a benchmark is asked to do, and the jobs that follow from it."""

from __future__ import annotations

import math
import re
from typing import Any

import msgspec

from infera_cli.errors import ConfigError
from infera_cli.loadtest.job import HARD_CAP, DatasetSpec, Job, Limits, Target
from infera_cli.workload import gates, goodput, text
from infera_cli.workload.arrivals import Arrivals, ClosedLoop, OpenLoop, Ramp, RampShape, Replay, check
from infera_cli.workload.names import TEXTS, TRACES
from infera_cli.workload.requests import Dialect, Shape

SECRET = re.compile(r"auth|token|key|secret|cookie|passw|credential|signature", re.IGNORECASE)
"""What the name of a header holds whose value nobody else shall read."""

DEFAULT_PROMPTS = 200


class Options(msgspec.Struct, frozen=True):
    """Everything that can be asked; times in seconds, lengths in tokens.

    `cache` is cold (prompts that no cache has seen), warm (the plan is sent once before it is measured) or
    as-is (prompts follow from the seed alone). `sweep` is (rate|concurrency, levels).
    """

    base_url: str
    dialect: Dialect = "chat"
    path: str = ""
    model: str = ""
    stream: bool = True
    headers: dict[str, str] = {}
    extra_body: dict[str, Any] = {}
    ignore_eos: bool = False
    per_chunk_usage: bool = False
    insecure: bool = False
    ca: str | None = None
    dataset: DatasetSpec = DatasetSpec()
    rate: float | None = None
    burstiness: float = 1.0
    concurrency: int | None = None
    max_concurrency: int | None = None
    count: int | None = None
    duration: float | None = None
    ramp_shape: RampShape | None = None
    ramp_start: float | None = None
    ramp_end: float | None = None
    speed: float = 1.0
    think: float = 0.0
    seed: int | None = None
    cache: str = "cold"
    warmups: int = 0
    grace: float = 30.0
    limits: Limits = Limits()
    feed_back: bool = True
    always_session: bool = False
    tokenizer: str | None = None
    processes: int = 1
    direct: tuple[str, ...] | None = None
    slos: tuple[goodput.Slo, ...] = ()
    gates: tuple[gates.Gate, ...] = ()
    profile: bool = False
    attainment: float = 0.95
    sweep: tuple[str, tuple[float, ...]] | None = None
    find_max: str | None = None
    repeat: int = 1
    cooldown: float = 0.0
    max_error_rate: float = 0.0
    allow_degraded: bool = False
    save_text: bool = False
    placement: str = ""
    metadata: dict[str, str] = {}
    master: str | None = None
    expect_workers: int = 1

    def shown(self) -> dict[str, Any]:
        """The options for a report: what differs from nothing, without secrets."""
        found: dict[str, Any] = msgspec.to_builtins(self)
        found["headers"] = {
            name: "***" if SECRET.search(name) else value for name, value in self.headers.items()
        }
        found["dataset"].pop("content", None)
        for name in ("rate", "burstiness"):
            if found[name] == math.inf:
                found[name] = "inf"     # which JSON cannot say
        return {name: value for name, value in found.items() if value not in (None, "", {}, [], ())}


def arrivals(options: Options) -> Arrivals:
    """The arrival plan. Raises ConfigError for one that cannot be."""
    plan = _arrivals(options)
    check(plan)
    if options.cache == "warm" and isinstance(plan, ClosedLoop) and plan.count is None:
        raise ConfigError("to warm the cache for callers, say how many requests there will be (-n)")
    parts = options.expect_workers if options.master else options.processes
    if isinstance(plan, ClosedLoop) and plan.concurrency > HARD_CAP * parts:
        raise ConfigError(
            f"{plan.concurrency:,} callers are too many: a load process drives at most {HARD_CAP:,}",
            param="--concurrency",
        )
    return plan


def _arrivals(options: Options) -> Arrivals:
    count, duration = options.count, options.duration
    if options.concurrency is not None and options.rate is not None:
        raise ConfigError("give a request rate or a concurrency; to cap a rate use --max-concurrency")
    if options.ramp_shape is not None and (options.rate is not None or options.concurrency is not None):
        raise ConfigError("a ramp has its own rates: leave out --request-rate and --concurrency")
    replayed = options.dataset.name in TRACES and options.rate is None and options.ramp_shape is None
    if options.speed != 1.0 and (options.concurrency is not None or not replayed):
        raise ConfigError("--speed is for a trace that is replayed at its own times; here the load has other ones")
    if options.concurrency is not None:
        return ClosedLoop(options.concurrency, options.think, _count(options), duration)
    if replayed:
        return Replay(options.speed, count, duration)
    ramp = _ramp(options)
    rate = options.rate if options.rate is not None else math.inf
    return OpenLoop(rate, options.burstiness, _count(options), duration, ramp)


def _count(options: Options) -> int | None:
    return DEFAULT_PROMPTS if options.count is None and options.duration is None else options.count


def _ramp(options: Options) -> Ramp | None:
    if options.ramp_shape is None:
        return None
    if options.ramp_start is None or options.ramp_end is None:
        raise ConfigError("a ramp needs --ramp-up-start-rps and --ramp-up-end-rps")
    return Ramp(options.ramp_start, options.ramp_end, options.ramp_shape)


def seed_for(options: Options, seed: int, cell: str, repeat: int) -> int:
    """The seed of one run: another for every cell and repetition unless caches may stay as they are.

    Otherwise a second run would send the first one's prompts and find them cached (R164).
    """
    if options.cache == "as-is" or (cell == "" and repeat == 0):
        return seed
    return text.derive(seed, cell, repeat)


def job_for(options: Options, model: str, seed: int, direct: tuple[str, ...]) -> Job:
    """The load that `options` ask for."""
    secure = {"insecure": options.insecure, "ca": options.ca}
    return Job(
        target=Target(options.base_url, options.headers, **secure),  # type: ignore[arg-type]
        shape=Shape(
            options.dialect, model, stream=options.stream, ignore_eos=options.ignore_eos,
            per_chunk_usage=options.per_chunk_usage, extra=options.extra_body,
        ),
        arrivals=arrivals(options), dataset=options.dataset, seed=seed, direct=direct, path=options.path,
        salt=f"{text.derive(seed, 'salt'):012x}" if _needs_salt(options) else "",
        run=f"{text.derive(seed, 'run'):012x}",
        warmups=options.warmups, warm=options.cache == "warm", max_concurrency=options.max_concurrency,
        limits=options.limits, grace=options.grace, feed_back=options.feed_back,
        always_session=options.always_session, tokenizer=options.tokenizer, keep_text=options.save_text,
    )


def _needs_salt(options: Options) -> bool:
    """Made-up text follows from the seed; text from a file would be the same in every run."""
    return options.cache != "as-is" and options.dataset.name in TEXTS
