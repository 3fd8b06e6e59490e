"""Loads read from pages as vLLM and SGLang print them (engines.md §1.7, §2.8; S16)."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infera_cli.protocol.engine_metrics import EngineLoad, parse_load

VLLM = b"""\
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="tiny"} 3.0
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{engine="0",model_name="tiny"} 2.0
# TYPE vllm:num_requests_waiting_by_reason gauge
vllm:num_requests_waiting_by_reason{engine="0",model_name="tiny",reason="deferred"} 9.0
vllm:kv_cache_usage_perc{engine="0",model_name="tiny"} 0.25
vllm:prefix_cache_queries_total{engine="0",model_name="tiny"} 1.2345e+06
vllm:prefix_cache_queries_created{engine="0",model_name="tiny"} 1.7e+09
vllm:prefix_cache_hits_total{engine="0",model_name="tiny"} 1.0e+06
vllm:external_prefix_cache_hits_total{engine="0",model_name="tiny"} 77.0
vllm:num_preemptions_total{engine="0",model_name="tiny"} 4.0
vllm:cache_config_info{block_size="16",cache_dtype="auto",engine="0",kv_cache_size_tokens="32000",\
num_gpu_blocks="2000",enable_prefix_caching="True"} 1.0
"""

SGLANG = b"""\
sglang:num_running_reqs{engine_type="unified",model_name="q",pp_rank="0",tp_rank="0"} 5.0
sglang:num_queue_reqs{engine_type="unified",model_name="q",pp_rank="0",tp_rank="0"} 1.0
sglang:token_usage{model_name="q",pp_rank="0",tp_rank="0"} 0.5
sglang:page_size{model_name="q",pp_rank="0",tp_rank="0"} 64.0
sglang:num_pages{model_name="q",pp_rank="0",tp_rank="0"} 100.0
sglang:max_total_num_tokens{model_name="q",pp_rank="0",tp_rank="0"} 6400.0
sglang:prompt_tokens_total{model_name="q"} 900.0
sglang:cached_tokens_total{model_name="q"} 300.0
"""


def test_a_page_of_vllm_says_everything() -> None:
    """Each field is read off vLLM's current names; series with longer names are not mistaken for them."""
    assert parse_load(VLLM) == EngineLoad(
        running=3, waiting=2, kv_usage=0.25, kv_usage_max=0.25, cache_queries=1_234_500,
        cache_hits=1_000_000, preemptions=4, block_size=16, num_gpu_blocks=2000, kv_cache_size_tokens=32000)


def test_a_page_of_sglang_says_the_same_in_its_own_words() -> None:
    """SGLang's names map to the same fields; what it does not count is None."""
    assert parse_load(SGLANG) == EngineLoad(
        running=5, waiting=1, kv_usage=0.5, kv_usage_max=0.5, cache_queries=900, cache_hits=300, preemptions=None,
        block_size=64, num_gpu_blocks=100, kv_cache_size_tokens=6400)


def test_s16_both_names_of_a_renamed_gauge_are_read() -> None:
    """Those of older vLLM releases and of today's; where both are printed the newer one counts."""
    old = (b"vllm:gpu_cache_usage_perc 0.75\nvllm:gpu_prefix_cache_queries_total 8\n"
           b"vllm:gpu_prefix_cache_hits_total 6\n")
    load = parse_load(old)
    assert (load.kv_usage, load.cache_queries, load.cache_hits) == (0.75, 8, 6)
    new = (b"vllm:kv_cache_usage_perc 0.5\nvllm:prefix_cache_queries_total 9\nvllm:prefix_cache_hits_total 7\n")
    for page in (new, old + new, new + old):
        load = parse_load(page)
        assert (load.kv_usage, load.cache_queries, load.cache_hits) == (0.5, 9, 7)


def test_data_parallel_ranks_add_up() -> None:
    """Counts of ranks are summed, usage is their mean, and block counts, summed by vLLM already, are not."""
    page = b"".join(
        b'vllm:num_requests_running{engine="%d"} %d\nvllm:kv_cache_usage_perc{engine="%d"} 0.%d\n'
        b'vllm:cache_config_info{engine="%d",block_size="16",num_gpu_blocks="400"} 1.0\n'
        % (r, r + 1, r, 2 * r, r)
        for r in (1, 2))
    load = parse_load(page)
    assert (load.running, load.num_gpu_blocks, load.block_size) == (5, 400, 16)
    assert load.kv_usage == pytest.approx(0.3)


