"""`--replicas FILE`: reading, keys, reloading (replica-router §1.2; R151, R187)."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path
from typing import Any

import pytest

from infera_cli.errors import ConfigError
from infera_cli.events import Bus, Event, Reloaded
from infera_cli.fleet.registry import Registry
from infera_cli.fleet.sources.replicas import SOURCE, ReplicaSource
from infera_cli.routing.sessions import Pins


def write(folder: Path, *replicas: dict[str, Any], **more: Any) -> str:
    path = folder / "replicas.json"
    path.write_text(json.dumps({"replicas": list(replicas), **more}))
    return str(path)


def test_a_replica_becomes_a_worker(tmp_path: Path) -> None:
    """Name, address and the rest of an entry are the worker's; hosts are kept in the file alone."""
    path = write(
        tmp_path, {"host": "10.0.0.2", "port": 8001},
        {"name": "n1", "host": "gw", "port": 443, "scheme": "https", "models": ["q"], "address": "10.0.0.9",
         "path_prefix": "/e1"}, hosts=[{"devices": [0], "model": "/m"}])
    loaded = ReplicaSource(path).load()
    first, second = loaded.specs
    assert (first.id, first.url, first.source) == ("10.0.0.2:8001", "http://10.0.0.2:8001", SOURCE)
    assert (second.id, second.url, second.models) == ("n1", "https://gw:443/e1", ("q",))
    assert second.address == "10.0.0.9"
    assert [slot.name for slot in loaded.file.slots] == ["host0-d0"]


def test_row_1_a_missing_file_is_named_with_the_reason(tmp_path: Path) -> None:
    """A file that is not there stops the program."""
    with pytest.raises(ConfigError, match=r"none\.json: cannot be read: No such file"):
        ReplicaSource(str(tmp_path / "none.json")).load()


def test_r187_a_directory_as_path_is_refused(tmp_path: Path) -> None:
    """A folder is no file (row 1)."""
    with pytest.raises(ConfigError, match="Is a directory"):
        ReplicaSource(str(tmp_path)).load()


def test_r187_an_unreadable_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The operating system's reason is told (row 1)."""
    def refuse(_path: Path) -> bytes:
        raise PermissionError(13, os.strerror(13))

    monkeypatch.setattr(Path, "read_bytes", refuse)
    with pytest.raises(ConfigError, match="Permission denied"):
        ReplicaSource(write(tmp_path)).load()


def test_a_path_that_no_system_knows_is_refused() -> None:
    """A NUL in a path is told in one sentence too."""
    with pytest.raises(ConfigError, match="cannot be read"):
        ReplicaSource("a\0b").load()


def test_the_routers_port_is_held_against_local_slots(tmp_path: Path) -> None:
    """Row 29 knows the router's port."""
    path = write(tmp_path, hosts=[{"devices": [0], "model": "/m", "port_base": 8000}])
    with pytest.raises(ConfigError, match="own port 8000"):
        ReplicaSource(path, router_port=8000).load()


# ── keys and authorities ─────────────────────────────────────────────────────────────────────────────
def keyed(folder: Path, content: bytes, mode: int = 0o600) -> str:
    key = folder / "key"
    key.write_bytes(content)
    key.chmod(mode)
    return write(folder, {"host": "a", "port": 1, "api_key_file": "key"}, {"host": "b", "port": 1})


