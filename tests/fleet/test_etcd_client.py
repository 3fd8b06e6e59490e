"""The JSON gateway's manners, against a real etcd: credentials, certificates, endpoints, errors (C4, S104)."""

from __future__ import annotations

import asyncio
import json
from base64 import b64encode
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from infera_cli.errors import ConfigError, DiscoveryError, DiscoveryRefused
from infera_cli.fleet.etcd_access import EtcdAccess, endpoint_urls
from infera_cli.fleet.etcd_client import EtcdClient, Held
from tests.fleet.etcd_worlds import PREFIX, following
from tests.support.certificates import Certificates
from tests.support.etcd import Etcd, free_port


@asynccontextmanager
async def client(*endpoints: str, **access: object) -> AsyncIterator[EtcdClient]:
    made = EtcdClient(EtcdAccess(endpoints=endpoints, timeout=2.0, **access))  # type: ignore[arg-type]
    try:
        yield made
    finally:
        await made.aclose()


# ── addresses ────────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    ("texts", "tls", "urls"),
    [
        (["e"], False, ("http://e:2379",)),
        (["e:1", "f"], False, ("http://e:1", "http://f:2379")),
        (["e:1,f:2, e:1"], False, ("http://e:1", "http://f:2")),
        (["e"], True, ("https://e:2379",)),
        (["http://e/"], True, ("http://e:2379",)),
        (["https://[::1]:9"], False, ("https://[::1]:9",)),
        (["[::1]"], False, ("http://[::1]:2379",)),
    ],
)
def test_endpoints_are_brought_to_one_form(texts: list[str], tls: bool, urls: tuple[str, ...]) -> None:
    """A scheme is kept, a missing one follows the certificates, a missing port is 2379, commas separate."""
    assert endpoint_urls(texts, tls=tls) == urls


@pytest.mark.parametrize("text", ["e:x", "ftp://e", "e f", "http://", "e:99999", "e\n"])
def test_an_endpoint_that_is_none_is_refused(text: str) -> None:
    """One sentence with what was given and how to write it."""
    with pytest.raises(ConfigError, match="is no address; write host:port"):
        endpoint_urls([text.replace("\n", "\x01")], tls=False)


def test_credentials_in_an_endpoint_are_refused_and_not_repeated() -> None:
    """They would end in logs."""
    with pytest.raises(ConfigError) as fault:
        endpoint_urls(["http://u:hush@e"], tls=False)
    assert "hush" not in fault.value.message


# ── calls ────────────────────────────────────────────────────────────────────────────────────────────
async def test_a_lease_carries_its_key(etcd: Etcd) -> None:
    """Granted, put, renewed, revoked: the key is there as long as the lease."""
    async with client(etcd.url) as made:
        lease = await made.grant(30)
        assert await made.hold(PREFIX + "a", b"\x00\xff", lease) == Held(written=True)
        assert [pair[:2] for pair in (await made.range(PREFIX)).pairs] == [((PREFIX + "a").encode(), b"\x00\xff")]
        assert await made.keep_alive(lease) == 30
        assert await made.revoke(lease)
        assert (await made.range(PREFIX)).pairs == []
        assert await made.keep_alive(lease) == 0
        assert not await made.revoke(lease)
        with pytest.raises(DiscoveryRefused, match="lease not found"):
            await made.hold(PREFIX + "a", b"", lease)


async def test_the_next_endpoint_is_asked_when_one_is_gone(etcd: Etcd) -> None:
    """And stays the one that is asked first."""
    gone = f"http://127.0.0.1:{free_port()}"
    async with client(gone, etcd.url) as made:
        assert (await made.range(PREFIX)).total == 0
        assert made.endpoint == etcd.url
    async with client(gone) as made:
        with pytest.raises(DiscoveryError, match=f"etcd at {gone} cannot be reached"):
            await made.range(PREFIX)


@pytest.mark.parametrize("answer", [b"", b"<html>", b"[]", b'{"header":{}}', b'{"header":{"cluster_id":"x"}}',
                                    b'{"header":{"cluster_id":"1","revision":"1"},"kvs":[{"key":"*"}]}'])  # fmt: skip
