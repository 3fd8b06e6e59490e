"""`infera profile`, against a server and an engine that answer what they are told to."""

from __future__ import annotations

import json

from tests.cli.conftest import Infera, Result
from tests.client.stub import Stub

START, STOP = "POST /v1/admin/profile/start", "POST /v1/admin/profile/stop"
DONE = {"worker_id": "a", "url": "http://h:1", "engine": "vllm", "status_code": 200, "ok": True, "detail": ""}
FAILED = {"worker_id": "b", "url": "http://h:2", "engine": "sglang", "status_code": None, "ok": False, "detail": "gone"}
PLACE = "torch_profiler_dir of the engine's --profiler-config"


def answer(*results: object) -> tuple[int, object]:
    return 200, {"action": "start", "requested": 1, "succeeded": 1, "results": list(results)}


def test_a_server_without_profiling_says_what_to_do(infera: Infera, stub: Stub) -> None:
    """Its own sentence, and none about a token, which would not help."""
    stub.answers[START] = (403, {"error": {"message": "Profiling is off: start the server with --enable-profiling."}})
    said = infera("profile", "start", "--server", stub.url)
    told = f"error: {stub.url} refused: Profiling is off: start the server with --enable-profiling\n"
    assert said == Result(1, "", told)


def test_each_worker_has_a_row(infera: Infera, stub: Stub) -> None:
    """Selectors go into the query, what engines read into the body; nothing is said where all went well."""
    stub.answers[START] = answer(DONE)
    said = infera("profile", "start", "--worker", "a", "--role", "mixed", "--prefix", "p", "--server", stub.url)
    table = "WORKER  DONE  STATUS  DETAIL  TRACES\na       yes      200  -       -\n"
    assert said == Result(0, table, "")
    assert stub.asked[0].path == "/v1/admin/profile/start?worker_id=a&role=mixed"
    assert stub.asked[0].body == {"profile_prefix": "p"}


def test_stop_says_where_the_traces_lie(infera: Infera, stub: Stub) -> None:
    """As far as can be known from here."""
    stub.answers[STOP] = answer(DONE)
    said = json.loads(infera("profile", "stop", "--json", "--server", stub.url).out)
    assert said["results"] == [{**DONE, "traces": PLACE}]


def test_a_worker_that_did_not_is_an_error(infera: Infera, stub: Stub) -> None:
    """The table is shown all the same, and the exit code is 1."""
    stub.answers[START] = answer(DONE, FAILED)
    code, out, err = infera("profile", "start", "--server", stub.url)
    assert (code, len(out.splitlines())) == (1, 3)
    assert err == "error: 1 of 2 workers did not: b\n"


def test_a_duration_stops_what_was_started(infera: Infera, stub: Stub) -> None:
    """Start, wait, stop; only workers that had started are told of."""
    stub.answers[START], stub.answers[STOP] = answer(DONE), answer(DONE, FAILED)
    code, out, err = infera("profile", "start", "--duration", "10ms", "--server", stub.url)
    assert (code, err) == (0, "profiling for 0.01 s\n")
    assert PLACE in out
    assert [asked.path for asked in stub.asked] == ["/v1/admin/profile/start", "/v1/admin/profile/stop"]


def test_engines_are_asked_without_a_server(infera: Infera, stub: Stub) -> None:
    """--engine goes straight to the engine's own route; an empty answer of 200 is fine."""
    stub.answers["POST /start_profile"] = (200, b"")
    code, out, _ = infera("profile", "start", "--engine", stub.url, "--json")
    result = json.loads(out)["results"][0]
    assert (code, result["ok"], result["status_code"], result["worker_id"]) == (0, True, 200, stub.url)


def test_an_engine_that_is_not_there_is_a_row(infera: Infera, stub: Stub) -> None:
    """And the exit code 1."""
    code, out, _ = infera("profile", "stop", "--engine", "http://127.0.0.1:9", "--json")
    assert code == 1
    assert json.loads(out)["results"][0]["status_code"] is None


def test_two_ways_to_choose_contradict_each_other(infera: Infera, stub: Stub) -> None:
    """Engines are named or chosen, not both; a duration must be one."""
    assert infera("profile", "start", "--engine", stub.url, "--model", "m").code == 2
    assert infera("profile", "start", "--duration", "soon", "--server", stub.url).code == 2
