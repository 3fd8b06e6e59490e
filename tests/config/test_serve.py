"""What `infera serve` needs beyond single values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from infera_cli.config.keys import ClientKey, client_keys
from infera_cli.config.serve import admin_token, load_serve, worker_api_key
from infera_cli.config.settings import ServeSettings
from infera_cli.errors import ConfigError, UsageError


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_without_any_source_the_choices_are_named() -> None:
    """Exit status 2 and one sentence that names the sources and the demo."""
    with pytest.raises(UsageError) as fault:
        load_serve({}, {})
    assert fault.value.message == (
        "nobody to route to: name the workers with --replicas FILE, --config FILE or --worker URL, "
        "find them with --etcd-endpoint HOST:PORT, "
        "start simulated ones with --sim N, or try `infera demo`")


def test_variables_of_later_versions_are_refused_in_words() -> None:
    """A variable that would be obeyed elsewhere is not ignored here: exit status 2."""
    with pytest.raises(UsageError) as fault:
        load_serve({"sim": "1"}, {"INFERA_NATS_SERVER": "nats://n:4222"})
    assert fault.value.message.startswith("INFERA_NATS_SERVER is not in this version; ")


@pytest.mark.parametrize("flags", [{"replicas": "r.json"}, {"worker": ["http://a:1"]}, {"sim": "1"}])
def test_any_source_will_do(flags: dict[str, Any]) -> None:
    """A file, a URL and simulated engines each are a source."""
    assert load_serve(flags, {}).settings.port == 8000


def test_simulated_engines_are_served_on_this_machine_only() -> None:
    """`--sim` binds 127.0.0.1, unless a host was given."""
    assert load_serve({"sim": "1"}, {}).settings.host == "127.0.0.1"
    assert str(load_serve({"sim": "1"}, {}).origins["host"]) == "default because of --sim"
    assert load_serve({"sim": "1", "host": "0.0.0.0"}, {}).settings.host == "0.0.0.0"
    assert load_serve({"sim": "1"}, {"INFERA_HOST": "::"}).settings.host == "::"
    assert load_serve({"worker": ["http://a:1"]}, {}).settings.host == "0.0.0.0"


def test_the_project_file_comes_before_the_users_file(tmp_path: Path) -> None:
    """./infera.toml, then infera/config.toml under XDG_CONFIG_HOME or ~/.config."""
    (tmp_path / "infera.toml").write_text("[serve]\nsim = 2", encoding="utf-8")
    (tmp_path / ".config" / "infera").mkdir(parents=True)
    users = tmp_path / ".config" / "infera" / "config.toml"
    users.write_text("[serve]\nsim = 3\nport = 9", encoding="utf-8")
    for environ in ({"HOME": str(tmp_path)}, {"XDG_CONFIG_HOME": str(tmp_path / ".config")}):
        settings = load_serve({}, environ).settings
        assert (settings.sim, settings.port) == (2, 9)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"ssl_certfile": "c.pem"}, "--ssl-certfile and --ssl-keyfile go together: give both or neither"),
        ({"ssl_keyfile": "k.pem"}, "--ssl-certfile and --ssl-keyfile go together: give both or neither"),
        ({"breaker_cooldown": "90"}, "--breaker-max-cooldown must not be less than --breaker-cooldown"),
        ({"on_exit": "keep"}, "--on-exit keep needs --state-file, or nobody could find the replicas again"),
        ({"initial_replicas": "3", "max_replicas": "2"},
         "--initial-replicas 3 is more than --max-replicas 2 allows"),
        ({"api_key": ["k", ""]}, "--api-key must not be empty"),
        ({"admin_token": "t", "admin_token_file": "f"},
         "the admin token is given twice, as a value and as a file; leave one out"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(flags: dict[str, Any], message: str) -> None:
    """Exit status 1 and one sentence that names both."""
    with pytest.raises(ConfigError) as fault:
        load_serve({"sim": "1", **flags}, {})
    assert fault.value.message == message


def test_secrets_are_read_from_files(tmp_path: Path) -> None:
    """One line for a token, one key a line for clients; blank lines and comments do not count."""
    token, keys = tmp_path / "token", tmp_path / "keys"
    token.write_text("# ours\nhush\n", encoding="utf-8")
    keys.write_text("one\n\n two \n", encoding="utf-8")
    settings = ServeSettings(
        admin_token_file=str(token), api_key=("zero",), api_key_file=str(keys),
        worker_api_key_file=str(token))
    assert (admin_token(settings), worker_api_key(settings)) == ("hush", "hush")
    assert [client.key for client in client_keys(settings)] == ["zero", "one", "two"]
    none = ServeSettings()
    assert (admin_token(none), client_keys(none), worker_api_key(none)) == (None, (), None)


def test_a_line_of_the_key_file_may_say_what_the_key_may(tmp_path: Path) -> None:
    """Names and patterns of models, and requests a minute; a key alone may everything."""
    keys = tmp_path / "keys"
    keys.write_text("one models=qwen3,claude-*\ntwo per-minute=60 models=m\nthree\n", encoding="utf-8")
    assert client_keys(ServeSettings(api_key_file=str(keys))) == (
        ClientKey("one", ("qwen3", "claude-*")), ClientKey("two", ("m",), 60), ClientKey("three"))


@pytest.mark.parametrize("line", [
    "hush x", "hush model=m", "hush models=", "hush per-minute=0", "hush per-minute=-1", "hush per-minute=x"])
def test_a_line_of_the_key_file_that_says_something_else_is_refused(tmp_path: Path, line: str) -> None:
    """By its number and the form there is, never with the key."""
    keys = tmp_path / "keys"
    keys.write_text(f"fine\n{line}\n", encoding="utf-8")
    with pytest.raises(ConfigError, match="client key 2 in ") as fault:
        client_keys(ServeSettings(api_key_file=str(keys)))
    assert "hush" not in fault.value.message


def test_secret_files_that_cannot_be_used_stop_the_program(tmp_path: Path) -> None:
    """Missing, empty, undecodable and ambiguous files are refused with their path, never their content."""
    path = tmp_path / "token"
    for content, message in [
        (None, f"cannot read the admin token in {path}: No such file or directory"),
        (b" \n# only\n", f"{path} is empty, it should hold the admin token"),
        (b"\xff", f"the admin token in {path} is not UTF-8 text"),
        (b"a\nb\n", f"the admin token in {path} must be one line, not 2"),
    ]:
        if content is not None:
            path.write_bytes(content)
        with pytest.raises(ConfigError) as fault:
            admin_token(ServeSettings(admin_token_file=str(path)))
        assert fault.value.message == message