async def test_whatever_is_not_etcd_is_one_kind_of_error(answer: bytes) -> None:
    """A proxy's page, a wrong port, half an answer."""

    async def reply(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\nconnection: close\r\n\r\n%b" % (len(answer), answer))
        writer.close()

    async with await asyncio.start_server(reply, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        async with client(f"http://127.0.0.1:{port}") as made:
            with pytest.raises(DiscoveryError):
                await made.range(PREFIX)
            with pytest.raises(DiscoveryError):
                await anext(made.watch(PREFIX, 1))


# ── credentials ──────────────────────────────────────────────────────────────────────────────────────
@pytest.fixture
def guarded(etcd: Etcd) -> Etcd:
    """Wants a user: root, who may do all, or bob, who may do nothing."""
    for name in ("root", "bob"):
        etcd.call("auth/user/add", {"name": name, "password": "hush"})
    etcd.call("auth/user/grant", {"user": "root", "role": "root"})
    etcd.call("auth/enable", {})
    return etcd


async def test_a_user_with_a_password_is_let_in(guarded: Etcd) -> None:
    """Reading, watching and writing carry the token."""
    async with following(guarded.url, user="root", password="hush") as router:
        await router.sees()
        async with client(guarded.url, user="root", password="hush") as made:
            value = json.dumps({"worker_id": "a", "url": "http://a:1", "model_name": "m"}).encode()
            await made.hold(PREFIX + "a", value, await made.grant(30))
        await router.sees("a")


async def test_a_token_that_ran_out_is_fetched_anew(guarded: Etcd) -> None:
    """etcd forgets tokens, at its own restart at the latest."""
    async with client(guarded.url, user="root", password="hush") as made:
        await made.range(PREFIX)
        guarded.stop()
        guarded.start()
        assert (await made.range(PREFIX)).total == 0


async def test_credentials_for_an_etcd_that_asks_for_none_do_no_harm(etcd: Etcd) -> None:
    """They are simply not needed."""
    async with client(etcd.url, user="root", password="hush") as made:
        assert (await made.range(PREFIX)).total == 0


@pytest.mark.parametrize(
    ("user", "password", "words"),
    [
        ("root", "wrong", "authentication failed"),
        ("bob", "hush", "permission denied"),
        (None, None, "user name is empty"),
    ],
)
async def test_s104_a_refusal_is_told_apart_from_an_outage(
    guarded: Etcd, user: str | None, password: str | None, words: str
) -> None:
    """Waiting would not help, so it is an error of its own; the password is not in it."""
    async with client(guarded.url, user=user, password=password) as made:
        with pytest.raises(DiscoveryRefused, match=words) as fault:
            await made.range(PREFIX)
        assert "hush" not in fault.value.message


# ── certificates ─────────────────────────────────────────────────────────────────────────────────────
@pytest.fixture
def tls_etcd(tmp_path: Path) -> Iterator[tuple[Etcd, Certificates]]:
    """Shows a certificate, and wants one."""
    made = Certificates(tmp_path)
    flags = ["--cert-file", made.cert, "--key-file", made.key, "--trusted-ca-file", made.ca, "--client-cert-auth"]
    server = Etcd(tmp_path, scheme="https", more=flags)
    server.start()
    yield server, made
    server.stop()


async def test_certificates_are_shown_and_checked(tls_etcd: tuple[Etcd, Certificates]) -> None:
    """Both ways; without ours, or without trust in theirs, there is no connection."""
    server, made = tls_etcd
    async with client(server.url, ca_file=made.ca, cert_file=made.cert, key_file=made.key) as ours:
        assert (await ours.range(PREFIX)).total == 0
    for access in ({"ca_file": made.ca}, {"cert_file": made.cert, "key_file": made.key}):
        async with client(server.url, **access) as ours:
            with pytest.raises(DiscoveryError, match="cannot be reached"):
                await ours.range(PREFIX)


@pytest.mark.parametrize("write", [lambda path: None, lambda path: path.write_text("nothing")])
def test_s109_a_certificate_file_without_certificates_is_refused(
    tmp_path: Path, write: Callable[[Path], object]
) -> None:
    """Before anything is started."""
    write(tmp_path / "ca.pem")
    with pytest.raises(ConfigError, match=r"--etcd-ca-file .* holds no certificates"):
        EtcdAccess(endpoints=(), ca_file=str(tmp_path / "ca.pem")).tls()


def test_the_password_is_not_shown() -> None:
    """Not even to a debugger."""
    assert "hush" not in repr(EtcdAccess(endpoints=(), user="u", password="hush"))
    assert b64encode(b"hush").decode() not in repr(EtcdAccess(endpoints=(), password="hush"))
