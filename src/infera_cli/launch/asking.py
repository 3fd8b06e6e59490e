"""What a running engine says about itself: whether it is ready, its models, its blocks, its events."""

from __future__ import annotations

import contextlib
from typing import Any, Self

import httpx

from infera_cli.launch.dialects.base import EventSource
from infera_cli.protocol.engine_metrics import parse_load
from infera_cli.protocol.model_cards import parse_cards

_BRIEF = 10.0


class Asking:
    """Small GETs to the engine at base URL `url`; use as `async with`. Times are seconds."""

    def __init__(self, url: str, *, api_key: str | None = None) -> None:
        headers = {"authorization": f"Bearer {api_key}"} if api_key else {}
        self._http = httpx.AsyncClient(base_url=url, headers=headers, timeout=_BRIEF, trust_env=False)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.aclose()

    async def is_ready(self, path: str, timeout: float) -> bool:  # noqa: ASYNC109 - of the one request
        """Whether `path` answers 200 now."""
        try:
            return (await self._http.get(path, timeout=timeout)).status_code == 200
        except httpx.HTTPError:
            return False

    async def metrics(self) -> bytes:
        """The metrics page. Raises OSError when there is none."""
        try:
            reply = await self._http.get("/metrics")
        except httpx.HTTPError as fault:
            raise ConnectionError(str(fault)) from None
        if reply.status_code != 200:
            raise ConnectionError(f"/metrics answered {reply.status_code}")
        return reply.content

    async def model(self) -> str | None:
        """The first model it lists."""
        reply = await self._try("/v1/models")
        cards = parse_cards(reply.content) if reply is not None else None
        return next((card["id"] for card in cards or () if isinstance(card.get("id"), str)), None)

    async def block_size(self) -> int | None:
        """The block size that it really uses (S64)."""
        with contextlib.suppress(OSError):
            return parse_load(await self.metrics()).block_size
        return None

    async def document(self, path: str) -> Any:
        """The JSON at `path`; None where there is none."""
        reply = await self._try(path)
        try:
            return reply.json() if reply is not None else None
        except ValueError:
            return None

    async def _try(self, path: str) -> httpx.Response | None:
        try:
            reply = await self._http.get(path)
        except httpx.HTTPError:
            return None
        return reply if reply.status_code == 200 else None


def endpoint(host: str, port: int) -> str:
    """The ZMQ address that others connect to."""
    return f"tcp://[{host}]:{port}" if ":" in host else f"tcp://{host}:{port}"


def endpoints(host: str, source: EventSource | None) -> tuple[str | None, str | None]:
    """Addresses of events and of their replay."""
    if source is None:
        return None, None
    return endpoint(host, source.events), endpoint(host, source.replay) if source.replay else None
