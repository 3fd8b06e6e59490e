"""Machines over SSH, against real OpenSSH servers (bench-and-cli §D4, §D5; rulings 13)."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import psutil
import pytest

from infera_cli.errors import ConfigError, HostRefused, HostUnreachable
from infera_cli.launch.machine import MOST_OUTPUT
from infera_cli.launch.ssh import KEEPALIVE, HostKeys, SshMachine
from infera_cli.launch.ssh_config import SshConfig
from tests.support.sshd import Home, Sshd, agent, keygen


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    made = Home(tmp_path / "home")
    monkeypatch.setenv("HOME", str(made.folder))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    return made


@pytest.fixture
def server(home: Home, tmp_path: Path) -> Iterator[Sshd]:
    with Sshd(tmp_path / "gpu1", authorized=[home.key]) as running:
        yield running


@asynccontextmanager
async def machine(
    destination: str = "gpu1", *, identity: Path | None = None, host_keys: HostKeys = "strict"
) -> AsyncIterator[SshMachine]:
    config = SshConfig.of_user()
    made = SshMachine(
        destination, config=config, identity_file=str(identity) if identity else None, host_keys=host_keys
    )
    try:
        yield made
    finally:
        await made.close()


def logins(server: Sshd) -> int:
    return server.log.read_text().count("Accepted publickey")


async def test_a_text_runs_there_and_its_status_and_both_streams_come_back(home: Home, server: Sshd) -> None:
    """Status and output of a text are known."""
    home.alias("gpu1", server)
    home.trust(server)
    async with machine() as gpu1:
        output = await gpu1.run("main() { echo out; echo err >&2; exit 5; }\nmain\n", within=10)
    assert output == (5, "out\nerr\n")


async def test_one_connection_is_reused_for_all_texts(home: Home, server: Sshd) -> None:
    """Texts one after the other and at the same time share one login."""
    home.alias("gpu1", server)
    home.trust(server)
    async with machine() as gpu1:
        await gpu1.run("true\n", within=10)
        outputs = await asyncio.gather(*(gpu1.run(f"sleep 0.1; echo {n}\n", within=10) for n in range(12)))
    assert [output.text for output in outputs] == [f"{n}\n" for n in range(12)]
    assert logins(server) == 1


async def test_a_broken_connection_is_made_anew(home: Home, server: Sshd) -> None:
    """A connection that died while idle costs nothing but a new one."""
    home.alias("gpu1", server)
    home.trust(server)
    async with machine() as gpu1:
        await gpu1.run("true\n", within=10)
        server.stop()
        server.start()
        assert (await gpu1.run("echo again\n", within=10)).text == "again\n"


async def test_a_command_line_there_shows_nothing_of_the_text(home: Home, server: Sshd) -> None:
    """What runs travels on standard input; process lists show a bare shell."""
    home.alias("gpu1", server)
    home.trust(server)
    async with machine() as gpu1:
        output = await gpu1.run("SECRET=hush; tr '\\0' ' ' </proc/$$/cmdline\n", within=10)
    assert output.text.strip() == "/bin/sh -s"


async def test_r131_more_output_than_the_window_on_both_streams_blocks_nothing(home: Home, server: Sshd) -> None:
    """Five MiB on each stream, interleaved, then status 3: known within ten seconds, the output capped."""
    home.alias("gpu1", server)
    home.trust(server)
    text = (
        "main() {\n i=0\n while [ $i -lt 80 ]; do head -c 65536 /dev/zero | tr '\\0' o; "
        "head -c 65536 /dev/zero | tr '\\0' e >&2; i=$((i + 1)); done\n exit 3\n}\nmain\n"
    )
    async with asyncio.timeout(10), machine() as gpu1:
        output = await gpu1.run(text, within=10)
    assert output.status == 3
    assert MOST_OUTPUT < len(output.text) < MOST_OUTPUT + 10_000
    assert "bytes left out" in output.text


async def test_an_unknown_host_key_is_refused_with_fingerprint_and_remedy(home: Home, server: Sshd) -> None:
    """A host never seen before is not trusted; the message shows its key and how to note it."""
    home.alias("gpu1", server)
    async with machine() as gpu1:
        with pytest.raises(HostRefused, match=r"SHA256:.*ssh-keyscan -p \d+ 127\.0\.0\.1"):
            await gpu1.run("true\n", within=10)
    assert home.known_hosts.read_text() == ""


async def test_a_new_host_key_is_noted_on_request_and_checked_ever_after(
    home: Home, server: Sshd, tmp_path: Path
) -> None:
    """accept-new notes a first key; another key at the same address is refused all the same."""
    home.alias("gpu1", server)
    async with machine(host_keys="accept-new") as gpu1:
        assert (await gpu1.run("echo in\n", within=10)).text == "in\n"
    assert home.known_hosts.read_text() == server.known_line
    server.stop()
    with Sshd(tmp_path / "other", authorized=[home.key], port=server.port):
        async with machine(host_keys="accept-new") as gpu1:
            with pytest.raises(HostRefused, match=r"has changed: known is .*SHA256.* shows .*SHA256"):
                await gpu1.run("true\n", within=10)


async def test_r137_with_a_key_of_its_own_only_that_one_is_offered(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Eight other keys in the agent do not use up the three tries of the server."""
    key = keygen(tmp_path / "replica_key")
    others = [keygen(tmp_path / f"other{n}") for n in range(8)]
    with Sshd(tmp_path / "gpu1", authorized=[key], options=["MaxAuthTries 3"]) as server:
        home.alias("gpu1", server)
        home.trust(server)
        with agent(tmp_path, others) as sock:
            monkeypatch.setenv("SSH_AUTH_SOCK", sock)
            async with machine(identity=key) as gpu1:
                assert (await gpu1.run("echo in\n", within=10)).text == "in\n"
        assert "Failed publickey" not in server.log.read_text()


