"""Which answers report an out-of-memory (replica-router §2.12)."""

from __future__ import annotations

import pytest

from infera_cli.protocol.out_of_memory import READ_LIMIT, event_is_out_of_memory, is_out_of_memory

TGI = (b'{"error":"Request failed during generation: Server error: CUDA out of memory. Tried to allocate",'
       b'"error_type":"generation"}')


@pytest.mark.parametrize("status", [424, 500, 503, 507])
@pytest.mark.parametrize(
    "text",
    [b"CUDA out of memory", b"torch.OutOfMemoryError: x", b"CUBLAS_STATUS_ALLOC_FAILED when calling",
     b"HIP error: out of memory"],
)
def test_signs_are_recognised_in_failures(status: int, text: bytes) -> None:
    """Four statuses and four texts, whatever their case."""
    assert is_out_of_memory(status, b'{"error": "' + text.upper() + b'"}')


@pytest.mark.parametrize("status", [200, 400, 422, 429, 502])
def test_other_statuses_are_not_looked_into(status: int) -> None:
    """Overload and bad input are no out-of-memory, whatever they say."""
    assert not is_out_of_memory(status, TGI)


def test_c5_tgi_failing_in_prefill_is_recognised() -> None:
    """424 with the server's text behind a generation-failed phrase."""
    assert is_out_of_memory(424, TGI)


@pytest.mark.parametrize(
    "body", [b"", b'{"error":"Model is overloaded","error_type":"overloaded"}', b"KV cache is full"]
)
def test_a_full_cache_is_no_out_of_memory(body: bytes) -> None:
    """Engines preempt and queue; that is their business."""
    assert not is_out_of_memory(503, body)


def test_only_the_beginning_is_read() -> None:
    """64 KiB are looked at."""
    assert not is_out_of_memory(500, b" " * READ_LIMIT + b"out of memory")


def test_error_events_of_streams_are_recognised() -> None:
    """An error inside a 200; text that speaks of memory is none."""
    assert event_is_out_of_memory(b'data: {"error":{"message":"CUDA out of memory"}}\n\n')
    assert event_is_out_of_memory(b'data: {"choices":[]}\n\ndata: {"error":{"message":"CUDA out of memory"}}\n\n')
    assert not event_is_out_of_memory(b'data: {"choices":[{"delta":{"content":"\\"error\\": out of memory"}}]}\n\n')
    assert not event_is_out_of_memory(b'data: {"error":{"message":"boom"}}\n\n')
