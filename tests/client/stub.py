"""A server that answers what it was told to, and remembers what it was asked."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Asked:
    """One request as it came in."""

    method: str
    path: str
    headers: dict[str, str]
    body: Any


@dataclass
class Stub:
    """`answers` maps `METHOD path` (without the query) to status and document, or raw bytes."""

    url: str = ""
    answers: dict[str, tuple[int, Any]] = field(default_factory=dict)
    asked: list[Asked] = field(default_factory=list)


@contextmanager
def serving() -> Iterator[Stub]:
    """A stub on a free port of this machine, for the length of a `with`."""
    stub = Stub()
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(stub))
    stub.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield stub
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _handler(stub: Stub) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            document = json.loads(body) if body else None
            stub.asked.append(Asked(self.command, self.path, dict(self.headers), document))
            key = f"{self.command} {self.path.partition('?')[0]}"
            status, answer = stub.answers.get(key, (404, {"error": {"message": f"no route {key}"}}))
            data = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = _answer  # noqa: N815 - http.server looks for these names

        def log_message(self, *_: Any) -> None:
            """Silence."""

    return Handler


WORKERS = [
    {
        "worker_id": "node0", "url": "http://10.0.0.1:8001", "model_name": "m", "engine": "vllm",
        "status": "active", "disagg_mode": "mixed", "models": ["m"], "ready": True,
        "draining": False, "owned": False, "outstanding": 2, "routed": 14, "breaker": "closed",
    },
    {
        "worker_id": "10.0.0.2:8001", "url": "http://10.0.0.2:8001", "model_name": "", "engine": "",
        "status": "dead", "disagg_mode": "mixed", "models": [], "ready": False,
        "draining": False, "owned": True, "outstanding": 0, "routed": 3, "breaker": "open",
    },
]
"""Two workers as `GET /v1/workers` shows them."""
