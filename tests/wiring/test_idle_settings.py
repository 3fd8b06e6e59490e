"""Settings that would do nothing, or that only half are there, are told."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from infera_cli.config.launch import load_launch
from infera_cli.config.serve import load_serve
from infera_cli.errors import ConfigError
from tests.support.local import LocalServer
from tests.support.stub import StubWorker


@pytest.mark.parametrize(("policy", "count"), [("round-robin", 1), ("session", 1), ("kv-aware", 0)])
async def test_affinity_is_told_where_it_does_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, policy: str, count: int
) -> None:
    """`--session-affinity` is for one policy; with others it is one warning."""
    words = ("--router-policy", policy, "--session-affinity", "--router-tokenizer-path", "sim=sim")
    with caplog.at_level(logging.WARNING):
        async with StubWorker("u0") as worker, LocalServer([worker], tmp_path, *words):
            pass
    told = [line for line in caplog.messages if "--session-affinity does nothing with --router-policy" in line]
    assert len(told) == count


def test_an_etcd_user_without_a_password_is_refused() -> None:
    """By `serve` and `launch`, as a password without a user is."""
    flags: dict[str, Any] = {"etcd_endpoint": ["e"], "etcd_user": "u"}
    with pytest.raises(ConfigError, match="--etcd-user is given, but no password; see --etcd-password-file"):
        load_serve({**flags, "router_policy": "session"}, {})
    with pytest.raises(ConfigError, match="--etcd-user is given, but no password; see --etcd-password-file"):
        load_launch(flags, {}, ())
    assert load_launch(flags, {"INFERA_ETCD_PASSWORD": "x"}, ()).settings.etcd_user == "u"
