"""The settings about discovery, together (infera-wire §10; rulings 4, 7, 21, 22)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from infera_cli.config.discovery import backend_of, etcd_secret
from infera_cli.config.layers import Loaded
from infera_cli.config.serve import load_serve
from infera_cli.config.settings import ServeSettings
from infera_cli.errors import ConfigError, UsageError


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def loaded(**flags: Any) -> Loaded[ServeSettings]:
    return load_serve({"etcd_endpoint": ["e:2379"], "router_policy": "session", **flags}, {})


def test_an_endpoint_alone_means_etcd() -> None:
    """The backend need not be named; its endpoint is a source like any other."""
    settings = loaded().settings
    assert backend_of(settings) == "etcd"
    assert settings.etcd_prefix == "/infera/workers/"


def test_the_documented_command_line_is_taken() -> None:
    """The flags of the server's own page for the way without a broker."""
    settings = loaded(discovery_backend="etcd", request_transport="http", kv_event_transport="zmq").settings
    assert (settings.request_transport, settings.kv_event_transport) == ("http", "zmq")


def test_the_backend_alone_asks_for_its_endpoint() -> None:
    """Exit status 2, with the flag that is missing."""
    with pytest.raises(UsageError, match="needs --etcd-endpoint HOST:PORT"):
        load_serve({"discovery_backend": "etcd"}, {})


@pytest.mark.parametrize(
    "flag", [{"discovery_backend": "kubernetes"}, {"request_transport": "nats"}, {"kv_event_transport": "nats"}]
)
def test_values_of_later_versions_are_refused_in_words(flag: dict[str, str]) -> None:
    """Known, and not in this version."""
    with pytest.raises(UsageError, match="is not in this version; choose one of"):
        loaded(**flag)


def test_time_limits_follow_the_source() -> None:
    """With discovery: no limit in all, 900 s of silence; what somebody set stays."""
    settings = loaded().settings
    assert (settings.request_timeout, settings.idle_timeout, settings.first_byte_timeout) == (0.0, 900.0, 0.0)
    assert str(loaded().origins["idle_timeout"]) == "default because of discovery"
    assert loaded(request_timeout="60", idle_timeout="5").settings.request_timeout == 60.0
    assert load_serve({"worker": ["http://a:1"]}, {}).settings.request_timeout == 3600.0


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ({"etcd_prefix": "/"}, "--etcd-prefix must name a place of its own"),
        ({"etcd_cert_file": "c"}, "--etcd-cert-file and --etcd-key-file go together"),
        ({"etcd_password": "x"}, "an etcd password is given, but no --etcd-user"),
    ],
)
def test_settings_that_cannot_be_used_together_are_refused(flags: dict[str, str], words: str) -> None:
    """One sentence each."""
    with pytest.raises(ConfigError, match=words):
        loaded(**flags)


def test_the_password_comes_from_a_file_or_the_environment(tmp_path: Path) -> None:
    """And is never shown."""
    (tmp_path / "secret").write_text("hush\n")
    assert etcd_secret(loaded(etcd_user="u", etcd_password_file=str(tmp_path / "secret")).settings) == "hush"
    flags = {"etcd_endpoint": ["e"], "router_policy": "session", "etcd_user": "u"}
    settings = load_serve(flags, {"INFERA_ETCD_PASSWORD": "quiet"}).settings
    assert etcd_secret(settings) == "quiet"
    assert "quiet" not in repr(settings)