def test_tensor_parallel_ranks_do_not_add_up() -> None:
    """Ranks of one engine that report the same requests are counted once."""
    page = b'sglang:num_running_reqs{tp_rank="0"} 3\nsglang:num_running_reqs{tp_rank="1"} 3\n'
    assert parse_load(page).running == 3


@pytest.mark.parametrize("page", [
    b"", b"\xff\xfe\x00", b"<html>not metrics</html>", b"vllm:num_requests_running",
    b"vllm:num_requests_running{", b"vllm:num_requests_running{a=} 1x\n", b"vllm:num_requests_running NaN\n",
    b"vllm:num_requests_running +Inf\n", b"vllm:num_requests_running -1\n",
    b'vllm:cache_config_info{block_size="None"} 1.0\n',
    b"xvllm:num_requests_running 1\n",
])
def test_garbage_says_nothing(page: bytes) -> None:
    """What cannot be read is unknown, not zero and not an error."""
    assert parse_load(page) == EngineLoad()


def test_one_bad_line_does_not_hide_the_next() -> None:
    """A sample with odd labels, a time stamp, or CRLF ends is read; a broken one costs only itself."""
    page = (b'vllm:num_requests_running{model_name="a\\"} 9"} 3 1700000000\r\n'
            b"vllm:num_requests_waiting what\nvllm:kv_cache_usage_perc 0.5\r\n")
    load = parse_load(page)
    assert (load.running, load.waiting, load.kv_usage) == (3, None, 0.5)


@given(st.binary(max_size=200), st.integers(0, len(VLLM)))
def test_no_page_whatever_raises(noise: bytes, cut: int) -> None:
    """Any bytes, also in the middle of a real page, give a load."""
    assert isinstance(parse_load(VLLM[:cut] + noise + VLLM[cut:]), EngineLoad)


def test_a_page_built_to_make_the_search_slow_does_not() -> None:
    """Time grows with the size of the page, not with how labels are nested."""
    def seconds(times: int) -> float:
        page = b"vllm:num_requests_running{" + b'a="b\\"c",' * times
        best = []
        for _ in range(3):
            started = time.perf_counter()
            parse_load(page)
            best.append(time.perf_counter() - started)
        return min(best)

    assert seconds(40_000) < 60 * max(seconds(4_000), 1e-5)


def test_names_are_known_with_and_without_total() -> None:
    """Counters are read with and without the suffix of the text format (replica-router §2.11)."""
    page = b"vllm:prefix_cache_queries 10\nvllm:prefix_cache_hits 4\nvllm:num_preemptions 3\n"
    load = parse_load(page)
    assert (load.cache_queries, load.cache_hits, load.preemptions) == (10, 4, 3)


def test_the_fullest_of_several_series_is_kept() -> None:
    """Beside the mean, the largest usage of several series is known; NaN and Inf are not."""
    page = b'vllm:kv_cache_usage_perc{engine="0"} 0.25\nvllm:kv_cache_usage_perc{engine="1"} 0.75\n'
    assert parse_load(page + b'vllm:kv_cache_usage_perc{engine="2"} NaN\n').kv_usage_max == 0.75
    assert parse_load(b"vllm:kv_cache_usage_perc +Inf\n").kv_usage_max is None


def test_a_page_of_tgi_says_batch_and_queue() -> None:
    """TGI's batch is what runs, its queue what waits, and what its batch may hold is known in tokens."""
    load = parse_load(b"tgi_batch_current_size 3\ntgi_queue_size 2\ntgi_batch_current_max_tokens 4096\n")
    assert (load.running, load.waiting, load.batch_tokens, load.kv_usage) == (3, 2, 4096, None)


def test_signs_of_life_are_counted_together() -> None:
    """Whatever an engine counts as done adds up to one number; its start is read as Unix time."""
    page = b"vllm:generation_tokens_total 100\nvllm:prompt_tokens_total 50\nprocess_start_time_seconds 1.5e9\n"
    load = parse_load(page)
    assert (load.work, load.started) == (150, 1.5e9)
    assert parse_load(b"").work is None
