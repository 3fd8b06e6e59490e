"""A machine over SSH, by paramiko: one connection, reused, for all that is run there (bench-and-cli §D4, §D5).

Host keys are checked, nothing is ever asked at a terminal, and every step has a time limit. paramiko is blocking, so
each text runs on a thread of its own; its deadline ends the thread too.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import logging
import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import paramiko

from infera_cli.errors import HostRefused, HostUnreachable
from infera_cli.launch.machine import NOT_SENT, Capture, Output
from infera_cli.launch.ssh_config import Destination, SshConfig
from infera_cli.launch.threads import on_thread

log = logging.getLogger("infera.launch")
logging.getLogger("paramiko").setLevel(logging.CRITICAL)  # what it has to say arrives as exceptions

HostKeys = Literal["strict", "accept-new"]
CONNECT_TIMEOUT = 10.0
KEEPALIVE = 15
_CHANNELS = 8  # of one connection; sshd allows ten by default
_CONNECTING = threading.BoundedSemaphore(16)  # sshd drops who is not yet authenticated beyond ten, at random
_SYSTEM_HOSTS = "/etc/ssh/ssh_known_hosts"


class SshMachine:
    """See Machine. `destination` is `user@host` or an alias of the ssh config.

    `host_keys` "accept-new" notes the key of a host never seen before; a changed key is refused always (rulings 13).
    """

    def __init__(
        self, destination: str, *, config: SshConfig, identity_file: str | None = None, host_keys: HostKeys = "strict"
    ) -> None:
        self.destination = destination
        self._config = config
        self._identity_file = identity_file
        self._host_keys = host_keys
        self._lock = threading.Lock()
        self._clients: list[paramiko.SSHClient] = []
        self._slots = asyncio.Semaphore(_CHANNELS)

    async def run(self, text: str, *, within: float) -> Output:
        """See Machine."""
        deadline = time.monotonic() + within
        try:
            async with asyncio.timeout(within + 1.0), self._slots:
                return await on_thread(lambda: self._run(text.encode(), deadline))
        except TimeoutError:
            self._drop()
            raise HostUnreachable(f"{self.destination} did not answer within {within:g} s") from None

    async def close(self) -> None:
        """See Machine."""
        self._drop()

    # ── on a thread ──────────────────────────────────────────────────────────────────────────────────
    def _run(self, text: bytes, deadline: float) -> Output:
        try:
            with self._channel(deadline) as channel:
                return _talk(channel, text, deadline)
        except TimeoutError:
            self._drop()
            raise
        except (paramiko.SSHException, EOFError, OSError) as fault:
            self._drop()
            raise HostUnreachable(f"the connection to {self.destination} broke: {_words(fault)}") from None

    @contextlib.contextmanager
    def _channel(self, deadline: float) -> Iterator[paramiko.Channel]:
        channel = self._open(deadline)
        try:
            yield channel
        finally:
            channel.close()

    def _open(self, deadline: float) -> paramiko.Channel:
        """A channel of the connection there is, or else of a fresh one; nothing was sent before."""
        transport = self._transport()
        if transport is not None:
            try:
                return transport.open_session(timeout=_left(deadline))
            except (paramiko.SSHException, EOFError, OSError):
                self._drop()
        return self._fresh(deadline).open_session(timeout=_left(deadline))

    def _transport(self) -> paramiko.Transport | None:
        clients = self._clients
        transport = clients[-1].get_transport() if clients else None
        return transport if transport is not None and transport.is_active() else None

    def _fresh(self, deadline: float) -> paramiko.Transport:
        if not self._lock.acquire(timeout=_left(deadline)):
            raise TimeoutError
        try:
            transport = self._transport()  # somebody else may have connected meanwhile
            if transport is None:
                with _CONNECTING:
                    self._clients = self._connect(deadline)
                transport = self._transport()
        finally:
            self._lock.release()
        if transport is None:
            raise HostUnreachable(f"{self.destination} hung up")
        return transport

    def _drop(self) -> None:
        clients, self._clients = self._clients, []
        for client in reversed(clients):
            client.close()

    def _connect(self, deadline: float) -> list[paramiko.SSHClient]:
        chain: list[paramiko.SSHClient] = []
        try:
            for hop in self._config.route(self.destination, identity_file=self._identity_file):
                chain.append(_client(hop, hop.host_keys or self._host_keys))
                _join(chain, hop, deadline)
        except BaseException:
            for client in reversed(chain):
                client.close()
            raise
        return chain


# ── one hop ──────────────────────────────────────────────────────────────────────────────────────────
def _client(hop: Destination, host_keys: str) -> paramiko.SSHClient:
    client = paramiko.SSHClient()
    for name in (*hop.known_hosts, _SYSTEM_HOSTS):
        path = Path(name).expanduser()
        if path.is_file():
            client.load_system_host_keys(str(path))
    first = Path(hop.known_hosts[0] if hop.known_hosts else "~/.ssh/known_hosts").expanduser()
    client.set_missing_host_key_policy(_Unknown(hop, first, accept=host_keys in ("accept-new", "no", "off")))
    return client


def _join(chain: list[paramiko.SSHClient], hop: Destination, deadline: float) -> None:
    """Connect the last client of `chain` to `hop`, through those before it."""
    limit = min(hop.connect_timeout or CONNECT_TIMEOUT, _left(deadline))
    where = f"{hop.user}@{hop.hostname}:{hop.port}"
    try:
        with _credentials(hop) as credentials:
            chain[-1].connect(
                hop.key_alias or hop.hostname, port=22 if hop.key_alias else hop.port, username=hop.user,
                sock=_sock(chain, hop, limit), timeout=limit, banner_timeout=limit,
                auth_timeout=min(limit, _left(deadline)), **credentials,
            )  # fmt: skip
        transport = chain[-1].get_transport()
        if transport is not None:
            transport.set_keepalive(KEEPALIVE)
    except paramiko.BadHostKeyException as fault:
        raise HostRefused(
            f"the host key of {hop.alias} has changed: known is {_print(fault.expected_key)}, it shows "
            f"{_print(fault.key)}; if that is right, `ssh-keygen -R` the old one, and check who answers there"
        ) from None
    except paramiko.PasswordRequiredException:
        names = ", ".join(hop.identities)
        raise HostRefused(
            f"the key {names} for {hop.alias} has a passphrase, and nobody is there to type it; "
            f"`ssh-add` it, and keep {names}.pub beside it"
        ) from None
    except paramiko.AuthenticationException as fault:
        tried = ", ".join(hop.identities) or "the agent's keys and those in ~/.ssh"
        raise HostRefused(f"{where} does not accept {tried}: {_words(fault)}; try `ssh {hop.alias} true`") from None
    except HostRefused:
        raise
    except (paramiko.SSHException, EOFError, OSError) as fault:
        raise HostUnreachable(f"cannot reach {where} by ssh: {_words(fault)}", code=NOT_SENT) from None


def _sock(chain: list[paramiko.SSHClient], hop: Destination, limit: float) -> Any:
    if len(chain) > 1:
        through = chain[-2].get_transport()
        if through is None:
            raise HostUnreachable(f"the way to {hop.alias} broke", code=NOT_SENT)
        return through.open_channel("direct-tcpip", (hop.hostname, hop.port), ("127.0.0.1", 0), timeout=limit)
    if hop.proxy_command is not None:
        return paramiko.ProxyCommand(hop.proxy_command)
    return socket.create_connection((hop.hostname, hop.port), timeout=limit)


@contextlib.contextmanager
def _credentials(hop: Destination) -> Iterator[dict[str, Any]]:
    """With a key of its own only that one is offered: servers count what is tried (R137)."""
    if not hop.identities_only:
        yield {"key_filename": list(hop.identities) or None, "allow_agent": True, "look_for_keys": True}
        return
    with contextlib.closing(_agent()) as agent:
        held = next(filter(None, (_held(agent, identity) for identity in hop.identities)), None)
        chosen: dict[str, Any] = {"pkey": held} if held is not None else {"key_filename": list(hop.identities)}
        yield {**chosen, "allow_agent": False, "look_for_keys": False}


def _agent() -> Any:
    return paramiko.Agent() if "SSH_AUTH_SOCK" in os.environ else contextlib.ExitStack()


def _held(agent: Any, identity: str) -> paramiko.PKey | None:
    """The agent's key of that public file; it may know the passphrase."""
    if not isinstance(agent, paramiko.Agent):
        return None
    try:
        words = Path(identity + ".pub").read_text(encoding="utf-8").split()
        wanted = base64.b64decode(words[1])
    except (OSError, IndexError, ValueError):
        return None
    return next((key for key in agent.get_keys() if key.asbytes() == wanted), None)