async def test_r137_a_key_with_a_passphrase_is_named_and_never_asked_for(
    home: Home, tmp_path: Path
) -> None:
    """Nobody is there to type it: the message says passphrase and ssh-add, within five seconds."""
    key = keygen(tmp_path / "locked", passphrase="sesame")
    with Sshd(tmp_path / "gpu1", authorized=[key]) as server:
        home.alias("gpu1", server)
        home.trust(server)
        async with asyncio.timeout(5), machine(identity=key) as gpu1:
            with pytest.raises(HostRefused, match=r"passphrase.*ssh-add"):
                await gpu1.run("true\n", within=5)


async def test_r137_a_readable_key_works(home: Home, server: Sshd) -> None:
    """File mode 0644 is no reason to fail."""
    home.key.chmod(0o644)
    home.alias("gpu1", server)
    home.trust(server)
    async with machine(identity=home.key) as gpu1:
        assert (await gpu1.run("echo in\n", within=10)).text == "in\n"


async def test_the_agents_keys_are_used_where_none_is_named(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without identity_file the agent is asked."""
    key = keygen(tmp_path / "held")
    with Sshd(tmp_path / "gpu1", authorized=[key]) as server, agent(tmp_path, [key]) as sock:
        home.alias("gpu1", server)
        home.trust(server)
        key.unlink()
        monkeypatch.setenv("SSH_AUTH_SOCK", sock)
        async with machine() as gpu1:
            assert (await gpu1.run("echo in\n", within=10)).text == "in\n"


async def test_a_key_that_is_not_accepted_is_told_with_what_was_tried(home: Home, tmp_path: Path) -> None:
    """A refused login names the key and a command to try by hand."""
    stranger = keygen(tmp_path / "stranger")
    with Sshd(tmp_path / "gpu1", authorized=[stranger]) as server:
        home.alias("gpu1", server)
        home.trust(server)
        async with machine(identity=home.key) as gpu1:
            with pytest.raises(HostRefused, match=r"does not accept .*id_ed25519.*try `ssh gpu1 true`"):
                await gpu1.run("true\n", within=10)


async def test_r139_alias_user_port_key_jump_and_include_of_the_ssh_config_are_honoured(
    home: Home, tmp_path: Path
) -> None:
    """A destination that only the ssh config knows is reached through its jump host, with its own key."""
    k1 = keygen(home.ssh / "k1")
    user = os.environ.get("USER") or psutil.Process().username()
    with Sshd(tmp_path / "gate", authorized=[home.key], host="127.0.0.2") as gate, \
         Sshd(tmp_path / "gpu", authorized=[k1], host="127.0.0.3") as gpu:
        home.config.write_text("Include conf.d/*\n")
        (home.ssh / "conf.d").mkdir()
        (home.ssh / "conf.d" / "fleet").write_text(
            f"Host gpu1\n HostName {gpu.host}\n Port {gpu.port}\n User {user}\n IdentityFile ~/.ssh/k1\n"
            f" IdentitiesOnly yes\n ProxyJump jump1\nHost jump1\n HostName {gate.host}\n Port {gate.port}\n"
        )
        home.trust(gate)
        home.trust(gpu)
        async with machine() as gpu1:
            assert (await gpu1.run("echo in\n", within=10)).text == "in\n"
        assert logins(gate) == logins(gpu) == 1


async def test_r139_a_jump_host_behind_a_jump_host_is_reached_through_it(home: Home, tmp_path: Path) -> None:
    """Each jump host is reached the way its own entry says."""
    with contextlib.ExitStack() as running:
        outer, inner, gpu = (
            running.enter_context(Sshd(tmp_path / name, authorized=[home.key], host=f"127.0.0.{number}"))
            for number, name in enumerate(("outer", "inner", "gpu"), 2)
        )
        home.alias("outer", outer)
        home.alias("inner", inner, "ProxyJump outer")
        home.alias("gpu1", gpu, "ProxyJump inner")
        for server in (outer, inner, gpu):
            home.trust(server)
        async with machine() as gpu1:
            assert (await gpu1.run("echo in\n", within=10)).text == "in\n"
        assert logins(outer) == logins(inner) == logins(gpu) == 1


@pytest.mark.parametrize(("config", "route"), [
    ("Host *\n ProxyJump gate\n", ["gate", "gpu1"]),
    ("Host gpu1\n ProxyJump a,b\nHost a b\n ProxyJump gate\n", ["gate", "a", "b", "gpu1"]),
    ("Host gpu1\n ProxyJump me@gate:2222\nHost gate\n ProxyJump none\n", ["gate", "gpu1"]),
])
def test_r139_the_way_to_a_machine_is_that_of_ssh(home: Home, config: str, route: list[str]) -> None:
    """The first jump host's own entry counts, and none is reached through itself."""
    home.config.write_text(config)
    assert [hop.alias for hop in SshConfig.of_user().route("gpu1")] == route


def test_r139_jump_hosts_in_a_circle_are_refused(home: Home) -> None:
    """An error that says so, not a hang."""
    home.config.write_text("Host a\n ProxyJump b\nHost b\n ProxyJump a\n")
    with pytest.raises(ConfigError, match="more than 16 jump hosts"):
        SshConfig.of_user().route("a")


def test_an_include_inside_a_block_leaves_the_block_open(home: Home) -> None:
    """Directives behind an include belong to the block they stand in."""
    home.config.write_text("Host a\n Include extra\n Port 2222\nHost *\n User everybody\n")
    (home.ssh / "extra").write_text("Host b\n Port 3333\n")
    config = SshConfig.of_user()
    assert (config.resolve("a").port, config.resolve("b").port, config.resolve("c").port) == (2222, 3333, 22)
    assert config.resolve("c").user == "everybody"
    assert config.resolve("me@c").user == "me"


def test_includes_in_a_circle_are_refused(home: Home) -> None:
    """A config that includes itself is an error, not a hang."""
    home.config.write_text("Include config\n")
    with pytest.raises(ConfigError, match="circle"):
        SshConfig.of_user()


async def test_an_unreachable_host_is_unknown_and_nothing_was_sent(home: Home) -> None:
    """A refused connection says where, and that nothing was sent."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        home.config.write_text(f"Host gpu1\n HostName 127.0.0.1\n Port {unused.getsockname()[1]}\n")
        async with machine() as gpu1:
            with pytest.raises(HostUnreachable, match=r"cannot reach .*@127\.0\.0\.1:\d+ by ssh") as caught:
                await gpu1.run("true\n", within=10)
    assert caught.value.code == "not_sent"


async def test_r133_a_server_that_falls_silent_ends_at_the_deadline(home: Home, server: Sshd) -> None:
    """A connection whose server stopped answering holds a text no longer than its time, the loop not at all."""
    home.alias("gpu1", server)
    home.trust(server)
    assert server.process is not None
    async with machine() as gpu1:
        await gpu1.run("true\n", within=10)
        sessions = psutil.Process(server.process.pid).children(recursive=True)
        for session in sessions:
            session.send_signal(signal.SIGSTOP)
        begun, slowest = time.monotonic(), 0.0
        waiting = asyncio.ensure_future(gpu1.run("true\n", within=1.5))
        while not waiting.done():
            tick = time.monotonic()
            await asyncio.sleep(0.02)
            slowest = max(slowest, time.monotonic() - tick)
        for session in sessions:
            session.send_signal(signal.SIGCONT)
        with pytest.raises(HostUnreachable, match=r"did not answer within 1\.5 s"):
            await waiting
    assert 1.4 < time.monotonic() - begun < 4
    assert slowest < 0.5


async def test_r133_keepalives_are_sent(home: Home, server: Sshd) -> None:
    """A connection without traffic is kept alive, and a dead one noticed."""
    home.alias("gpu1", server)
    home.trust(server)
    async with machine() as gpu1:
        await gpu1.run("true\n", within=10)
        transport = gpu1._transport()
        assert transport is not None
        assert vars(transport.packetizer)["_Packetizer__keepalive_interval"] == KEEPALIVE
