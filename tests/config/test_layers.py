"""Five places for a setting, and each value knows which one it came from."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from infera_cli.config.layers import Loaded, load
from infera_cli.config.settings import ServeSettings
from infera_cli.errors import ConfigError, InferaError, UsageError

Files = Callable[..., list[Path]]


@pytest.fixture
def files(tmp_path: Path) -> Files:
    """A maker of settings files, strongest first."""

    def make(*texts: str) -> list[Path]:
        paths = [tmp_path / f"layer{number}.toml" for number in range(len(texts))]
        for path, text in zip(paths, texts, strict=True):
            path.write_text(text, encoding="utf-8")
        return paths

    return make


def serve(flags: Any = None, environ: Any = None, paths: Any = ()) -> Loaded[ServeSettings]:
    return load(ServeSettings, flags or {}, environ or {}, section="serve", files=paths)


def refusal(expected: type[InferaError], *args: Any) -> str:
    with pytest.raises(expected) as fault:
        serve(*args)
    return fault.value.message


def test_each_layer_is_stronger_than_the_next(files: Files) -> None:
    """Flag, environment, project file, user file, default: the first that speaks is heard."""
    paths = files(
        "[serve]\nport = 3\nsim = 3\naffinity-slack = 3", "[serve]\nport = 4\nsim = 4\nsession-ttl = 4")
    loaded = serve({"port": "1"}, {"INFERA_PORT": "2", "INFERA_AFFINITY_SLACK": "2"}, paths)
    settings = loaded.settings
    assert (settings.port, settings.affinity_slack, settings.sim, settings.session_ttl) == (1, 2, 3, 4.0)
    assert settings.health_interval == 5.0
    names = ("port", "affinity_slack", "sim", "session_ttl", "health_interval")
    assert [str(loaded.origins[name]) for name in names] == [
        "flag --port", "environment INFERA_AFFINITY_SLACK", f"file {paths[0]}", f"file {paths[1]}", "default"]


def test_defaults_are_those_of_the_documents() -> None:
    """Nothing given: the defaults that the replica router's and the server's documents state."""
    settings = serve().settings
    assert (settings.host, settings.port, settings.router_policy) == ("0.0.0.0", 8000, "session")
    assert (settings.session_ttl, settings.affinity_slack, settings.health_interval) == (600.0, 8, 5.0)
    assert (settings.request_timeout, settings.connect_timeout) == (3600.0, 5.0)
    assert (settings.first_byte_timeout, settings.idle_timeout) == (0.0, 0.0)
    assert (settings.launch_timeout, settings.drain_timeout, settings.replace_after) == (600.0, 300.0, 30.0)
    assert (settings.breaker_cooldown, settings.breaker_max_cooldown) == (5.0, 60.0)
    assert settings.breaker_failure_threshold == 3
    assert (settings.request_max_retries, settings.max_body_size) == (1, 64 * 2**20)
    assert settings.initial_replicas is settings.max_replicas is None
    assert settings.state_file is settings.admin_token is None


def test_lists_come_from_repeated_flags_words_and_arrays(files: Files) -> None:
    """`--worker a --worker b`, `INFERA_WORKER="a b"` and `worker = ["a", "b"]` are the same."""
    paths = files('[serve]\nworker = ["a", "b"]')
    said = [serve({"worker": ["a", "b"]}), serve(None, {"INFERA_WORKER": "a b"}), serve(None, None, paths)]
    assert [loaded.settings.worker for loaded in said] == [("a", "b")] * 3


def test_switches_come_from_flags_words_and_booleans(files: Files) -> None:
    """`--no-access-log`, `INFERA_ACCESS_LOG=off` and `access-log = false` are the same."""
    paths = files("[serve]\naccess-log = false")
    said = [serve({"access_log": False}), serve(None, {"INFERA_ACCESS_LOG": "off"}), serve(None, None, paths)]
    assert [loaded.settings.access_log for loaded in said] == [False] * 3
    assert serve({"access_log": None}).settings.access_log is True


def test_keys_of_a_file_may_be_written_with_underscores(files: Files) -> None:
    """`session_ttl` and `session-ttl` are one key."""
    assert serve(None, None, files("[serve]\nsession_ttl = 7")).settings.session_ttl == 7.0


def test_the_servers_own_spellings_of_variables_are_heard() -> None:
    """`INFERA_BREAKER_COOLDOWN_S` of the server's documents sets the same as `INFERA_BREAKER_COOLDOWN`."""
    loaded = serve(None, {"INFERA_BREAKER_COOLDOWN_S": "9"})
    assert loaded.settings.breaker_cooldown == 9.0
    assert str(loaded.origins["breaker_cooldown"]) == "environment INFERA_BREAKER_COOLDOWN_S"


