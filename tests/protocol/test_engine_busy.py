"""Requests inside an engine, by its metrics page (infera-wire §9.2; S14)."""

from __future__ import annotations

import pytest

from infera_cli.protocol.engine_busy import Busy, busy

VLLM = b"""# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 3.0
vllm:num_requests_running{engine="1",model_name="m"} 1.0
vllm:num_requests_waiting{engine="0",model_name="m"} 2.0
vllm:num_requests_waiting_by_reason{engine="0",reason="capacity"} 9.0
"""


def test_running_and_waiting_are_summed_over_ranks() -> None:
    """Of one engine with two ranks; longer names that begin alike are others."""
    assert busy(VLLM) == Busy(6, ())


def test_sglang_counts_the_queues_between_prefill_and_decode() -> None:
    """They hold requests that neither run nor wait."""
    page = b"sglang:num_running_reqs 1\nsglang:num_queue_reqs 0\nsglang:num_decode_transfer_queue_reqs 4\n"
    assert busy(page) == Busy(5, ())


def test_atom_has_its_own_names() -> None:
    """Without labels as well."""
    assert busy(b"atom:requests_running 1\natom:requests_waiting 0\n") == Busy(1, ())


def test_s14_a_missing_gauge_is_named_and_not_taken_for_zero() -> None:
    """The other one still counts."""
    page = b'vllm:num_requests_running{engine="0"} 0.0\n'
    assert busy(page) == Busy(0, ("vllm:num_requests_waiting",))


@pytest.mark.parametrize(
    "page", [b"", b"\xff\xfe", b"<html>", b"process_cpu_seconds_total 1\n", b"vllm:num_requests_running x\n"]
)
def test_a_page_of_nothing_we_know_is_no_answer(page: bytes) -> None:
    """Not the same as no requests."""
    assert busy(page) is None
