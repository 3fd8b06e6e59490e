"""Workers, requests and explanations of a running server."""

from __future__ import annotations

import pytest

from infera_cli.client.explain import explain
from infera_cli.client.http import Server
from infera_cli.client.requests import requests
from infera_cli.client.workers import drain, resolve, restore, workers
from infera_cli.errors import NotFound, ServerUnreachable
from tests.client.stub import WORKERS, Stub


def test_workers_are_listed_as_the_server_shows_them(stub: Stub) -> None:
    """Nothing is added or left out."""
    stub.answers["GET /v1/workers"] = (200, {"workers": WORKERS})
    assert workers(Server(stub.url)) == WORKERS


def test_an_answer_of_another_program_is_refused(stub: Stub) -> None:
    """JSON of another shape is not taken for an empty fleet."""
    stub.answers["GET /v1/workers"] = (200, ["hello"])
    stub.answers["POST /v1/admin/explain"] = (200, {"hello": 1})
    with pytest.raises(ServerUnreachable, match="not as an infera server does"):
        workers(Server(stub.url))
    with pytest.raises(ServerUnreachable, match="not as an infera server does"):
        explain(Server(stub.url), path="/v1/completions", headers={}, body="{}")


def test_drain_and_restore_name_one_worker(stub: Stub) -> None:
    """The name may be its beginning, and colons in it are escaped."""
    stub.answers["GET /v1/workers"] = (200, {"workers": WORKERS})
    for verb in ("drain", "restore"):
        answer = {"worker_id": "10.0.0.2:8001", "status": verb, "outstanding": 0}
        stub.answers[f"POST /v1/admin/workers/10.0.0.2%3A8001/{verb}"] = (200, answer)
    assert drain(Server(stub.url), "10.")["status"] == "drain"
    assert restore(Server(stub.url), "10.0.0.2:8001")["status"] == "restore"


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("node", "'node' may be any of node0, node10"),
        ("nodr0", "no worker 'nodr0'; did you mean 'node0'?"),
        ("zzz", "no worker 'zzz'; there are node0, node10"),
        ("", "no worker ''; there are node0, node10"),
    ],
)
def test_names_that_are_not_one_worker_are_refused(given: str, says: str) -> None:
    """The names there are, or the nearest one, are named."""
    with pytest.raises(NotFound) as fault:
        resolve(given, ["node0", "node10"])
    assert fault.value.message == says


def test_a_whole_name_wins_over_a_beginning() -> None:
    """`node1` is node1, also when there is a node10."""
    assert resolve("node1", ["node1", "node10"]) == "node1"


def test_requests_are_filtered_by_the_server(stub: Stub) -> None:
    """Filters travel in the query; those not given do not."""
    stub.answers["GET /v1/admin/requests"] = (200, {"requests": [{"id": "a"}]})
    assert requests(Server(stub.url), slow=2.0, status="5xx", limit=3) == [{"id": "a"}]
    assert stub.asked[0].path == "/v1/admin/requests?slow=2.0&status=5xx&limit=3"


def test_explain_sends_the_request_that_is_asked_about(stub: Stub) -> None:
    """Route, headers and the very text of the body go into the question."""
    stub.answers["POST /v1/admin/explain"] = (200, {"worker": "node0"})
    found = explain(Server(stub.url), path="/v1/completions", headers={"A": "b"}, body="{ }")
    assert found == {"worker": "node0"}
    assert stub.asked[0].body == {"path": "/v1/completions", "headers": {"A": "b"}, "body": "{ }"}
