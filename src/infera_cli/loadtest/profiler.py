"""`--profile`: the engines' profilers run while the load does (engines.md §1.11, §2.4)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import httpx

from infera_cli.errors import ConfigError, InferaError
from infera_cli.loadtest.options import Options
from infera_cli.loadtest.target import About, trust

STARTS, STOPS = 30.0, 600.0     # seconds; writing traces takes minutes


@contextmanager
def profiled(options: Options, about: About) -> Iterator[None]:
    """Start the profilers, and stop them whatever happens. An engine is asked itself; a router of ours asks all of its
    engines, for the admin token in INFERA_ADMIN_TOKEN. Raises ConfigError, InferaError where they cannot be started."""
    _ask(options, about, "start", STARTS)
    try:
        yield
    finally:
        _ask(options, about, "stop", STOPS)


def _ask(options: Options, about: About, verb: str, seconds: float) -> None:
    path, headers = f"/{verb}_profile", dict(options.headers)
    if about.workers:
        path = f"/v1/admin/profile/{verb}"
        if token := os.environ.get("INFERA_ADMIN_TOKEN"):
            headers["Authorization"] = f"Bearer {token}"
    try:
        answer = httpx.post(
            options.base_url + path, headers=headers, timeout=seconds, verify=trust(options), trust_env=False
        )
    except httpx.HTTPError as fault:
        raise InferaError(f"the profilers could not be asked to {verb} ({fault})") from None
    if answer.is_success:
        return
    hint = "start the engine with its profiler on"
    if about.workers:
        hint = "the router needs --enable-profiling, and its admin token is read from INFERA_ADMIN_TOKEN"
    raise ConfigError(f"POST {path} was answered {answer.status_code}: {hint}")