def test_missing_files_say_nothing(tmp_path: Path) -> None:
    """Neither settings file needs to exist."""
    assert not serve(None, None, [tmp_path / "none.toml"]).given("port")


def test_flags_that_do_not_parse_are_usage() -> None:
    """Exit status 2, and the flag, what it wants and what it got."""
    assert refusal(UsageError, {"port": "abc"}) == "--port must be a whole number, not 'abc'"
    said = refusal(UsageError, {"router_policy": "best"})
    assert said.startswith("--router-policy must be one of session, ")


def test_values_out_of_range_are_configuration() -> None:
    """Exit status 1, wherever the value came from."""
    assert refusal(ConfigError, {"port": "70000"}) == "--port must be between 0 and 65535, not 70000"
    assert refusal(ConfigError, {}, {"INFERA_SESSION_TTL": "0"}) == "INFERA_SESSION_TTL must be more than 0"


@pytest.mark.parametrize("flag", ["session_ttl", "health_interval", "request_timeout", "connect_timeout",
                                  "launch_timeout", "drain_timeout", "replace_after", "first_byte_timeout",
                                  "idle_timeout", "breaker_cooldown", "shutdown_timeout"])
@pytest.mark.parametrize("text", ["nan", "inf", "-inf", "-1"])
def test_b41_times_that_are_not_finite_or_negative_are_refused(flag: str, text: str) -> None:
    """Every time limit refuses `nan`, `inf` and negative values with exit status 1."""
    assert refusal(ConfigError, {flag: text}).startswith(f"--{flag.replace('_', '-')} must be ")


def test_s103_absurd_drain_timeouts_are_refused() -> None:
    """A drain timeout is a finite time above zero."""
    said = refusal(ConfigError, {"drain_timeout": "nan"})
    assert said == "--drain-timeout must be a finite number of seconds, not nan"


def test_b29_an_empty_admin_token_is_refused() -> None:
    """An empty token would let a bare `Bearer` pass, so it stops the program with exit status 1."""
    assert refusal(ConfigError, {"admin_token": ""}) == "--admin-token must not be empty"
    said = refusal(ConfigError, {}, {"INFERA_ADMIN_TOKEN": " "})
    assert said.startswith("INFERA_ADMIN_TOKEN must not be empty")


@pytest.mark.parametrize("variable", ["INFERA_API_KEY", "INFERA_WORKER"])
def test_an_empty_list_in_the_environment_is_refused(variable: str) -> None:
    """A key that was meant to come and did not must not open the server to everybody."""
    assert refusal(ConfigError, {}, {variable: " "}).startswith(f"{variable} must hold at least one value")


def test_documented_values_of_later_versions_are_usage() -> None:
    """`--request-transport nats` is exit status 2 and says so."""
    said = refusal(UsageError, {"request_transport": "nats"})
    assert said.startswith("--request-transport: 'nats' is not in this version; choose one of http")


