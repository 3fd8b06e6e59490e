"""The control plane: what is not relayed, as a FastAPI app that loads nothing from outside.

Wrong methods and unknown paths of relayed routes end here too (design.md §3; R034).
"""

from __future__ import annotations

from fastapi import FastAPI

from infera_cli.gateway.endpoints import (
    admin,
    answers,
    cache,
    docs,
    health,
    metrics,
    models,
    nodes,
    prewarm,
    profile,
    replicas,
    trace,
    workers,
)
from infera_cli.gateway.endpoints.parts import ControlParts

__all__ = ["ControlParts", "build_app"]


def build_app(parts: ControlParts) -> FastAPI:
    """The app over `parts`; it keeps no state of its own."""
    app = FastAPI(
        title="infera",
        version=parts.version,
        description="One address in front of your LLM engines.",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    answers.install(app)
    for family in (health, models, workers, replicas, admin, profile, cache, prewarm, trace, metrics):
        app.include_router(family.routes(parts))
    if parts.nodes is not None:
        app.include_router(nodes.routes(parts.nodes, parts.fleet, parts.access, parts.version))
    docs.install(app)
    return app
