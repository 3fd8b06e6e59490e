"""`/docs` and `/openapi.json`: a self-contained page, rendered here, that asks no other host for anything."""

from __future__ import annotations

import json
from collections.abc import Iterator
from html import escape
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.openapi.utils import get_openapi

from infera_cli.gateway.endpoints.docs_style import CSS
from infera_cli.gateway.relayed import RELAYED

_TAGS = {
    "inference": "Relayed to a worker byte for byte; the worker's status, headers and body come back.",
    "models": "What the fleet serves.",
    "health": "For load balancers and people; no key needed.",
    "workers": "Who is behind this address.",
    "replicas": "The same in the replica router's words; needs the admin token.",
    "admin": "Needs the admin token; without one configured, only callers on this machine may.",
    "metrics": "For Prometheus.",
}
_HELLO = [{"role": "user", "content": "Hello"}]
_EXAMPLES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"model": "my-model", "messages": _HELLO, "max_tokens": 32},
    "/v1/completions": {"model": "my-model", "prompt": "Once upon a time", "max_tokens": 32},
    "/v1/messages": {"model": "my-model", "messages": _HELLO, "max_tokens": 32},
    "/v1/messages/count_tokens": {"model": "my-model", "messages": _HELLO},
    "/v1/responses": {"model": "my-model", "input": "Hello"},
    "/v1/embeddings": {"model": "my-model", "input": ["Hello"]},
    "/tokenize": {"model": "my-model", "prompt": "Hello"},
}
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; frame-ancestors 'none'"


def install(app: FastAPI) -> None:
    """Add the page, and the relayed routes to the schema."""
    plain = app.openapi_schema

    def schema() -> dict[str, Any]:
        nonlocal plain
        if plain is None:
            plain = full_schema(app)
        return plain

    app.openapi = schema  # type: ignore[method-assign]  # FastAPI's documented way to extend the schema

    @app.get("/docs", include_in_schema=False)
    async def docs(request: Request) -> Response:
        base = str(request.base_url).rstrip("/")
        headers = {"Content-Security-Policy": _POLICY, "Cache-Control": "no-cache"}
        return Response(page(app.openapi(), base), media_type="text/html", headers=headers)


def full_schema(app: FastAPI) -> dict[str, Any]:
    """The app's own OpenAPI schema, and each relayed route."""
    schema = get_openapi(
        title=app.title, version=app.version, description=app.description, routes=app.routes,
        tags=[{"name": name, "description": text} for name, text in _TAGS.items()],
    )  # fmt: skip
    _tell_of_bad_parameters(schema)
    for path, summary in RELAYED.items():
        schema["paths"][path] = {"post": _relayed(path, summary)}
    return schema


def _tell_of_bad_parameters(schema: dict[str, Any]) -> None:
    """Parameters that cannot be read are 400 with an error object here, not FastAPI's own 422 (R034)."""
    for methods in schema["paths"].values():
        for operation in methods.values():
            if operation["responses"].pop("422", None) is not None:
                operation["responses"]["400"] = {"description": "A parameter that cannot be read"}
    shapes = schema.get("components", {}).get("schemas", {})
    for name in ("HTTPValidationError", "ValidationError"):
        shapes.pop(name, None)


def _relayed(path: str, summary: str) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "tags": ["inference"],
        "summary": summary,
        "operationId": path.strip("/").replace("/", "_"),
        "parameters": [
            {
                "name": "X-Session-Id",
                "in": "header",
                "required": False,
                "description": "Keeps a conversation on the worker that holds its cache; minted when absent",
                "schema": {"type": "string", "pattern": "^[A-Za-z0-9._:-]{1,128}$"},
            }
        ],
        "responses": {
            "200": {"description": "The worker's answer"},
            "429": {"description": "The router holds as many requests as it may; see Retry-After"},
            "502": {"description": "No worker could be reached"},
            "503": {"description": "Nothing is routable now"},
            "504": {"description": "The worker did not answer in time"},
        },
    }
    if path in _EXAMPLES:
        operation["requestBody"] = {"content": {"application/json": {"example": _EXAMPLES[path]}}}
    return operation


# ── the page ─────────────────────────────────────────────────────────────────────────────────────────
def page(schema: dict[str, Any], base: str) -> str:
    """The schema as HTML: a section a tag, a folding block a route; `base` is this server's own address."""
    info = schema["info"]
    title = f"{escape(info['title'])} {escape(info['version'])}"
    sections = "".join(_section(tag["name"], tag["description"], schema, base) for tag in schema["tags"])
    links = "".join(f'<a href="#{escape(tag["name"])}">{escape(tag["name"])}</a>' for tag in schema["tags"])
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{CSS}</style></head><body><header><h1>{title}</h1><p>{escape(info['description'])}</p><nav>{links}"
        f'<a href="/openapi.json">openapi.json</a></nav></header><main>{sections}</main></body></html>'
    )


def _operations(tag: str, schema: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in schema["paths"].items():
        for method, operation in methods.items():
            if tag in operation["tags"]:
                yield method, path, operation


def _section(tag: str, description: str, schema: dict[str, Any], base: str) -> str:
    blocks = "".join(_block(base, *found) for found in _operations(tag, schema))
    return (
        f'<section id="{escape(tag)}"><h2>{escape(tag)}</h2><p>{escape(description)}</p>{blocks}</section>'
    )


def _block(base: str, method: str, path: str, operation: dict[str, Any]) -> str:
    return (
        f'<details><summary><b class="{method}">{method.upper()}</b><code>{escape(path)}</code>'
        f"<span>{escape(operation['summary'])}</span></summary><div>"
        f"{_paragraph(operation.get('description', ''))}{_parameters(operation.get('parameters', []))}"
        f"{_responses(operation['responses'])}<h3>Try it</h3>"
        f"<pre>{escape(curl(method, base + path, operation))}</pre></div></details>"
    )


def _paragraph(text: str) -> str:
    return f"<p>{escape(text)}</p>" if text else ""


def _parameters(parameters: list[dict[str, Any]]) -> str:
    rows = "".join(
        f"<tr><td><code>{escape(p['name'])}</code></td><td>{escape(p['in'])}</td>"
        f"<td>{escape(p.get('description', 'required' if p['required'] else ''))}</td></tr>"
        for p in parameters
    )
    return f"<h3>Parameters</h3><table>{rows}</table>" if rows else ""


def _responses(responses: dict[str, Any]) -> str:
    rows = "".join(
        f"<tr><td><code>{escape(code)}</code></td><td>{escape(answer['description'])}</td></tr>"
        for code, answer in responses.items()
    )
    return f"<h3>Answers</h3><table>{rows}</table>"


def curl(method: str, url: str, operation: dict[str, Any]) -> str:
    """A command line that calls the route."""
    parts = ["curl", url]
    if method != "get":
        parts.insert(1, f"-X {method.upper()}")
    body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("example")
    if body is not None:
        parts.append(f"-H 'Content-Type: application/json' \\\n  -d '{json.dumps(body)}'")
    return " ".join(parts)
