"""`/metrics`: rendered from memory, in the format the scraper prefers (infera-wire §8; bench-and-cli §E1)."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response
from fastapi.responses import PlainTextResponse

from infera_cli.gateway.endpoints.parts import ControlParts


def routes(parts: ControlParts) -> APIRouter:
    """The scrape target; needs no key."""
    router = APIRouter(tags=["metrics"])

    @router.get(
        "/metrics", operation_id="metrics", summary="Prometheus metrics", response_class=PlainTextResponse
    )
    async def metrics(request: Request) -> Response:
        """Counters, gauges and histograms of this router, as Prometheus text or OpenMetrics."""
        body, content_type = parts.metrics.render(request.headers.get("accept", ""))
        return Response(body, headers={"Content-Type": content_type})

    return router