def test_secrets_are_never_repeated() -> None:
    """Neither messages nor the settings' own text show a secret."""
    settings = serve({"admin_token": "hush", "api_key": ["quiet"]}).settings
    assert settings.admin_token == "hush"
    assert "hush" not in repr(settings)
    assert "quiet" not in repr(settings)
    assert "hush" not in refusal(ConfigError, {"admin_token": "hush", "port": "-1"})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[serve]\nprot = 8001", "unknown key 'prot' in [serve]; did you mean 'port'?"),
        ("[serve]\nadmin-on = true", "unknown key 'admin-on' in [serve]; did you mean 'admin-token'?"),
        ("[serve]\nqqqq = 1", "unknown key 'qqqq' in [serve]"),
        ("[server]\nport = 1",
         "unknown table or key 'server'; a settings file has the tables [serve], [launch], [client]"),
        ("port = 1", "unknown table or key 'port'; a settings file has the tables [serve], [launch], [client]"),
        ("serve = 1", "'serve' must be a table, written [serve]"),
        ('[serve]\nport = "8001"', "port in [serve] must be a whole number, without quotes, not '8001'"),
        ("[serve]\nport = true", "port in [serve] must be a whole number, without quotes, not True"),
    ],
)
def test_r187_mistakes_in_a_file_name_file_and_key(files: Files, text: str, message: str) -> None:
    """A typo never disables a setting silently: exit status 1, the file, the key and what was meant."""
    [path] = files(text)
    assert refusal(ConfigError, {}, {}, [path]) == f"{path}: {message}"


def test_values_out_of_range_in_a_file_name_the_file(files: Files) -> None:
    """The sentence names the file and the key."""
    [path] = files("[serve]\nport = 70000")
    assert refusal(ConfigError, {}, {}, [path]) == f"{path}: port must be between 0 and 65535, not 70000"


def test_files_that_are_not_toml_are_refused(tmp_path: Path) -> None:
    """Broken syntax, other encodings and folders stop the program with the path and the reason."""
    broken, latin, folder = tmp_path / "a.toml", tmp_path / "b.toml", tmp_path / "c.toml"
    broken.write_text("[serve", encoding="utf-8")
    latin.write_bytes(b"# \xe9\n")
    folder.mkdir()
    assert refusal(ConfigError, {}, {}, [broken]).startswith(f"{broken} is not valid TOML: ")
    assert refusal(ConfigError, {}, {}, [latin]) == f"{latin} is not UTF-8 text (byte 2)"
    assert refusal(ConfigError, {}, {}, [folder]) == f"cannot read {folder}: Is a directory"


def test_settings_of_later_versions_in_a_file_are_usage(files: Files) -> None:
    """A documented flag of another version is told apart from a typo."""
    [path] = files('[serve]\nnats-server = "x"')
    assert refusal(UsageError, {}, {}, [path]).startswith(f"'nats-server' in {path} is not in this version")


def test_misspelt_variables_stop_the_program() -> None:
    """A variable that is nearly one of ours is a mistake; others belong to other programs."""
    assert refusal(ConfigError, {}, {"INFERA_SESION_TTL": "5"}) == (
        "unknown environment variable INFERA_SESION_TTL; did you mean INFERA_SESSION_TTL?")
    others = {"INFERA_SOMETHING_ELSE": "5", "PORT": "1", "INFERA_PORT_8000_TCP": "x"}
    assert serve(None, others).settings.port == 8000


def test_variables_that_do_not_parse_are_configuration() -> None:
    """Exit status 1 and the name of the variable."""
    assert refusal(ConfigError, {}, {"INFERA_PORT": "abc"}) == "INFERA_PORT must be a whole number, not 'abc'"


def test_a_kubernetes_service_link_is_explained() -> None:
    """A Service called `infera` makes Kubernetes set INFERA_PORT everywhere; the message says what to do."""
    assert "enableServiceLinks: false" in refusal(ConfigError, {}, {"INFERA_PORT": "tcp://10.0.0.1:8000"})
