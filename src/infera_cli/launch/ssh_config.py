"""What the user's ssh config says of a destination: paramiko reads the file, `Include` is ours.

HostName, User, Port, IdentityFile, IdentitiesOnly, ProxyJump, ProxyCommand, HostKeyAlias, ConnectTimeout,
StrictHostKeyChecking and UserKnownHostsFile are acted on; other directives change nothing here (R139).
"""

from __future__ import annotations

import getpass
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import paramiko

from infera_cli.errors import ConfigError

_INCLUDE = re.compile(r"\s*include(?:\s*=\s*|\s+)(.+)", re.IGNORECASE)
_BLOCK = re.compile(r"\s*(?:host|match)(?:\s|=)", re.IGNORECASE)
_DEPTH = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination:
    """One machine as ssh would reach it. `jumps` are destinations on the way, in order."""

    alias: str
    hostname: str
    port: int = 22
    user: str
    identities: tuple[str, ...] = ()
    identities_only: bool = False
    jumps: tuple[str, ...] = ()
    proxy_command: str | None = None
    key_alias: str | None = None
    connect_timeout: float | None = None
    host_keys: str | None = None
    known_hosts: tuple[str, ...] = ()


class SshConfig:
    """The user's ssh config, then the system's; first value found wins, as with ssh."""

    def __init__(self, text: str) -> None:
        try:
            self._config = paramiko.SSHConfig.from_text(text)
        except (paramiko.SSHException, ValueError, IndexError) as fault:
            raise ConfigError(f"the ssh config cannot be read: {fault}") from None

    @classmethod
    def of_user(cls) -> SshConfig:
        """`~/.ssh/config` and `/etc/ssh/ssh_config`, their includes in place. Raises ConfigError."""
        own = Path("~/.ssh/config").expanduser()
        texts = [expand(own, own.parent), expand(Path("/etc/ssh/ssh_config"), Path("/etc/ssh"))]
        return cls("\n".join(texts))

    def resolve(self, destination: str, *, identity_file: str | None = None) -> Destination:
        """What `user@alias` means. Raises ConfigError for values that make no sense."""
        user, _, alias = destination.rpartition("@")
        found: dict[str, Any] = dict(self._config.lookup(alias))
        try:
            port = int(found.get("port", 22))
            timeout = float(found["connecttimeout"]) if found.get("connecttimeout", "none") != "none" else None
        except ValueError as fault:
            raise ConfigError(f"the ssh config holds a bad number for {alias!r}: {fault}") from None
        own = identity_file is not None
        jump = str(found.get("proxyjump", "none"))
        command = str(found.get("proxycommand", "none"))
        return Destination(
            alias=alias, hostname=str(found.get("hostname", alias)), port=port,
            user=user or str(found.get("user") or getpass.getuser()),
            identities=_existing([identity_file] if identity_file else found.get("identityfile", [])),
            identities_only=own or str(found.get("identitiesonly", "no")) == "yes",
            jumps=() if jump == "none" else tuple(part.strip() for part in jump.split(",")),
            proxy_command=None if command == "none" or jump != "none" else command,
            key_alias=found.get("hostkeyalias"), connect_timeout=timeout,
            host_keys=found.get("stricthostkeychecking"),
            known_hosts=tuple(str(found.get("userknownhostsfile", "~/.ssh/known_hosts")).split()),
        )  # fmt: skip


    def route(self, destination: str, *, identity_file: str | None = None) -> list[Destination]:
        """The hops to a destination, itself last. Raises ConfigError, also for jump hosts that go in a circle.

        As with ssh, the first jump host is reached the way its own entry says; a later one through the one before it.
        A jump host that a `Host *` sends through itself is reached directly.
        """
        hops = [self.resolve(destination, identity_file=identity_file)]
        while hops[0].jumps:
            if len(hops) > _DEPTH:
                raise ConfigError(f"the ssh config leads to {destination!r} through more than {_DEPTH} jump hosts")
            before = [*map(self._jump, hops[0].jumps)]
            if (before[-1].hostname, before[-1].port) == (hops[0].hostname, hops[0].port):
                break
            hops = [*before, *hops]
        return hops

    def _jump(self, jump: str) -> Destination:
        name, port = jump_destination(jump)
        found = self.resolve(name)
        return found if port is None else replace(found, port=port)


def jump_destination(jump: str) -> tuple[str, int | None]:
    """`user@host:port` or `ssh://…` of a ProxyJump as a destination and a port."""
    text = jump.removeprefix("ssh://")
    host, colon, port = text.rpartition(":")
    if colon and port.isdigit() and not host.endswith(":"):
        return host.replace("[", "").replace("]", ""), int(port)
    return text, None


def expand(path: Path, base: Path, depth: int = 0) -> str:
    """The text of a config with its includes in place; a missing file is an empty one. Raises ConfigError.

    Relative names start at `base`. After an include inside a block the block goes on.
    """
    if depth > _DEPTH:
        raise ConfigError(f"the ssh config includes {path} in a circle")
    try:
        lines = path.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from None
    out, block = [], ""
    for line in lines:
        include = _INCLUDE.match(line)
        if include is None:
            block = line if _BLOCK.match(line) else block
            out.append(line)
            continue
        for pattern in include[1].replace('"', " ").split():
            out += [expand(part, base, depth + 1) for part in _matching(base / Path(pattern).expanduser())]
        out.append(block or "Host *")
    return "\n".join(out)


def _existing(names: list[str]) -> tuple[str, ...]:
    paths = [Path(name).expanduser() for name in names if name]
    return tuple(str(path) for path in paths if path.exists())


def _matching(pattern: Path) -> list[Path]:
    """Files that a pattern with an absolute path stands for."""
    anchor = Path(pattern.anchor)
    return sorted(anchor.glob(str(pattern.relative_to(anchor))))
