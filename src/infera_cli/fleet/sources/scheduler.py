"""`--config FILE`: the nodes of a scheduler file as workers (replica-router §2.2)."""

from __future__ import annotations

from infera_cli.protocol.scheduler_file import NodeEntry, SchedulerFile
from infera_cli.routing.types import WorkerSpec

SOURCE = "config"


def specs_of(file: SchedulerFile, *, api_key: str | None = None) -> tuple[WorkerSpec, ...]:
    """One worker a node, in the file's order. What can change without harm to open requests (hardware, weight, role,
    caps) is not part of it, so that a reload keeps the worker."""
    return tuple(_spec(node, api_key) for node in file.nodes)


def _spec(node: NodeEntry, api_key: str | None) -> WorkerSpec:
    return WorkerSpec(
        id=node.id, host=node.host, port=node.port, scheme=node.scheme, path_prefix=node.path_prefix,
        models=node.models, engine=node.backend, source=SOURCE, api_key=api_key,
    )  # fmt: skip
