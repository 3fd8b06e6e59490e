"""`infera workers`, against a server that answers what it is told to."""

from __future__ import annotations

import json

import pytest

from tests.cli.conftest import Infera, Result
from tests.client.stub import WORKERS, Stub

TABLE = """\
WORKER         STATE      MODELS  OPEN  ROUTED  BREAKER  URL
node0          ready      m          2      14  closed   http://10.0.0.1:8001
10.0.0.2:8001  not ready  -          0       3  open     http://10.0.0.2:8001
"""

WIDE = """\
WORKER         STATE      MODELS  OPEN  ROUTED  BREAKER  URL                   ENGINE  ROLE   OWNED
node0          ready      m          2      14  closed   http://10.0.0.1:8001  vllm    mixed  no
10.0.0.2:8001  not ready  -          0       3  open     http://10.0.0.2:8001  -       mixed  yes
"""


@pytest.fixture
def fleet(stub: Stub) -> Stub:
    stub.answers["GET /v1/workers"] = (200, {"workers": WORKERS})
    return stub


def test_a_table_for_people(infera: Infera, fleet: Stub) -> None:
    """Names are never cut off, numbers are to the right."""
    assert infera("workers", "list", "--server", fleet.url) == Result(0, TABLE, "")


def test_a_wider_table_on_request(infera: Infera, fleet: Stub) -> None:
    """`-o wide` adds columns and takes none away."""
    assert infera("workers", "list", "-o", "wide", "--server", fleet.url) == Result(0, WIDE, "")


@pytest.mark.parametrize("how", [["-o", "json"], ["--json"]])
def test_json_for_programs(infera: Infera, fleet: Stub, how: list[str]) -> None:
    """The server's own objects in an array, under a schema version."""
    code, out, err = infera("workers", "list", *how, "--server", fleet.url)
    assert (code, err) == (0, "")
    assert json.loads(out) == {"schema_version": 1, "workers": WORKERS}


def test_names_for_scripts(infera: Infera, fleet: Stub) -> None:
    """`-o name` prints one name a line."""
    said = infera("workers", "list", "-o", "name", "--server", fleet.url)
    assert said == Result(0, "node0\n10.0.0.2:8001\n", "")


def test_an_empty_fleet_is_no_error(infera: Infera, stub: Stub) -> None:
    """Nothing on standard output, a remark on standard error; JSON has an empty array."""
    stub.answers["GET /v1/workers"] = (200, {"workers": []})
    assert infera("workers", "list", "--server", stub.url) == Result(0, "", "no workers\n")
    assert json.loads(infera("workers", "list", "--json", "--server", stub.url).out)["workers"] == []


def test_an_unknown_format_is_usage(infera: Infera, fleet: Stub) -> None:
    """Exit status 2 and the formats there are."""
    assert infera("workers", "list", "-o", "xml", "--server", fleet.url) == Result(
        2, "", "error: -o must be one of table, wide, json, name, not 'xml'\n")


def test_the_server_may_come_from_the_environment(
    infera: Infera, fleet: Stub, monkeypatch: pytest.MonkeyPatch
) -> None:
    """INFERA_SERVER and INFERA_ADMIN_TOKEN stand in for the flags."""
    monkeypatch.setenv("INFERA_SERVER", fleet.url)
    monkeypatch.setenv("INFERA_ADMIN_TOKEN", "hush")
    assert infera("workers", "list").out == TABLE
    assert fleet.asked[0].headers["Authorization"] == "Bearer hush"


def test_drain_says_what_is_still_open(infera: Infera, fleet: Stub) -> None:
    """The state on standard output, the way back on standard error."""
    answer = {"worker_id": "node0", "status": "draining", "outstanding": 2}
    fleet.answers["POST /v1/admin/workers/node0/drain"] = (200, answer)
    assert infera("workers", "drain", "node", "--server", fleet.url) == Result(
        0, "node0 draining, 2 requests open\n", "undo it with `infera workers restore node0`\n")


def test_restore_undoes_it(infera: Infera, fleet: Stub) -> None:
    """One line."""
    answer = {"worker_id": "node0", "status": "active", "outstanding": 1}
    fleet.answers["POST /v1/admin/workers/node0/restore"] = (200, answer)
    assert infera("workers", "restore", "node0", "--server", fleet.url) == Result(
        0, "node0 restored, 1 request open\n", "")


def test_an_unknown_worker_is_one_sentence(infera: Infera, fleet: Stub) -> None:
    """Exit status 1 and the nearest name."""
    assert infera("workers", "drain", "nod0", "--server", fleet.url) == Result(
        1, "", "error: no worker 'nod0'; did you mean 'node0'?\n")


def test_a_missing_token_is_one_sentence(infera: Infera, fleet: Stub) -> None:
    """Exit status 1 and where the token goes."""
    fleet.answers["POST /v1/admin/workers/node0/drain"] = (401, {"error": {"message": "Not from here."}})
    assert infera("workers", "drain", "node0", "--server", fleet.url) == Result(
        1, "", f"error: {fleet.url} refused: Not from here; "
               "give the admin token with INFERA_ADMIN_TOKEN or --admin-token-file\n")


def test_an_unreachable_server_is_one_sentence(infera: Infera) -> None:
    """Exit status 1 and how to name another."""
    code, out, err = infera("workers", "list", "--server", "http://127.0.0.1:1")
    assert (code, out) == (1, "")
    assert err == ("error: cannot reach http://127.0.0.1:1 (connection refused); "
                   "is `infera serve` running there? --server or INFERA_SERVER names another\n")
