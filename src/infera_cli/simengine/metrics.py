"""`/metrics` under vLLM's names (engines §1.7), in Prometheus' text format."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator

from infera_cli.simengine.options import Options
from infera_cli.simulator.engine import EngineModel

_SECONDS = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0,
            40.0, 80.0, 160.0)
CONTENT_TYPE = "text/plain; version=1.0.0; charset=utf-8"


class Histogram:
    """Counts of observed seconds by bucket."""

    def __init__(self, name: str, text: str) -> None:
        self.name = name
        self.text = text
        self._counts = [0] * (len(_SECONDS) + 1)
        self._sum = 0.0

    def observe(self, seconds: float, times: int = 1) -> None:
        """Count one value, or the same one several times."""
        self._counts[bisect_left(_SECONDS, seconds)] += times
        self._sum += seconds * times

    def lines(self, labels: str) -> Iterator[str]:
        """The exposition of this histogram."""
        yield f"# HELP {self.name} {self.text}"
        yield f"# TYPE {self.name} histogram"
        total = 0
        for bound, count in zip((*map(str, _SECONDS), "+Inf"), self._counts, strict=True):
            total += count
            yield f'{self.name}_bucket{{{labels},le="{bound}"}} {float(total)}'
        yield f"{self.name}_count{{{labels}}} {float(total)}"
        yield f"{self.name}_sum{{{labels}}} {self._sum}"


class Metrics:
    """What the engine's shell counts itself; the rest is read from the model when asked."""

    def __init__(self, engine: EngineModel, options: Options) -> None:
        self._engine = engine
        self._options = options
        self.finished: Counter[str] = Counter({"stop": 0, "length": 0, "abort": 0, "error": 0})
        self.ttft = Histogram("vllm:time_to_first_token_seconds", "Time to first token in seconds.")
        self.gap = Histogram("vllm:inter_token_latency_seconds", "Inter-token latency in seconds.")
        self.e2e = Histogram("vllm:e2e_request_latency_seconds", "End-to-end latency in seconds.")

    def exposition(self) -> bytes:
        """The whole page."""
        name = self._options.names[0].replace("\\", r"\\").replace('"', r"\"")
        labels = f'engine="0",model_name="{name}"'
        lines = [*self._gauges(labels), *self._counters(labels), *self._info()]
        for histogram in (self.ttft, self.gap, self.e2e):
            lines += histogram.lines(labels)
        return ("\n".join(lines) + "\n").encode()

    def _gauges(self, labels: str) -> Iterator[str]:
        engine = self._engine
        for name, value, text in (
            ("num_requests_running", float(engine.running), "Number of requests in model execution batches."),
            ("num_requests_waiting", float(engine.waiting), "Number of requests waiting to be processed."),
            ("kv_cache_usage_perc", engine.kv_usage, "KV-cache usage. 1 means 100 percent usage."),
        ):
            yield from _family(name, "gauge", text, [(labels, value)])
        yield from _family("num_requests_waiting_by_reason", "gauge", "Waiting requests by reason.", [
            (f'{labels},reason="capacity"', float(engine.waiting)), (f'{labels},reason="deferred"', 0.0)])
        yield from _family("engine_sleep_state", "gauge", "Engine sleep state.", [
            (f'{labels},sleep_state="{state}"', float(state == "awake"))
            for state in ("awake", "weights_offloaded", "discard_all")])

    def _counters(self, labels: str) -> Iterator[str]:
        count = self._engine.counters
        for name, value, text in (
            ("prefix_cache_queries_total", count.prefix_queries, "Prefix cache queries, in tokens."),
            ("prefix_cache_hits_total", count.prefix_hits, "Prefix cache hits, in tokens."),
            ("prompt_tokens_total", count.prompt_tokens, "Number of prefill tokens processed."),
            ("generation_tokens_total", count.generation_tokens, "Number of generation tokens processed."),
            ("num_preemptions_total", count.preemptions, "Cumulative number of preemptions from the engine."),
        ):
            yield from _family(name, "counter", text, [(labels, float(value))])
        sources = (("local_compute", count.prompt_tokens - count.prefix_hits),
                   ("local_cache_hit", count.prefix_hits), ("external_kv_transfer", 0))
        yield from _family("prompt_tokens_by_source_total", "counter", "Prompt tokens by source.", [
            (f'{labels},source="{source}"', float(value)) for source, value in sources])
        yield from _family("request_success_total", "counter", "Count of processed requests by reason.", [
            (f'{labels},finished_reason="{reason}"', float(value))
            for reason, value in self.finished.items()])

    def _info(self) -> Iterator[str]:
        profile = self._options.profile
        facts = {"block_size": profile.block_size, "num_gpu_blocks": profile.blocks, "engine": 0,
                 "enable_prefix_caching": True, "kv_cache_size_tokens": profile.tokens,
                 "prefix_caching_hash_algo": "sha256"}
        labels = ",".join(f'{name}="{value}"' for name, value in facts.items())
        yield from _family("cache_config_info", "gauge", "Information of the cache.", [(labels, 1.0)])


def _family(name: str, kind: str, text: str, samples: list[tuple[str, float]]) -> Iterator[str]:
    yield f"# HELP vllm:{name} {text}"
    yield f"# TYPE vllm:{name} {kind}"
    for labels, value in samples:
        yield f"vllm:{name}{{{labels}}} {value}"
