"""Names of workers for the shell: from a cache of at most 30 s, else asked for with 300 ms to spare.

Completion must be quick and silent, so every failure is an empty list. (Source: bench-and-cli §C3.)
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from infera_cli.client.http import Server
from infera_cli.client.workers import workers
from infera_cli.errors import InferaError

FRESH = 30.0
PATIENCE = 0.3


def complete(url: str, *, environ: Mapping[str, str], now: float) -> Sequence[str]:
    """Names of the workers of the server at `url`; empty when not to be had at once. `now` is Unix time."""
    cached = _recall(_file(url, environ), now)
    if cached is not None:
        return cached
    try:
        names = [str(worker.get("worker_id")) for worker in workers(Server(url, timeout=PATIENCE))]
    except InferaError:
        return ()
    remember(url, names, environ=environ)
    return names


def remember(url: str, names: Sequence[str], *, environ: Mapping[str, str]) -> None:
    """Keep the names for the next completion; a cache that cannot be written is none."""
    path = _file(url, environ)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(list(names)), encoding="utf-8")
    except OSError:
        return


def _recall(path: Path, now: float) -> Sequence[str] | None:
    try:
        if now - path.stat().st_mtime > FRESH:
            return None
        names = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return [name for name in names if isinstance(name, str)] if isinstance(names, list) else None


def _file(url: str, environ: Mapping[str, str]) -> Path:
    home = Path(environ.get("XDG_CACHE_HOME") or Path(environ.get("HOME", "/nonexistent")) / ".cache")
    key = hashlib.sha256(url.encode()).hexdigest()[:16]
    return home / "infera" / f"workers-{key}.json"
