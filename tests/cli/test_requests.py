"""`infera requests` and `infera explain`."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Infera, Result
from tests.client.stub import Stub

REQUEST = {
    "id": "req-1", "path": "/v1/chat/completions", "model": "m", "session": "chat-1", "worker": "node0",
    "why": "session:hit", "status": 200, "outcome": "ok", "retries": 0, "streamed": True, "chunks": 65,
    "started": 1_800_000_000.5, "queue": 0.0001, "pick": 0.000042, "connect": 0.0, "upstream": 0.031,
    "first_byte": 0.0312, "total": 1.5, "error": None,
    "tokens": {"prompt": 176, "completion": 48, "cached": 144},
}

TABLE = """\
STARTED               STATUS  OUTCOME  WORKER  WHY          FIRST BYTE  TOTAL  RETRIES  SESSION  ID
2027-01-15T08:00:00Z     200  ok       node0   session:hit       0.031  1.500        0  chat-1   req-1
"""


def test_requests_are_a_table(infera: Infera, stub: Stub) -> None:
    """Times of day in UTC, durations in seconds."""
    stub.answers["GET /v1/admin/requests"] = (200, {"requests": [REQUEST]})
    assert infera("requests", "--server", stub.url) == Result(0, TABLE, "")
    assert stub.asked[0].path == "/v1/admin/requests?limit=20"


WIDE = """\
MODEL  PATH                  QUEUE MS  PICK MS  CONNECT MS  UPSTREAM MS  CHUNKS  TOKENS IN/CACHED/OUT  ERROR
m      /v1/chat/completions     0.100    0.042       0.000       31.000      65  176/144/48            -
"""


def test_requests_have_more_to_say(infera: Infera, stub: Stub) -> None:
    """`-o wide` goes on with where the time went, in milliseconds, and with tokens."""
    stub.answers["GET /v1/admin/requests"] = (200, {"requests": [REQUEST]})
    said = infera("requests", "-o", "wide", "--server", stub.url).out
    narrow, wide = TABLE.splitlines(), WIDE.splitlines()
    assert said.splitlines() == [f"{left:<102}  {right}" for left, right in zip(narrow, wide, strict=True)]


def test_requests_are_filtered(infera: Infera, stub: Stub) -> None:
    """Each filter goes to the server; spans may have a unit."""
    stub.answers["GET /v1/admin/requests"] = (200, {"requests": []})
    filters = ["--slow", "250ms", "--worker", "a b", "--session", "s", "--status", "5xx", "-n", "3"]
    assert infera("requests", *filters, "--server", stub.url) == Result(0, "", "no requests\n")
    assert stub.asked[0].path == "/v1/admin/requests?slow=0.25&worker=a+b&session=s&status=5xx&limit=3"


def test_requests_that_never_got_far_have_gaps(infera: Infera, stub: Stub) -> None:
    """What was never reached is a dash, in JSON null."""
    gaps: dict[str, Any] = {"worker": None, "first_byte": None, "status": 429, "outcome": "rejected"}
    rejected = {**REQUEST, **gaps}
    stub.answers["GET /v1/admin/requests"] = (200, {"requests": [rejected]})
    assert "     429  rejected  -       " in infera("requests", "--server", stub.url).out
    assert json.loads(infera("requests", "--json", "--server", stub.url).out)["requests"] == [rejected]


DECISION = {
    "worker": "node0", "why": "session:hit", "affinity": "hit", "policy": "session", "model": "m",
    "session": "header:chat-1", "error": None,
    "candidates": [
        {"worker": "node0", "outstanding": 2, "dropped": None, "terms": {"load": 2.0}},
        {"worker": "node1", "outstanding": 0, "dropped": "not ready", "terms": {}},
    ],
}

EXPLAINED = """\
node0  (session:hit)
policy: session  affinity: hit  model: m  session: header:chat-1

CANDIDATE  OPEN  SCORE   DROPPED
* node0       2  load=2  -
  node1       0  -       not ready
"""


def test_explain_shows_the_decision_and_its_reasons(infera: Infera, stub: Stub) -> None:
    """The choice first, then every candidate and why not it."""
    stub.answers["POST /v1/admin/explain"] = (200, DECISION)
    said = infera("explain", "--prompt", "hi", "--model", "m", "--session", "chat-1", "--server", stub.url)
    assert said == Result(0, EXPLAINED, "")
    asked = stub.asked[0].body
    assert asked["headers"] == {"X-Session-Id": "chat-1"}
    assert json.loads(asked["body"]) == {"model": "m", "messages": [{"role": "user", "content": "hi"}]}


def test_explain_reads_a_body(
    infera: Infera, stub: Stub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From a file or standard input, as it is."""
    stub.answers["POST /v1/admin/explain"] = (200, DECISION)
    (tmp_path / "body.json").write_text('{"prompt":  "x"}', encoding="utf-8")
    monkeypatch.setattr(sys, "stdin", io.StringIO('{ "prompt":"y"}'))
    path = ["--path", "/v1/completions", "--header", "X-A: b:c", "--server", stub.url]
    said = infera("explain", "body.json", *path, "-o", "json").out
    assert json.loads(said) == {"schema_version": 1, **DECISION}
    assert infera("explain", "-", *path).code == 0
    assert [asked.body for asked in stub.asked] == [
        {"path": "/v1/completions", "headers": {"X-A": "b:c"}, "body": body}
        for body in ('{"prompt":  "x"}', '{ "prompt":"y"}')]


@pytest.mark.parametrize("text", ["nonsense", "[1, 2]", "", '{"messages": '])
def test_explain_refuses_what_is_no_request(
    infera: Infera, stub: Stub, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would be explained as a request without a prompt, which looks like one without a hit; forms are not JSON."""
    stub.answers["POST /v1/admin/explain"] = (200, DECISION)
    monkeypatch.setattr("sys.stdin", io.StringIO(text))
    refused = infera("explain", "-", "--server", stub.url)
    assert (refused.code, stub.asked) == (1, [])
    assert "standard input holds no" in refused.err
    monkeypatch.setattr("sys.stdin", io.StringIO(text))
    assert infera("explain", "-", "--path", "/v1/audio/transcriptions", "--server", stub.url).code == 0


def test_explain_that_finds_nobody_fails(infera: Infera, stub: Stub) -> None:
    """Exit status 1, the reason, and still every candidate."""
    nobody = {**DECISION, "worker": None, "why": "", "error": "No worker is ready.", "affinity": "none"}
    stub.answers["POST /v1/admin/explain"] = (200, nobody)
    code, out, err = infera("explain", "--server", stub.url)
    assert (code, err) == (1, "error: No worker is ready.\n")
    assert "  node0       2" in out


@pytest.mark.parametrize(
    ("argv", "code", "says"),
    [
        (["body.json", "--prompt", "x"], 2, "give a FILE, or --prompt and --model, not both"),
        (["none.json"], 1, "cannot read none.json: No such file or directory"),
        (["--header", "x"], 2, "--header must look like NAME:VALUE, not 'x'"),
        (["-o", "wide"], 2, "-o must be table or json, not 'wide'"),
    ],
)
def test_explain_says_what_is_wrong_with_the_question(
    infera: Infera, argv: list[str], code: int, says: str
) -> None:
    """One sentence, before the server is asked."""
    assert infera("explain", *argv, "--server", "http://127.0.0.1:1") == Result(code, "", f"error: {says}\n")
