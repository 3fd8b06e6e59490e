"""Worker names for the shell: quick, silent, and never older than half a minute."""

from __future__ import annotations

import os
import time
from pathlib import Path

from infera_cli.client.names import FRESH, complete, remember
from tests.client.stub import WORKERS, Stub

NAMES = ["node0", "10.0.0.2:8001"]


def test_names_are_asked_for_once(stub: Stub, tmp_path: Path) -> None:
    """The first completion asks the server, the next ones read what it said."""
    stub.answers["GET /v1/workers"] = (200, {"workers": WORKERS})
    environ = {"XDG_CACHE_HOME": str(tmp_path)}
    now = time.time()
    assert [list(complete(stub.url, environ=environ, now=now)) for _ in range(3)] == [NAMES] * 3
    assert len(stub.asked) == 1


def test_old_names_are_asked_for_again(stub: Stub, tmp_path: Path) -> None:
    """After thirty seconds the cache does not count."""
    stub.answers["GET /v1/workers"] = (200, {"workers": WORKERS})
    environ = {"HOME": str(tmp_path)}
    remember(stub.url, ["old"], environ=environ)
    assert complete(stub.url, environ=environ, now=time.time()) == ["old"]
    assert complete(stub.url, environ=environ, now=time.time() + FRESH + 1) == NAMES


def test_each_server_has_names_of_its_own(stub: Stub, tmp_path: Path) -> None:
    """The cache of one address is not offered for another."""
    environ = {"XDG_CACHE_HOME": str(tmp_path)}
    remember("http://other:1", ["theirs"], environ=environ)
    stub.answers["GET /v1/workers"] = (200, {"workers": WORKERS})
    assert complete(stub.url, environ=environ, now=time.time()) == NAMES


def test_trouble_is_an_empty_list(stub: Stub, tmp_path: Path) -> None:
    """A server that refuses, a broken cache and a folder that cannot be written are no reason to speak."""
    environ = {"XDG_CACHE_HOME": str(tmp_path)}
    assert complete(stub.url, environ=environ, now=time.time()) == ()
    remember(stub.url, [], environ=environ)
    [cache] = (tmp_path / "infera").iterdir()
    cache.write_text("{", encoding="utf-8")
    assert complete(stub.url, environ=environ, now=time.time()) == ()
    remember(stub.url, ["x"], environ={"XDG_CACHE_HOME": os.devnull})
    assert complete(stub.url, environ={"XDG_CACHE_HOME": os.devnull}, now=time.time()) == ()
