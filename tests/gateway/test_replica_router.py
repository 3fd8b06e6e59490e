"""What the replica router's own documents name is accepted here under the same names ("Arguments", "Replica File",
"Endpoints", "Session Identity", "Exit Status"): a deployment moves over by changing the command.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from infera_cli.config.serve import load_serve
from infera_cli.protocol import replica_file
from tests.gateway.conftest import Serve, Setup
from tests.support import raw
from tests.support.replies import sse, word

ARGUMENTS: list[tuple[str, str | None, Any, Any]] = [  # flag, a value, what it becomes, its default
    ("replicas", "r.json", "r.json", None),
    ("host", "127.0.0.1", "127.0.0.1", "0.0.0.0"),
    ("port", "8001", 8001, 8000),
    ("session-ttl", "60", 60.0, 600.0),
    ("affinity-slack", "0", 0, 8),
    ("health-interval", "1", 1.0, 5.0),
    ("request-timeout", "7200", 7200.0, 3600.0),
    ("connect-timeout", "2.5", 2.5, 5.0),
    ("initial-replicas", "0", 0, None),
    ("max-replicas", "3", 3, None),
    ("launch-timeout", "1200", 1200.0, 600.0),
    ("drain-timeout", "60", 60.0, 300.0),
    ("replace-after", "45", 45.0, 30.0),
    ("no-replace-dead", "", True, False),
    ("state-file", "s.json", "s.json", None),
    ("admin-token", "hush", "hush", None),
]

REPLICA = {"host": "h", "port": 1}
HOST: dict[str, Any] = {"devices": [0, 1], "model": "/m"}
FIELDS: list[tuple[str, dict[str, Any], str, Any]] = [  # list, the least entry, field, a value
    *[("replicas", REPLICA, field, value) for field, value in (
        ("name", "node0"), ("host", "10.0.0.2"), ("port", 8001), ("scheme", "https"))],
    *[("hosts", HOST, field, value) for field, value in (
        ("devices", [3, 1, 2, 0]), ("devices_per_replica", 2), ("model", "/models/q"), ("name", "x"),
        ("ssh", "user@host"), ("identity_file", "~/.ssh/id"), ("port_base", 9001), ("served_model_name", "q"),
        ("serve_args", ["--tp", "2"]), ("env", {"CACHE": "/c/{device}"}), ("python", "/usr/bin/python3"),
        ("launch_wrapper", ["task-submit", "--device", "{devices}", "--run"]), ("workdir", "/srv"),
        ("stop_command", ["stop", "{port}"]), ("log_dir", "/var/log/x"))],
]  # fmt: skip

GENERATING = ["/v1/completions", "/v1/chat/completions"]


@pytest.mark.parametrize(("flag", "given", "becomes", "default"), ARGUMENTS, ids=[row[0] for row in ARGUMENTS])
def test_every_argument_is_accepted_with_its_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flag: str, given: str, becomes: Any, default: Any
) -> None:
    """Each argument of the document is a flag of the same name, with the documented default."""
    monkeypatch.chdir(tmp_path)
    name = flag.replace("-", "_")
    base = {} if flag == "replicas" else {"replicas": "r.json"}
    assert getattr(load_serve({**base, name: given or True}, {}).settings, name) == becomes
    if base:
        assert getattr(load_serve(base, {}).settings, name) == default


@pytest.mark.parametrize(("kind", "least", "field", "value"), FIELDS, ids=[f"{row[0]}-{row[2]}" for row in FIELDS])
def test_every_field_of_the_replica_file_is_accepted(kind: str, least: dict[str, Any], field: str, value: Any) -> None:
    """Each field of `replicas` and of `hosts` is read."""
    text = json.dumps({kind: [{**least, field: value}]}).encode()
    file = replica_file.parse(text, path="r.json", router_port=8000)
    assert len(file.replicas if kind == "replicas" else file.slots) > 0


@pytest.mark.asyncio(loop_scope="session")
async def test_all_arguments_start_a_router_together(serve: Serve, tmp_path: Path) -> None:
    """A router with everything said that needs no launch starts and answers."""
    words = [word for flag, given, _, _ in ARGUMENTS
             if flag not in {"replicas", "port", "state-file", "max-replicas"}
             for word in ([f"--{flag}", given] if given else [f"--{flag}"])]
    state = ("--state-file", str(tmp_path / "state.json"))
    setup = await serve(2, *words, *state, process=True)
    async with await raw.Client.connect(setup.url) as client:
        assert (await client.get("/replicas")).status == 401
        listing = await client.get("/replicas", {"Authorization": "Bearer hush"})
    assert [row["name"] for row in listing.json()["replicas"]] == ["u1", "u2"]


@pytest.mark.asyncio(loop_scope="session")
@pytest.mark.parametrize("stream", [False, True], ids=["unary", "stream"])
@pytest.mark.parametrize("path", GENERATING)
async def test_generation_routes_are_relayed_by_session(pair: Setup, path: str, stream: bool) -> None:
    """POST to either route reaches a replica, verbatim, and comes back with its session."""
    headers = await pair.pin(pair.u1)
    if stream:
        pair.u1.always(sse([word("a", "stop")]))
    body = {"model": "m", "stream": stream}
    response = await raw.post(pair.url, path, body, headers)
    assert (response.status, response.get("x-session-id")) == (200, headers["X-Session-Id"])
    assert [json.loads(call.body) for call in pair.u1.calls] == [body]
    assert pair.runs() == (1, 0)


@pytest.mark.asyncio(loop_scope="session")
@pytest.mark.parametrize(("method", "path", "status", "keys"), [
    ("GET", "/v1/models", 200, {"object", "data"}),
    ("GET", "/health", 200, {"status", "replicas_ready", "replicas_total", "sessions", "routed", "affinity_hits",
                             "rejected", "replicas"}),
    ("GET", "/replicas", 200, {"replicas", "capacity"}),
    ("POST", "/replicas", 409, {"object", "message"}),
    ("DELETE", "/replicas/u1", 409, {"object", "message"}),
    ("DELETE", "/replicas/nobody", 404, {"object", "message"}),
])  # fmt: skip
async def test_control_routes_answer_in_the_documented_shape(
    pair: Setup, method: str, path: str, status: int, keys: set[str]
) -> None:
    """Each endpoint of the document has its status and at least its documented members, without hosts to launch on."""
    async with await raw.Client.connect(pair.url) as client:
        await client.send(raw.request(method, path))
        response = await client.response(method=method)
    assert response.status == status
    assert keys <= response.json().keys()


@pytest.mark.asyncio(loop_scope="session")
async def test_health_is_503_when_nothing_is_routable(serve: Serve) -> None:
    """GET /health is the router's own view, 503 while no replica is routable."""
    setup = await serve(1, "--health-interval", "0.1")
    await setup.u1.die()
    await setup.ready(0)
    assert (await raw.get(setup.url, "/health")).status == 503
