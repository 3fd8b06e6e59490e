"""Unknown paths, wrong methods and bugs: each path answers in its own dialect."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from infera_cli.gateway.relayed import RELAYED, is_relayed
from tests.gateway.endpoints.world import FakeFleet, FakeMember, client, member, parts


@pytest.mark.parametrize("path", [*RELAYED, "/v1/audio/else"])
async def test_r034_wrong_method_on_a_relayed_route_is_405_with_allow(path: str) -> None:
    """GET on a relayed route is 405 with `Allow: POST`, in the dialect of the path."""
    async with client(parts(FakeFleet())) as http:
        answer = await http.get(path)
    assert (answer.status_code, answer.headers["allow"]) == (405, "POST")
    assert answer.headers["content-type"] == "application/json"
    if path.startswith("/v1/messages"):
        assert (answer.json()["type"], answer.json()["error"]["type"]) == ("error", "invalid_request_error")
    else:
        assert answer.json()["error"]["type"] == "invalid_request_error"


async def test_r034_unknown_path_is_404_and_echoed_to_200_characters() -> None:
    """An unknown path is 404 with an error object; a long or strange one is not repeated at length."""
    async with client(parts(FakeFleet())) as http:
        short, long = await http.post("/v1/nope"), await http.post("/v1/" + "a" * 4000 + "%0a%1b")
        messages = await http.post("/v1/messages/nope")
    assert short.status_code == long.status_code == messages.status_code == 404
    assert short.json()["error"]["type"] == "not_found_error"
    assert "/v1/nope" in short.json()["error"]["message"]
    assert "a" * 201 not in long.text
    assert messages.json()["type"] == "error"


@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [("POST", "/health", "GET"), ("DELETE", "/replicas", "GET"), ("PUT", "/v1/workers", "GET"),
     ("GET", "/v1/admin/explain", "POST")],
)  # fmt: skip
async def test_wrong_method_on_a_control_route_is_405(method: str, path: str, allow: str) -> None:
    """Control routes name the method they answer to."""
    async with client(parts(FakeFleet())) as http:
        answer = await http.request(method, path)
    assert answer.status_code == 405
    assert allow in answer.headers["allow"]
    assert ("object" if path in {"/health", "/replicas"} else "error") in answer.json()


async def test_s47_a_bug_of_ours_is_500_without_its_text(caplog: pytest.LogCaptureFixture) -> None:
    """The client gets generic text; the detail is in the log."""

    class Broken(FakeFleet):
        def members(self) -> Sequence[FakeMember]:
            raise ValueError("secret detail")

    async with client(parts(Broken([member("a")]))) as http:
        answer = await http.get("/v1/workers")
    assert (answer.status_code, answer.json()["error"]["type"]) == (500, "server_error")
    assert "secret detail" not in answer.text
    assert "secret detail" in caplog.text


def test_relayed_routes_are_those_of_the_table_and_everything_below_audio() -> None:
    """`/v1/audio/*` is relayed whole, the bare prefix is not."""
    assert all(map(is_relayed, [*RELAYED, "/v1/audio/anything"]))
    assert not any(map(is_relayed, ["/v1/audio/", "/v1/audio", "/v1/models", "/V1/score", "/tokenize/"]))


@pytest.mark.parametrize("path", ["/v1/audio/../../sleep", "/v1/audio/%2e%2e/x", "/v1/audio/a/..", "/v1/audio/a//b",
                                  "/v1/audio/" + "x" * 65, "/v1/audio/a\\b"])
def test_no_path_below_audio_leads_out_of_it(path: str) -> None:
    """Dots, escapes and empty steps could reach a worker's own admin routes, so such paths are not relayed."""
    assert not is_relayed(path)
