"""Who may: keys, the admin token, and peers of this machine."""

from __future__ import annotations

import pytest

from infera_cli.errors import ConfigError, Forbidden, Unauthorized
from infera_cli.gateway.access import Access, RawHeaders

LOCAL = "127.0.0.1"
AWAY = "10.1.2.3"


def bearer(token: str, scheme: str = "Bearer") -> RawHeaders:
    return [(b"host", b"x"), (b"authorization", f"{scheme} {token}".encode())]


def test_without_keys_clients_are_let_in_and_nothing_is_stripped() -> None:
    """A server without keys passes every credential on to the worker."""
    access = Access()
    assert access.is_blind
    assert access.client(bearer("sk-theirs")) == (True, frozenset())


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER", "Bearer  "])
def test_client_key_is_accepted_as_bearer_token_and_consumed(scheme: str) -> None:
    """The scheme word is case-insensitive, and the header that carried our key goes no further."""
    assert Access(api_keys=["k1", "k2"]).client(bearer("k2", scheme)) == (True, frozenset({b"authorization"}))


def test_client_key_is_accepted_as_x_api_key_and_other_credentials_pass() -> None:
    """Only the header that carried our key is consumed (rulings 8)."""
    headers = [*bearer("sk-of-the-worker"), (b"x-api-key", b"k1")]
    assert Access(api_keys=["k1"]).client(headers) == (True, frozenset({b"x-api-key"}))


@pytest.mark.parametrize(
    "headers",
    [
        [],
        bearer("K1"),
        bearer("k1", "Basic"),
        [(b"authorization", b"k1")],
        [(b"authorization", b"Bearer ")],
        [(b"authorization", b"Bearer \xff\xfe\x00")],
        [(b"x-api-key", b"k\xc3\xa9")],
        [(b"x-inferact-admin-key", b"k1")],
    ],
)
def test_wrong_strange_or_absent_client_key_is_refused(headers: RawHeaders) -> None:
    """Anything but a key of ours is refused, and bytes outside ASCII never crash the comparison."""
    access = Access(api_keys=["k1"])
    assert access.client(headers) == (False, frozenset())
    with pytest.raises(Unauthorized):
        access.require_client(headers)


def test_r181_admin_token_never_passes_to_a_worker() -> None:
    """Whatever header carries the admin token on a relayed route is stripped."""
    access = Access(admin_token="T")
    for name, value in [
        (b"authorization", b"Bearer T"), (b"authorization", b"T"), (b"x-api-key", b"T"),
        (b"x-inferact-admin-key", b"T"),
    ]:  # fmt: skip
        assert access.client([(b"host", b"x"), (name, value)]) == (True, frozenset({name}))


def test_admin_token_is_no_client_key() -> None:
    """The admin token opens no relayed route that needs a client key."""
    verdict = Access(api_keys=["k"], admin_token="T").client(bearer("T"))
    assert verdict == (False, frozenset({b"authorization"}))


@pytest.mark.parametrize("peer", [LOCAL, AWAY, None])
def test_admin_token_opens_admin_routes_from_anywhere(peer: str | None) -> None:
    """With a token configured the place of the caller does not matter."""
    Access(admin_token="T").require_admin(bearer("T", "bEaReR"), peer)


@pytest.mark.parametrize(
    "headers",
    [
        [], bearer("t"), [(b"authorization", b"T")], [(b"authorization", b"Bearer")], [(b"x-api-key", b"T")],
        [(b"authorization", b"Bearer \xe9")], [*bearer("T"), *bearer("T")],
    ],
)  # fmt: skip
def test_a28_admin_token_without_scheme_word_or_wrong_is_401(headers: RawHeaders) -> None:
    """The token alone, another token, or two of them are refused, also from this machine."""
    with pytest.raises(Unauthorized):
        Access(admin_token="T").require_admin(headers, LOCAL)


