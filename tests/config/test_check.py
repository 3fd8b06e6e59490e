"""`infera config check` knows three kinds of file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from infera_cli.config.check import check_file
from infera_cli.errors import ConfigError

REPLICAS = {"replicas": [{"host": "127.0.0.1", "port": 8001}, {"host": "127.0.0.1", "port": 8002}]}


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def test_a_replica_file_is_counted(tmp_path: Path) -> None:
    """A good replica file is answered with what is in it."""
    assert check_file(write(tmp_path / "r.json", json.dumps(REPLICAS))) == "replica file, 2 replicas, 0 hosts"


def test_a_settings_file_is_counted(tmp_path: Path) -> None:
    """A good settings file is answered with how much it sets."""
    path = write(tmp_path / "infera.toml", '[serve]\nport = 1\n[client]\nserver = "http://a:1"\n')
    assert check_file(path) == "settings file, 2 settings"
    assert check_file(write(tmp_path / "one.toml", "[serve]\nport = 1\n")) == "settings file, 1 setting"


def test_the_content_decides_when_the_name_does_not(tmp_path: Path) -> None:
    """A file without a known ending is JSON when it begins like it, else TOML."""
    assert check_file(write(tmp_path / "replicas", json.dumps(REPLICAS))).startswith("replica file")
    assert check_file(write(tmp_path / "settings", "[serve]\n")).startswith("settings file")


def test_a_scheduler_file_is_recognised(tmp_path: Path) -> None:
    """YAML is checked as a scheduler file, by its name or by how it begins."""
    node = "{id: a, hardware: a6000, backend: vllm, endpoint: 'http://h:1', models: [m, n]}"
    for name in ("s.yaml", "s"):
        assert check_file(write(tmp_path / name, f"nodes:\n- {node}\n")) == "scheduler file, 1 node, 2 models, lru"
    with pytest.raises(ConfigError, match=r"s.yaml: nodes must be a list with at least one node"):
        check_file(write(tmp_path / "s.yaml", "nodes: []\n"))


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("a.json", '{"replicas": [{"host": "h", "prot": 1}]}', "prot"),
        ("a.json", "[", "a.json"),
        ("a.toml", "[serve]\nprot = 1\n", "did you mean 'port'?"),
        ("a.toml", "[serve]\nport = -1\n", "port must be between 0 and 65535, not -1"),
        ("a.toml", "[serve", "is not valid TOML"),
    ],
)
def test_r187_bad_files_are_refused(tmp_path: Path, name: str, text: str, says: str) -> None:
    """Exit status 1, the path and the key."""
    path = write(tmp_path / name, text)
    with pytest.raises(ConfigError) as fault:
        check_file(path)
    assert str(path) in fault.value.message
    assert says in fault.value.message


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    """Exit status 1 with the reason of the operating system."""
    with pytest.raises(ConfigError, match="No such file or directory"):
        check_file(tmp_path / "none.json")
