"""`infera config check` knows three kinds of file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from infera_cli.errors import ConfigError
from infera_cli.wiring.check import check_file

REPLICAS = {"replicas": [{"host": "127.0.0.1", "port": 8001}, {"host": "127.0.0.1", "port": 8002}]}

NODE = "{id: a, hardware: a6000, backend: vllm, endpoint: 'http://h:1', models: [m, n]}"


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
    for name in ("s.yaml", "s"):
        assert check_file(write(tmp_path / name, f"nodes:\n- {NODE}\n")) == "scheduler file, 1 node, 2 models, lru"
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


NAMED = [
    ("a.json", '{"replicas": [{"host": "h", "port": 1, "api_key_file": "/nope"}]}', '"api_key_file" /nope cannot be'),
    ("a.json", '{"replicas": [{"host": "h", "port": 1, "scheme": "https", "ca_file": "empty"}]}', "no PEM certificate"),
    ("a.yaml", f"scheduler: {{admin_key_file: /nope}}\nnodes:\n- {NODE}\n", "admin token in /nope"),
    ("a.toml", '[serve]\napi_key_file = "/nope"\n', "client keys in /nope"),
    ("a.toml", '[serve]\nadmin_token_file = "/nope"\n', "admin token in /nope"),
    ("a.toml", '[serve]\nworker_api_key_file = "/nope"\n', "worker key in /nope"),
    ("a.toml", '[serve]\nreplicas = "/nope"\n', "/nope: cannot be read"),
    ("a.toml", '[serve]\nconfig = "/nope"\n', "/nope: cannot be read"),
    ("a.toml", '[serve]\nworker = ["10.0.0.1:8000"]\n', "it has to look like http://HOST:PORT"),
    ("a.toml", '[serve]\nport = 7\nworker = ["http://127.0.0.1:7"]\n', "is this router itself"),
    ("a.toml", '[serve]\nssl_certfile = "/nope"\nssl_keyfile = "/nope"\n', "/nope"),
    ("a.toml", '[serve]\netcd_ca_file = "/nope"\n', "--etcd-ca-file /nope"),
    ("a.toml", '[launch]\netcd_password_file = "/nope"\n', "etcd password in /nope"),
    ("a.toml", '[client]\nadmin_token_file = "/nope"\n', "admin token in /nope"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "text", "says"), NAMED)
def test_files_that_a_file_names_are_read_as_the_program_reads_them(
    tmp_path: Path, name: str, text: str, says: str
) -> None:
    """What `infera serve` would refuse at its start is refused here: a key or certificate that is not one."""
    write(tmp_path / "empty", "")
    with pytest.raises(ConfigError) as fault:
        check_file(write(tmp_path / name, text))
    assert says in fault.value.message


def test_half_of_a_pair_may_come_from_elsewhere(tmp_path: Path) -> None:
    """A certificate whose key, or a router whose port is left to a flag or a variable is no fault of the file."""
    text = '[serve]\nssl_certfile = "c.pem"\netcd_user = "u"\nworker = ["http://localhost:8000"]\n'
    text += '[launch]\netcd_cert_file = "c.pem"\n'
    assert check_file(write(tmp_path / "a.toml", text)) == "settings file, 4 settings"


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    """Exit status 1 with the reason of the operating system."""
    with pytest.raises(ConfigError, match="No such file or directory"):
        check_file(tmp_path / "none.json")
