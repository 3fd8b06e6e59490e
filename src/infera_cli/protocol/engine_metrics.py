"""What an engine's own `/metrics` page says about its load (engines.md §1.7, §2.8; replica-router §2.11).

Only a dozen names matter out of some thousand lines, so one regular expression looks for those and skips the
rest, garbage included; reading every series into objects would cost a hundred times as much per scrape.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import isfinite

_Samples = dict[bytes, list[tuple[dict[bytes, bytes], float]]]

# For each thing the names that carry it, the newest first; the first name present wins.
_RUNNING = (b"vllm:num_requests_running", b"sglang:num_running_reqs", b"tgi_batch_current_size")
_WAITING = (b"vllm:num_requests_waiting", b"sglang:num_queue_reqs", b"tgi_queue_size")
_USAGE = (b"vllm:kv_cache_usage_perc", b"vllm:gpu_cache_usage_perc", b"sglang:token_usage")
_QUERIES = (
    b"vllm:prefix_cache_queries_total", b"vllm:prefix_cache_queries", b"vllm:gpu_prefix_cache_queries_total",
    b"vllm:gpu_prefix_cache_queries", b"sglang:prompt_tokens_total",
)
_HITS = (
    b"vllm:prefix_cache_hits_total", b"vllm:prefix_cache_hits", b"vllm:gpu_prefix_cache_hits_total",
    b"vllm:gpu_prefix_cache_hits", b"sglang:cached_tokens_total",
)
_PREEMPTIONS = (b"vllm:num_preemptions_total", b"vllm:num_preemptions")
_WORK = (
    b"vllm:generation_tokens_total", b"vllm:prompt_tokens_total", b"sglang:generation_tokens_total",
    b"tgi_request_count", b"tgi_request_success", b"tgi_batch_forward_duration_count",
)
_STARTED = (b"process_start_time_seconds",)
_BATCH_TOKENS = (b"tgi_batch_current_max_tokens",)
_CONFIG = b"vllm:cache_config_info"
_PAGE = (b"sglang:page_size",)
_PAGES = (b"sglang:num_pages",)
_TOKENS = (b"sglang:max_total_num_tokens",)

_NAMES = (
    *_RUNNING, *_WAITING, *_USAGE, *_QUERIES, *_HITS, *_PREEMPTIONS, *_WORK, *_STARTED, *_BATCH_TOKENS, _CONFIG,
    *_PAGE, *_PAGES, *_TOKENS,
)
_LABELS = rb'\{((?:[^"}\n]|"(?:[^"\\\n]|\\.)*")*)\}'
_SAMPLE = re.compile(rb"^(%b)(?:%b)?[ \t]+(\S+)" % (b"|".join(_NAMES), _LABELS), re.MULTILINE)
_LABEL = re.compile(rb'(\w+)="((?:[^"\\]|\\.)*)"')


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineLoad:
    """An engine's load and cache as it reports them; None where it does not say.

    `running` and `waiting` are requests; `kv_usage` is 0…1, the mean over ranks, `kv_usage_max` that of the fullest
    one; `cache_queries` and `cache_hits` count prompt tokens since the engine's start, all and those found in its
    prefix cache; `work` grows whenever the engine gets something done, and `started` is when its process began, in
    Unix time; `batch_tokens` is what the running batch may come to hold (TGI). `block_size` and
    `kv_cache_size_tokens` are tokens, `num_gpu_blocks` blocks over all ranks.
    """

    running: int | None = None
    waiting: int | None = None
    kv_usage: float | None = None
    kv_usage_max: float | None = None
    cache_queries: int | None = None
    cache_hits: int | None = None
    preemptions: int | None = None
    work: int | None = None
    started: float | None = None
    batch_tokens: int | None = None
    block_size: int | None = None
    num_gpu_blocks: int | None = None
    kv_cache_size_tokens: int | None = None


def parse_load(page: bytes) -> EngineLoad:
    """The load on a Prometheus text page of vLLM or SGLang, of old and new releases; never raises."""
    samples = _samples(page)
    static = _static(samples.get(_CONFIG, []))
    return EngineLoad(
        running=_sum(samples, _RUNNING),
        waiting=_sum(samples, _WAITING),
        kv_usage=_mean(samples, _USAGE),
        kv_usage_max=max(_values(samples, _USAGE), default=None),
        cache_queries=_sum(samples, _QUERIES),
        cache_hits=_sum(samples, _HITS),
        preemptions=_sum(samples, _PREEMPTIONS),
        work=_total(samples, _WORK),
        started=max(_values(samples, _STARTED), default=None),
        batch_tokens=_most(samples, _BATCH_TOKENS),
        block_size=static.get(b"block_size", _most(samples, _PAGE)),
        num_gpu_blocks=static.get(b"num_gpu_blocks", _sum(samples, _PAGES)),
        kv_cache_size_tokens=static.get(b"kv_cache_size_tokens", _sum(samples, _TOKENS)),
    )


def _samples(page: bytes) -> _Samples:
    found: _Samples = {}
    for name, labels, text in _SAMPLE.findall(page):
        value = _number(text)
        pairs = dict(_LABEL.findall(labels))
        # Tensor and pipeline ranks of one engine repeat the same request; only data-parallel ranks add up.
        if value is not None and pairs.get(b"tp_rank", b"0") == b"0" and pairs.get(b"pp_rank", b"0") == b"0":
            found.setdefault(name, []).append((pairs, value))
    return found


def _number(text: bytes) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if isfinite(value) and value >= 0 else None


def _values(samples: _Samples, names: tuple[bytes, ...]) -> list[float]:
    return next(([value for _, value in samples[name]] for name in names if name in samples), [])


def _sum(samples: _Samples, names: tuple[bytes, ...]) -> int | None:
    values = _values(samples, names)
    return int(sum(values)) if values else None


def _total(samples: _Samples, names: tuple[bytes, ...]) -> int | None:
    """All names together, since any of them moving is a sign of life."""
    values = [value for name in names for _, value in samples.get(name, ())]
    return int(sum(values)) if values else None


def _mean(samples: _Samples, names: tuple[bytes, ...]) -> float | None:
    values = _values(samples, names)
    return sum(values) / len(values) if values else None


def _most(samples: _Samples, names: tuple[bytes, ...]) -> int | None:
    values = _values(samples, names)
    return int(max(values)) if values else None


def _static(infos: list[tuple[dict[bytes, bytes], float]]) -> dict[bytes, int]:
    # Each data-parallel rank repeats the facts, block counts already summed: believe the largest.
    facts: dict[bytes, int] = {}
    for labels, _ in infos:
        for key in (b"block_size", b"num_gpu_blocks", b"kv_cache_size_tokens"):
            value = _number(labels.get(key, b""))
            if value is not None:
                facts[key] = max(int(value), facts.get(key, 0))
    return facts
