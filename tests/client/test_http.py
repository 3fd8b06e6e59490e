"""Calls to a running server, and every way in which they fail."""

from __future__ import annotations

import socket
import threading

import pytest

from infera_cli.client.http import Server
from infera_cli.errors import ConfigError, Conflict, InferaError, NotFound, ServerUnreachable, Unauthorized
from tests.client.stub import Stub


def test_a_call_carries_query_and_token(stub: Stub) -> None:
    """Members of the query that are None are left out; the admin token goes as a bearer."""
    stub.answers["GET /v1/admin/requests"] = (200, {"requests": []})
    server = Server(stub.url + "/", token="hush")
    assert server.get("/v1/admin/requests", slow=1.5, worker=None) == {"requests": []}
    [asked] = stub.asked
    assert asked.path == "/v1/admin/requests?slow=1.5"
    assert asked.headers["Authorization"] == "Bearer hush"


def test_without_a_token_nothing_is_sent_for_it(stub: Stub) -> None:
    """No empty Authorization header."""
    stub.answers["GET /x"] = (200, {})
    Server(stub.url).get("/x")
    assert "Authorization" not in stub.asked[0].headers


def test_a_path_in_front_of_the_server_is_kept(stub: Stub) -> None:
    """A server behind a prefix is reached under it."""
    stub.answers["POST /gpu/v1/x"] = (200, {"ok": True})
    assert Server(stub.url + "/gpu").post("/v1/x", {"a": 1}) == {"ok": True}
    assert stub.asked[0].body == {"a": 1}


@pytest.mark.parametrize(
    ("status", "document", "kind", "says"),
    [
        (401, {"error": {"message": "Bad token."}}, Unauthorized,
         "refused: Bad token; give the admin token with INFERA_ADMIN_TOKEN or --admin-token-file"),
        (403, {"object": "error", "message": "loopback only."}, Unauthorized, "refused: loopback only"),
        (404, {"error": {"message": "no such worker"}}, NotFound, "answered 404: no such worker"),
        (409, {"detail": "not ours"}, Conflict, "answered 409: not ours"),
        (503, {"error": {"message": "nobody"}}, InferaError, "answered 503: nobody"),
        (500, b"<html>", ServerUnreachable, "answered 500 and no more; is it an infera"),
        (200, b"<html>", ServerUnreachable, "answered 200 and no more; is it an infera"),
    ],
)
def test_refusals_become_one_sentence(
    stub: Stub, status: int, document: object, kind: type[InferaError], says: str
) -> None:
    """The server's own words, its address, and the next thing to try."""
    stub.answers["GET /x"] = (status, document)
    with pytest.raises(kind) as fault:
        Server(stub.url).get("/x")
    assert fault.value.message.startswith(f"{stub.url} {says}")
    assert fault.value.exit_code == 1


def test_nobody_there_says_what_to_try() -> None:
    """A refused connection names the address and the two ways to name another."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(ServerUnreachable) as fault:
            Server(url).get("/v1/workers")
    assert fault.value.message == (
        f"cannot reach {url} (connection refused); "
        "is `infera serve` running there? --server or INFERA_SERVER names another")


def test_a_server_that_never_answers_is_given_up() -> None:
    """The time limit of the call holds."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(ServerUnreachable, match="no answer in time"):
            Server(url, timeout=0.05).get("/v1/workers")


def test_a_server_that_speaks_another_protocol_is_named() -> None:
    """Bytes that are not HTTP are no crash."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        def speak() -> None:
            connection, _ = other.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(b"SSH-2.0-OpenSSH_9\r\n\r\n")

        speaker = threading.Thread(target=speak)
        speaker.start()
        with pytest.raises(ServerUnreachable, match=r"^cannot reach http://127\.0\.0\.1"):
            Server(f"http://127.0.0.1:{other.getsockname()[1]}").get("/x")
        speaker.join()


@pytest.mark.parametrize("url", ["localhost:8000", "ftp://a", "http://", "", "http://a:port"])
def test_addresses_that_are_none_are_refused(url: str) -> None:
    """The form of an address is named before anything is sent."""
    with pytest.raises(ConfigError, match="the server address"):
        Server(url)


def test_an_unknown_host_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that does not resolve is told apart from a closed port."""
    def lost(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", lost)
    with pytest.raises(ServerUnreachable, match="unknown host"):
        Server("http://no-such-host.invalid:1").get("/x")