@pytest.mark.parametrize(
    "kwargs", [{"admin_token": ""}, {"api_keys": [""]}, {"api_keys": ["a b"]}, {"admin_token": "é"}]
)
def test_b29_empty_or_unsendable_secret_is_refused_at_start(kwargs: dict[str, object]) -> None:
    """An empty secret would accept a bare `Bearer`; the sentence does not repeat the secret."""
    with pytest.raises(ConfigError) as caught:
        Access(**kwargs)  # type: ignore[arg-type]
    assert "a b" not in caught.value.message
    assert "é" not in caught.value.message


@pytest.mark.parametrize("peer", [LOCAL, "::1", "127.9.9.9", "::ffff:127.0.0.1"])
def test_without_admin_token_this_machine_may(peer: str) -> None:
    """Loopback peers of both families may use admin routes when no token is configured (rulings 6)."""
    assert Access().admin_allowed([(b"host", b"localhost")], peer)


@pytest.mark.parametrize("peer", [AWAY, "::2", None, "", "testclient", "fe80::1%eth0"])
def test_without_admin_token_others_get_403_naming_the_flag(peer: str | None) -> None:
    """Everyone else is told which flag to set."""
    with pytest.raises(Forbidden, match=r"--admin-token-file.*--admin-open"):
        Access().require_admin([], peer)


def test_caller_behind_a_local_proxy_is_not_local() -> None:
    """A forwarded request is not taken for one of this machine."""
    assert not Access().admin_allowed([(b"x-forwarded-for", b"8.8.8.8")], LOCAL)


def test_admin_open_lets_everybody_in_but_foreign_web_pages() -> None:
    """`--admin-open` restores open routes; a page of another origin still may not call them."""
    access = Access(admin_open=True)
    assert access.admin_allowed([], AWAY)
    assert access.admin_allowed([(b"host", b"h:1"), (b"origin", b"http://h:1")], AWAY)
    assert not access.admin_allowed([(b"host", b"h:1"), (b"origin", b"https://evil.example")], AWAY)


def browser(host: str, **more: str) -> RawHeaders:
    """The head of a page's call to its own address; over plain HTTP a browser's reading call says nothing else."""
    said = {name.replace("_", "-"): value for name, value in more.items()}
    return [(b"host", host.encode()), *((name.encode(), value.encode()) for name, value in said.items())]


OURS = ["localhost:8000", "LOCALHOST", "127.0.0.1:8000", "127.9.9.9", "[::1]:8000", "gpu1:8000"]
THEIRS = ["evil.example:8000", "localhost.evil.example", "127.0.0.1.evil.example", "", "[::2]:1", "10.1.2.3"]


@pytest.mark.parametrize("host", OURS)
def test_without_admin_token_callers_of_this_machine_may_under_its_names(host: str) -> None:
    """Loopback names and addresses, and the name that the server is bound to, with and without Origin."""
    access = Access(names=["GPU1"])
    assert access.admin_allowed(browser(host), LOCAL)
    assert access.admin_allowed(browser(host, origin=f"http://{host}"), LOCAL)


@pytest.mark.parametrize("host", THEIRS)
def test_without_admin_token_a_web_site_cannot_pass_for_this_machine(host: str) -> None:
    """A site whose name resolves to loopback (DNS rebinding) is of the same origin as itself, and still is refused."""
    with pytest.raises(Forbidden, match="localhost"):
        Access().require_admin([(b"host", host.encode()), (b"origin", b"http://" + host.encode())], LOCAL)
    assert not Access(names=["GPU1"]).admin_allowed(browser(host), LOCAL)
    assert Access(admin_open=True).admin_allowed(browser(host), LOCAL)


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_a_call_that_a_browser_says_comes_from_elsewhere_is_refused(site: str) -> None:
    """Without an Origin, too: some calls carry none."""
    for access in (Access(), Access(admin_open=True)):
        assert not access.admin_allowed(browser("localhost", sec_fetch_site=site), LOCAL)
    assert Access().admin_allowed(browser("localhost", sec_fetch_site="none"), LOCAL)


def test_repr_shows_no_secret() -> None:
    """A logged Access tells how many keys there are, not which."""
    access = Access(api_keys=["secret-1"], admin_token="secret-2")
    assert repr(access) == "Access(api_keys=1, admin_token=set)"