def test_a_key_is_read_from_beside_the_file(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A relative name starts at the replica file's folder; white space around the key is no part of it."""
    a, b = ReplicaSource(keyed(tmp_path, b"  s3cret\n"), api_key="common").load().specs
    assert (a.api_key, b.api_key) == ("s3cret", "common")
    assert "s3cret" not in repr(a)
    assert caplog.records == []


def test_a_key_file_that_others_can_read_is_warned_about(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The warning names the file and never the key."""
    with caplog.at_level(logging.WARNING):
        ReplicaSource(keyed(tmp_path, b"s3cret", 0o644)).load()
    assert "chmod 600" in caplog.text
    assert "s3cret" not in caplog.text


@pytest.mark.parametrize("content", [b"", b" \n", b"a\nb", b"a\r\nx: y", b"\xff\xfe", "ключ".encode()])
def test_a_key_file_without_one_plain_line_is_refused(tmp_path: Path, content: bytes) -> None:
    """A key that could not stand in a header is refused with entry and field."""
    with pytest.raises(ConfigError, match=r'replicas\[0\]: "api_key_file" .*/key does not hold'):
        ReplicaSource(keyed(tmp_path, content)).load()


def test_a_key_file_that_is_missing_is_refused(tmp_path: Path) -> None:
    """The entry, the field and the reason are named."""
    path = write(tmp_path, {"host": "a", "port": 1, "api_key_file": "/nowhere/key"})
    with pytest.raises(ConfigError, match=r'replicas\[0\]: "api_key_file" /nowhere/key cannot be read: No'):
        ReplicaSource(path).load()


@pytest.mark.parametrize(("content", "says"), [(None, "cannot be read"), (b"not a certificate", "no PEM")])
def test_a_ca_file_that_cannot_be_used_is_refused(tmp_path: Path, content: bytes | None, says: str) -> None:
    """A bad authority is told at the start, not at the first request."""
    if content is not None:
        (tmp_path / "ca.pem").write_bytes(content)
    path = write(tmp_path, {"host": "a", "port": 1, "scheme": "https", "ca_file": "ca.pem"})
    with pytest.raises(ConfigError, match=rf'replicas\[0\]: "ca_file" .*{says}'):
        ReplicaSource(path).load()


def test_a_common_ca_goes_to_https_entries(tmp_path: Path) -> None:
    """The authority for all workers is used where there is TLS."""
    path = write(tmp_path, {"host": "a", "port": 1}, {"host": "b", "port": 1, "scheme": "https"})
    assert [spec.ca_file for spec in ReplicaSource(path, ca_file="/ca").load().specs] == [None, "/ca"]


# ── reloading ────────────────────────────────────────────────────────────────────────────────────────
class Live:
    """A registry filled from a file, and what was told."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.told: list[Reloaded] = []
        self.bus = Bus()
        self.bus.subscribe(self._hear)
        self.registry = Registry(self.bus, pins=Pins(600))
        self.source = ReplicaSource(write(folder, {"host": "a", "port": 1}, {"host": "b", "port": 1}))
        self.registry.replace_source(SOURCE, self.source.load().specs)

    def _hear(self, event: Event) -> None:
        if isinstance(event, Reloaded):
            self.told.append(event)

    def reload(self) -> bool:
        return self.source.reload(self.registry, self.bus) is not None

    @property
    def ids(self) -> list[str]:
        return [member.id for member in self.registry.members()]


@pytest.mark.parametrize(("content", "says"), [
    ('{"replicas": [{"host": "a", "port": 1},]}', "line 1"), ("", "not valid JSON"),
    ('{"replicas": []}', "names no engine"),
    ('{"replicas": [{"host": "a", "port": "1"}]}', 'replicas[0]: "port"'), (None, "No such file"),
    ('{"replicas": [{"host": "a", "port": 1, "api_key_file": "/nowhere"}]}', "api_key_file"),
])
def test_r151_a_bad_or_empty_file_is_refused_and_the_old_set_stays(
    tmp_path: Path, content: str | None, says: str
) -> None:
    """A reload that cannot be used changes nothing and is told once, with line or key."""
    live = Live(tmp_path)
    members = list(live.registry.members())
    if content is None:
        Path(live.source.path).unlink()
    else:
        Path(live.source.path).write_text(content)
    assert not live.reload()
    assert list(live.registry.members()) == members
    (told,) = live.told
    assert told.source == live.source.path
    assert told.error is not None
    assert says in told.error


def test_r151_a_good_file_changes_what_changed_and_nothing_else(tmp_path: Path) -> None:
    """Added and removed replicas change, the others stay the very same members."""
    live = Live(tmp_path)
    kept = live.registry.member("b:1")
    write(tmp_path, {"host": "b", "port": 1}, {"host": "c", "port": 1})
    assert live.reload()
    assert live.ids == ["b:1", "c:1"]
    assert live.registry.member("b:1") is kept
    assert live.told == [Reloaded(live.source.path)]
