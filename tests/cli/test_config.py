"""`infera config` and `infera version`."""

from __future__ import annotations

import json
import platform
from pathlib import Path

import pytest

from infera_cli import __version__
from infera_cli.routing import ledger
from tests.cli.conftest import Infera, Result


def lines(text: str) -> dict[str, list[str]]:
    return {line.split()[0]: line.split()[1:] for line in text.splitlines()}


def test_show_prints_every_value_and_its_origin(
    infera: Infera, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Flag, environment, file and default are told apart."""
    text = '[serve]\nsim = 2\n[client]\nserver = "http://a:1"\n'
    (tmp_path / "infera.toml").write_text(text, encoding="utf-8")
    monkeypatch.setenv("INFERA_SESSION_TTL", "10m")
    code, out, err = infera("config", "show", "--origin", "--port", "9000")
    shown = lines(out)
    assert (code, err) == (0, "")
    assert shown["SETTING"] == ["VALUE", "ORIGIN"]
    assert shown["serve.port"] == ["9000", "flag", "--port"]
    assert shown["serve.session-ttl"] == ["600", "environment", "INFERA_SESSION_TTL"]
    assert shown["serve.sim"] == ["2", "file", "infera.toml"]
    assert shown["serve.max-body-size"] == ["64MiB", "default"]
    assert shown["client.server"] == ["http://a:1", "file", "infera.toml"]


def test_show_never_shows_a_secret(infera: Infera, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a table and in JSON a secret is only set or not."""
    monkeypatch.setenv("INFERA_ADMIN_TOKEN", "hush")
    table = infera("config", "show").out
    document = infera("config", "show", "--json").out
    assert lines(table)["serve.admin-token"] == ["set"]
    assert lines(table)["serve.api-key"] == ["not", "set"]
    assert "hush" not in table + document
    rows = {row["name"]: row for row in json.loads(document)["settings"]}
    assert rows["serve.admin-token"] == {
        "name": "serve.admin-token", "value": None, "set": True, "origin": "environment INFERA_ADMIN_TOKEN"}
    assert rows["serve.port"] == {"name": "serve.port", "value": 8000, "set": False, "origin": "default"}


def test_check_answers_for_each_file(infera: Infera, tmp_path: Path) -> None:
    """One line a file; the first bad one ends it."""
    (tmp_path / "infera.toml").write_text("", encoding="utf-8")
    (tmp_path / "r.json").write_text('{"replicas": [{"host": "h", "port": 1}]}', encoding="utf-8")
    assert infera("config", "check", "r.json", "infera.toml", "none.json") == Result(
        1,
        "r.json: replica file, 1 replica, 0 hosts\ninfera.toml: settings file, 0 settings\n",
        "error: cannot read none.json: No such file or directory\n",
    )


def test_check_knows_scheduler_files(infera: Infera, tmp_path: Path) -> None:
    """What is in a good one; a bad one is exit status 1 with the dotted path."""
    node = "{id: a, hardware: a6000, backend: vllm, endpoint: 'http://h:1', models: [m]}"
    (tmp_path / "s.yaml").write_text(f"nodes: [{node}]\n", encoding="utf-8")
    assert infera("config", "check", "s.yaml") == Result(0, "s.yaml: scheduler file, 1 node, 1 model, lru\n", "")
    (tmp_path / "s.yaml").write_text(f"nodes: [{node}]\nkv_cache: {{polcy: lru}}\n", encoding="utf-8")
    code, out, err = infera("config", "check", "s.yaml")
    assert (code, out) == (1, "")
    accepted = "eviction_threshold_pct, pin_system_prompts, policy, prefix_ignore"
    assert err == f'error: s.yaml: kv_cache: unknown key "polcy" (did you mean "policy"?); known: {accepted}\n'


def test_version_for_people_and_programs(infera: Infera) -> None:
    """One line, or what it runs on as JSON."""
    how = "interpreted" if (ledger.__file__ or "").endswith(".py") else "compiled"
    assert infera("version") == Result(0, f"infera {__version__} ({how}), Python {platform.python_version()}\n", "")
    document = json.loads(infera("version", "-o", "json").out)
    assert (document["infera"], document["python"]) == (__version__, platform.python_version())
    assert document["compiled"] is (how == "compiled")
    assert "uvicorn" in document["parts"]
    assert infera("version", "-o", "xml").code == 2
