"""The workers of a running server: list, drain, restore."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from infera_cli.client.http import Server
from infera_cli.errors import NotFound, ServerUnreachable


def workers(server: Server) -> list[dict[str, Any]]:
    """Every worker as the server shows it. Raises ServerUnreachable and other InferaErrors."""
    return array(server, server.get("/v1/workers"), "workers")


def drain(server: Server, worker: str) -> dict[str, Any]:
    """Give a worker no new work; the answer has `worker_id`, `status` and `outstanding`. Raises NotFound."""
    return _act(server, worker, "drain")


def restore(server: Server, worker: str) -> dict[str, Any]:
    """Undo `drain`. Raises NotFound."""
    return _act(server, worker, "restore")


def resolve(given: str, names: Sequence[str]) -> str:
    """The one name that `given` is, or begins. Raises NotFound."""
    if given in names:
        return given
    found = [name for name in names if given and name.startswith(given)]
    if len(found) == 1:
        return found[0]
    if found:
        raise NotFound(f"{given!r} may be any of {', '.join(found)}")
    near = difflib.get_close_matches(given, names, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(names) or 'none'}"
    raise NotFound(f"no worker {given!r}; {hint}")


def array(server: Server, document: Any, name: str) -> list[dict[str, Any]]:
    """The list of objects called `name` in an answer. Raises ServerUnreachable when it is no such answer."""
    found = document.get(name) if isinstance(document, dict) else None
    if not isinstance(found, list) or not all(isinstance(item, dict) for item in found):
        raise ServerUnreachable(f"{server.url} answers, but not as an infera server does")
    return found


def _act(server: Server, worker: str, verb: str) -> dict[str, Any]:
    name = resolve(worker, [str(w.get("worker_id")) for w in workers(server)])
    answer = server.post(f"/v1/admin/workers/{quote(name, safe='')}/{verb}")
    return dict(answer)
