"""`--worker URL` (design.md §1)."""

from __future__ import annotations

import logging

import pytest

from infera_cli.errors import ConfigError
from infera_cli.fleet.sources.static import parse_worker, workers


@pytest.mark.parametrize(("url", "worker_id", "base"), [
    ("http://10.0.0.2:8001", "10.0.0.2:8001", "http://10.0.0.2:8001"),
    ("http://node0:8001/", "node0:8001", "http://node0:8001"),
    ("HTTP://Node0:8001", "node0:8001", "http://node0:8001"),
    ("http://node0", "node0:80", "http://node0:80"),
    ("https://node0", "node0:443", "https://node0:443"),
    ("https://node0/engines/a/", "node0:443", "https://node0:443/engines/a"),
])
def test_a_worker_url_is_read(url: str, worker_id: str, base: str) -> None:
    """Scheme, host, port and prefix are taken from the URL; the id is host:port."""
    spec = parse_worker(url)
    assert (spec.id, spec.url, spec.source) == (worker_id, base, "worker")


def test_b19_an_ipv6_worker_is_read() -> None:
    """Brackets are the URL's, not the host's."""
    spec = parse_worker("http://[::1]:8001")
    assert (spec.host, spec.id, spec.url) == ("::1", "[::1]:8001", "http://[::1]:8001")


@pytest.mark.parametrize(("url", "says"), [
    ("", "http://"), ("node0:8001", "look like http://HOST"), ("10.0.0.2:8001", "look like http://HOST"),
    ("ftp://node0", "look like http://HOST"), ("http:node0", "look like http://HOST"),
    ("http://", "look like http://HOST"),
    ("http://:8001", "host is empty"), ("http://node0:99999", "out of range"), ("http://node0:0", "port 0"),
    ("http://node0:eight", "eight"), ("http://node0:", "port is missing"), ("http://[::1", "IPv6"),
    ("http://no de:80", "white space"), ("http://node0/a|b", "path"), ("http://a_|:1", "host"),
    ("http://node0:80?x=1", "no query"),
    ("http://node0:80/#x", "no fragment"), ("http://node0:80/?", "no query"),
    ("http://node0:80/v1", "leave it out"), ("http://node0\n:80", "control"), ("http://::1:80", "--worker"),
])
def test_a_bad_worker_url_is_refused_with_one_sentence(url: str, says: str) -> None:
    """The refusal names the flag, the reason, and what a good URL looks like."""
    with pytest.raises(ConfigError) as caught:
        parse_worker(url)
    assert caught.value.message.startswith("--worker ")
    assert says in caught.value.message
    assert "\n" not in caught.value.message


def test_credentials_in_a_worker_url_are_refused_and_not_repeated() -> None:
    """A key in a URL is not accepted and does not reach the terminal or a log."""
    with pytest.raises(ConfigError) as caught:
        parse_worker("http://user:s3cret@node0:80")
    assert "s3cret" not in caught.value.message
    assert "--worker-api-key-file" in caught.value.message


def test_the_same_url_twice_is_one_worker(caplog: pytest.LogCaptureFixture) -> None:
    """A repeated URL counts once, with a warning."""
    with caplog.at_level(logging.WARNING):
        specs = workers(["http://a:80", "http://b:80", "http://A/"])
    assert [spec.id for spec in specs] == ["a:80", "b:80"]
    told = [record.getMessage() for record in caplog.records]
    assert told == ["--worker http://a:80 is given twice; it counts once"]


def test_two_prefixes_of_one_port_are_two_workers() -> None:
    """Engines behind one gateway have ids of their own."""
    specs = workers(["http://a:80/x", "http://a:80/y"])
    assert [spec.id for spec in specs] == ["a:80", "http:a:80/y"]


def test_the_key_and_the_ca_go_to_every_worker() -> None:
    """The worker key is kept for all, the CA file for those behind TLS, and the key is never shown."""
    plain, tls = workers(["http://a", "https://b"], api_key="s3cret", ca_file="/ca")
    assert (plain.api_key, tls.api_key, plain.ca_file, tls.ca_file) == ("s3cret", "s3cret", None, "/ca")
    assert "s3cret" not in repr(plain)
