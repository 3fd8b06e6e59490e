"""Misbehaviour on demand (engines §8)."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from infera_cli.simengine import faults
from tests.simengine.conftest import Start, get, post
from tests.simengine.test_http import HELLO, events


def ask(url: str, fault: str, *, stream: bool = True, timeout: float = 5.0) -> httpx.Response:
    """One chat request with a fault in its header."""
    body = {"messages": HELLO, "max_tokens": 8, "stream": stream}
    return post(f"{url}/v1/chat/completions", json=body, headers={"x-sim-fault": fault}, timeout=timeout)


def set_faults(url: str, **what: Any) -> None:
    """Process-wide faults."""
    assert post(f"{url}/sim/faults", json=what).json() == {"ok": True}


def test_faults_are_read_from_one_text() -> None:
    """Several members combine; unknown ones and bad numbers are errors."""
    assert faults.parse("") == faults.NONE
    late = faults.Fault(delay=0.5, ending="cut", after=3, comments=True)
    busy = faults.Fault(status=429, retry_after="2", shape="flat")
    assert faults.parse("delay=0.5, cut-after=3,comments") == late
    assert faults.parse("status=429,retry-after=2,shape=flat") == busy
    for wrong in ("nonsense", "shape=round", "status=x", "cut-after=x"):
        with pytest.raises(ValueError, match=r"unknown fault|invalid literal"):
            faults.parse(wrong)


@pytest.mark.parametrize("status", [400, 404, 429, 500, 503])
@pytest.mark.parametrize(
    ("shape", "code"),
    [("vllm", ["error", "code"]), ("flat", ["code"]), ("detail", None)],
)
def test_errors_come_in_each_engines_shape(url: str, status: int, shape: str, code: list[str] | None) -> None:
    """vLLM's nested error, SGLang's flat one, FastAPI's detail (engines §0)."""
    answer = ask(url, f"status={status},shape={shape},retry-after=7")
    assert (answer.status_code, answer.headers["retry-after"]) == (status, "7")
    body = answer.json()
    if code is None:
        assert list(body) == ["detail"]
    else:
        for member in code:
            body = body[member]
        assert body == status


def test_stream_cut_after_two_pieces_breaks_in_mid_line(url: str) -> None:
    """Two pieces arrive, then half a line, then a reset: never a clean end."""
    pieces: list[bytes] = []
    body = {"messages": HELLO, "max_tokens": 8, "stream": True, "sim_fault": "cut-after=2"}
    with (
        httpx.Client(verify=False) as client,
        client.stream("POST", f"{url}/v1/chat/completions", json=body) as answer,
        pytest.raises(httpx.ReadError),
    ):
        pieces.extend(answer.iter_raw())
    got = b"".join(pieces)
    assert got.count(b'"content":"') == 3           # the role chunk's empty one, and two
    assert b"[DONE]" not in got


def test_stream_closed_early_has_no_last_chunk(url: str) -> None:
    """A polite close in mid-stream is an incomplete chunked body."""
    with pytest.raises(httpx.RemoteProtocolError, match="incomplete chunked read"):
        ask(url, "close-after=1")


def test_in_band_error_comes_under_200(url: str) -> None:
    """The status stays 200; the error is an event, then [DONE] (engines §1.4)."""
    answer = ask(url, "error-after=1")
    *_, error, done = events(answer.text)
    assert (answer.status_code, error["error"]["type"], done) == (200, "InternalServerError", "[DONE]")
    unary = ask(url, "error-after=1", stream=False)
    assert (unary.status_code, unary.json()["error"]["type"]) == (500, "InternalServerError")


def test_abort_is_a_finish_reason(url: str) -> None:
    """finish_reason "abort" under 200, with the text so far (engines §1.13)."""
    chunks = events(ask(url, "abort-after=2").text)
    assert [each["choices"][0]["finish_reason"] for each in chunks[:-1]] == [None, None, None, "abort"]
    unary = ask(url, "abort-after=2", stream=False).json()["choices"][0]
    assert (unary["finish_reason"], len(unary["message"]["content"])) == ("abort", 8)


def test_comments_are_lines_that_begin_with_a_colon(url: str) -> None:
    """A stream with comments is otherwise the same."""
    plain, noisy = ask(url, "").text, ask(url, "comments").text
    kept = [line for line in noisy.splitlines() if line.startswith("data:")]
    assert len(kept) == len([line for line in plain.splitlines() if line.startswith("data:")])
    assert ": still here" in noisy


@pytest.mark.parametrize("fault", ["stall", "stall-after=0"])
def test_stalls_send_nothing_more(url: str, fault: str) -> None:
    """The client gives up first, whether it waits for headers or for text."""
    with pytest.raises(httpx.ReadTimeout):
        ask(url, fault, timeout=0.2)


@pytest.mark.parametrize(
    ("fault", "error"),
    [("reset", httpx.ReadError), ("close", httpx.RemoteProtocolError),
     ("garbage", httpx.RemoteProtocolError)],
)
def test_connections_can_break_before_any_answer(url: str, fault: str, error: type[Exception]) -> None:
    """A reset, an early close, or bytes that are not HTTP instead of an answer."""
    with pytest.raises(error):
        ask(url, fault)


def test_unary_answer_can_be_cut(url: str) -> None:
    """Half a JSON body and a reset."""
    with pytest.raises(httpx.ReadError):
        ask(url, "cut-after=1", stream=False)


def test_a_fault_can_come_in_the_body(url: str) -> None:
    """A relay that drops headers still lets the fault through."""
    body = {"messages": HELLO, "max_tokens": 2, "sim_fault": "status=503"}
    assert post(f"{url}/v1/chat/completions", json=body).status_code == 503


def test_an_unknown_fault_is_a_400(url: str) -> None:
    """A typing error in a test is noticed."""
    assert ask(url, "cutt").json()["error"]["message"] == "x-sim-fault: unknown fault 'cutt'"
    assert post(f"{url}/sim/faults", json={"fault": "cutt"}).status_code == 400


def test_faults_can_be_set_for_everyone_and_for_a_number_of_requests(start: Start) -> None:
    """Process-wide faults hold for so many requests; then all is well again."""
    url = start("--time-scale", "10")
    set_faults(url, fault="status=500", times=2)
    answers = [post(f"{url}/v1/completions", json={"prompt": "x", "max_tokens": 1}) for _ in range(3)]
    assert [answer.status_code for answer in answers] == [500, 500, 200]


def test_health_can_fail_and_hang(start: Start) -> None:
    """Health becomes 503, or never answers, until it is set back; generation goes on."""
    url = start("--time-scale", "10")
    set_faults(url, health=503)
    assert (get(f"{url}/health").status_code, get(f"{url}/health").content) == (503, b"")
    set_faults(url, health="hang")
    with pytest.raises(httpx.ReadTimeout):
        get(f"{url}/health", timeout=0.2)
    set_faults(url, health=None)
    assert get(f"{url}/health").status_code == 200


def test_the_engine_can_refuse_connections_for_a_while(start: Start) -> None:
    """It stops listening, cuts who is connected, and comes back on the same port."""
    url = start("--time-scale", "10")
    set_faults(url, refuse=0.5)
    with pytest.raises(httpx.ConnectError):
        get(f"{url}/health")
    patient = httpx.HTTPTransport(retries=3, verify=False)      # backs off 0, 0.5, 1 s
    with httpx.Client(transport=patient) as client:
        assert client.get(f"{url}/health").status_code == 200


def test_error_bodies_are_json(url: str) -> None:
    """Even the simplest fault has a body that parses."""
    assert json.loads(ask(url, "status=418").text)["error"]["code"] == 418
