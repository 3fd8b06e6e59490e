"""Settings of `infera launch`, together (infera-wire §10.2; S23, S103; rulings 22)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from infera_cli.config.launch import LATER, load_launch
from infera_cli.config.launch_settings import LaunchSettings
from infera_cli.errors import ConfigError, InferaError, UsageError


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def load(*args: str, environ: dict[str, str] | None = None, **flags: Any) -> LaunchSettings:
    return load_launch({"etcd_endpoint": ["e:2379"], **flags}, environ or {}, args).settings


def test_the_defaults_are_those_of_the_documents() -> None:
    """30 s of lease and of drain, half an hour to become ready, KV events on."""
    settings = load()
    assert (settings.lease_time, settings.drain_timeout, settings.engine_ready_timeout) == (30, 30.0, 1800.0)
    assert settings.enable_kv_events
    assert settings.etcd_prefix == "/infera/workers/"


def test_s23_the_limit_for_becoming_ready_can_be_set() -> None:
    """By its flag, or by the variable that launchers have always read."""
    assert load(engine_ready_timeout="2h").engine_ready_timeout == 7200.0
    assert load(environ={"INFERA_ENGINE_READY_TIMEOUT": "60"}).engine_ready_timeout == 60.0
    assert load(environ={"INFERA_DRAIN_TIMEOUT": "5"}).drain_timeout == 5.0


@pytest.mark.parametrize("text", ["nan", "inf", "-1", "3601", "1e300"])
def test_s103_absurd_drain_limits_are_refused(text: str) -> None:
    """Not a number, without end, below zero, over an hour."""
    with pytest.raises(ConfigError, match="--drain-timeout"):
        load(drain_timeout=text)


def test_s26_an_empty_range_variable_is_no_error() -> None:
    """It keeps the default when it is used."""
    assert load(environ={"INFERA_NODEPORT_RANGE": ""}).nodeport_range == ""


@pytest.mark.parametrize("flag", LATER)
def test_flags_of_later_versions_do_not_reach_the_engine(flag: str) -> None:
    """They are a launcher's, so the engine would not know them: exit status 2."""
    for words in ([f"--{flag}", "x"], [f"--{flag}=x"]):
        with pytest.raises(UsageError, match=f"^--{flag} is not in this version$"):
            load(*words)


@pytest.mark.parametrize(
    ("args", "flags", "words"),
    [
        ((), {"etcd_endpoint": []}, "nowhere to register"),
        ((), {"discovery_backend": "kubernetes"}, "not in this version"),
        ((), {"kv_event_transport": "nats"}, "not in this version"),
        ((), {"kv_events": "on"}, "not in this version"),
        ((), {"no_engine": True}, "--no-engine needs --url"),
        ((), {"url": "http://e:1"}, "it needs --no-engine"),
        (("--tp", "2"), {"no_engine": True, "url": "http://e:1"}, "--tp has nobody to go to"),
    ],
)
def test_what_cannot_be_meant_is_refused(args: tuple[str, ...], flags: dict[str, Any], words: str) -> None:
    """One sentence each."""
    with pytest.raises(InferaError, match=words):
        load(*args, **flags)