class _Unknown(paramiko.MissingHostKeyPolicy):
    """A host key never seen before: refused with its fingerprint, or noted where that was asked for."""

    def __init__(self, hop: Destination, known_hosts: Path, *, accept: bool) -> None:
        self._hop, self._file, self._accept = hop, known_hosts, accept

    def missing_host_key(self, client: paramiko.SSHClient, hostname: str, key: paramiko.PKey) -> None:
        """See paramiko."""
        if not self._accept:
            raise HostRefused(
                f"the host key of {self._hop.alias} is not known: {_print(key)}; compare it on that machine and run "
                f"`ssh-keyscan -p {self._hop.port} {self._hop.hostname} >> {self._file}`, "
                "or allow new ones by --ssh-host-keys accept-new"
            )
        self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._file.touch(mode=0o600)
        with self._file.open("a", encoding="utf-8") as file:
            file.write(f"{hostname} {key.get_name()} {key.get_base64()}\n")
        log.warning("noted the host key of %s in %s: %s", self._hop.alias, self._file, _print(key))


# ── one text ─────────────────────────────────────────────────────────────────────────────────────────
def _talk(channel: paramiko.Channel, text: bytes, deadline: float) -> Output:
    """Both streams are read as one, and to their end before the status is asked for: either order can block
    for ever beyond the window of the channel (R131)."""
    channel.set_combine_stderr(True)
    channel.settimeout(_left(deadline))
    channel.exec_command("/bin/sh -s")
    channel.sendall(text)
    channel.shutdown_write()
    kept = Capture()
    while True:
        channel.settimeout(_left(deadline))
        piece = channel.recv(1 << 16)
        if not piece:
            break
        kept.add(piece)
    if not channel.status_event.wait(_left(deadline)):
        raise TimeoutError
    return Output(channel.recv_exit_status(), kept.text())


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


def _print(key: paramiko.PKey) -> str:
    return f"{key.get_name()} {key.fingerprint}"


def _words(fault: BaseException) -> str:
    if isinstance(fault, TimeoutError):
        return "no answer in time"
    return str(getattr(fault, "strerror", None) or fault or type(fault).__name__).rstrip(".")
