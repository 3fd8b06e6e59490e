"""The page for people and the schema for machines."""

from __future__ import annotations

import re

from infera_cli.gateway.relayed import RELAYED
from tests.gateway.endpoints.world import FakeFleet, client, parts


async def test_docs_page_loads_nothing_from_outside() -> None:
    """No script, no link, no image: only text and its own style."""
    async with client(parts(FakeFleet())) as http:
        page = await http.get("/docs")
    assert page.headers["content-type"].startswith("text/html")
    assert not re.search(r"<(script|link|img|iframe)|url\(|@import|src=", page.text)
    assert set(re.findall(r'https?://[^\s"<]+', page.text)) <= {
        f"http://127.0.0.1:8000{path}" for path in re.findall(r"<code>(/[^<]*)</code>", page.text)
    }


async def test_schema_and_page_name_every_route() -> None:
    """Relayed and control routes are all documented, each with a summary and an operation id of its own."""
    async with client(parts(FakeFleet())) as http:
        schema, page = (await http.get("/openapi.json")).json(), (await http.get("/docs")).text
    control = {"/health", "/livez", "/readyz", "/metrics", "/replicas", "/v1/models", "/v1/workers",
               "/v1/admin/explain", "/v1/admin/requests", "/v1/admin/workers/{worker_id}/drain"}  # fmt: skip
    assert control | set(RELAYED) <= set(schema["paths"])
    operations = [op for methods in schema["paths"].values() for op in methods.values()]
    assert all(op["summary"] and op["tags"] for op in operations)
    assert len({op["operationId"] for op in operations}) == len(operations)
    assert all(f"<code>{path}</code>" in page for path in schema["paths"])


async def test_the_schema_says_how_bad_parameters_are_answered() -> None:
    """They are 400 in the schema as on the wire, and nothing refers to a shape that is never sent."""
    async with client(parts(FakeFleet())) as http:
        schema = (await http.get("/openapi.json")).json()
    answers = schema["paths"]["/v1/admin/requests"]["get"]["responses"]
    assert set(answers) == {"200", "400"}
    assert "ValidationError" not in str(schema)
