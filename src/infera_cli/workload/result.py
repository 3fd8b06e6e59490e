"""One finished run, and the document that holds several: what is saved, compared and drawn."""

from __future__ import annotations

from typing import Any

import msgspec

from infera_cli.errors import ConfigError
from infera_cli.workload.figures import Figures
from infera_cli.workload.verdict import Verdict

SCHEMA_VERSION = 1
KIND = "infera-bench"


class Client(msgspec.Struct, frozen=True):
    """Where the load came from. `cpu_max` is the busiest process's share of one core over five seconds."""

    host: str
    processes: int
    cpu_max: float
    cpu_mean: float
    placement: str


class Run(msgspec.Struct, frozen=True):
    """One run. `options` are the effective ones without secrets; `target` what the address said of itself."""

    cell: str
    repeat: int
    started: str
    partial: bool
    options: dict[str, Any]
    target: dict[str, Any]
    client: Client
    figures: Figures
    direct: Figures | None
    verdict: Verdict


class Document(msgspec.Struct, frozen=True):
    """A result file. Durations are in seconds; members are only ever added."""

    runs: tuple[Run, ...]
    tool_version: str = ""
    findings: dict[str, Any] = {}
    kind: str = KIND
    schema_version: int = SCHEMA_VERSION

    def cells(self) -> dict[str, list[Run]]:
        """Runs by cell, repetitions together, in order."""
        found: dict[str, list[Run]] = {}
        for run in self.runs:
            found.setdefault(run.cell, []).append(run)
        return found


def encode(document: Document) -> bytes:
    """`document` as JSON."""
    return msgspec.json.format(msgspec.json.encode(document), indent=1)


def decode(content: bytes, origin: str) -> Document:
    """Read a result file. Raises ConfigError when it is none, or from a later version."""
    try:
        head = msgspec.json.decode(content, type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise ConfigError(f"{origin} is not a result of infera bench: {error}") from None
    if head.get("kind") != KIND:
        raise ConfigError(f"{origin} is not a result of infera bench (save one with --save-result)")
    if head.get("schema_version", 0) > SCHEMA_VERSION:
        raise ConfigError(f"{origin} was written by a later version; update infera to read it")
    try:
        return msgspec.json.decode(content, type=Document)
    except msgspec.DecodeError as error:
        raise ConfigError(f"{origin} is damaged: {error}") from None
