"""What a router of ours and the engines say of prefix caches: counters, read before a run and after it."""

from __future__ import annotations

import httpx
import msgspec

from infera_cli.loadtest.options import Options
from infera_cli.loadtest.target import About, trust
from infera_cli.protocol.engine_metrics import parse_load

PATIENCE = 2.0      # seconds for a figure that a report can do without
_PREDICTED = "infera_kv_expected_cached_tokens_total{"


class Caches(msgspec.Struct, frozen=True):
    """Prompt tokens so far: that the router expected to be cached, that all engines looked up, and that they found.
    None where it is not told."""

    predicted: float | None = None
    looked_up: int | None = None
    found: int | None = None


def look(options: Options, about: About) -> Caches:
    """The counters now."""
    engines = [_page(options, f"{url}/metrics") for url in about.workers.values() or (options.base_url,)]
    looked_up, found = _engines(engines)
    return Caches(predicted(options, about), looked_up, found)


def grown(before: Caches, after: Caches) -> dict[str, float]:
    """What came in between, for a report; what is not told, or was counted anew meanwhile, is left out."""
    told: dict[str, float] = {}
    if after.predicted is not None:
        told["predicted_cached_tokens"] = after.predicted - (before.predicted or 0.0)
    if None not in (before.looked_up, before.found, after.looked_up, after.found):
        looked_up = (after.looked_up or 0) - (before.looked_up or 0)
        found = (after.found or 0) - (before.found or 0)
        if 0 <= found <= looked_up and looked_up:
            told |= {"engine_prompt_tokens": looked_up, "engine_cached_tokens": found}
    return told


def share(told: dict[str, float]) -> float | None:
    """The part of all prompts that the engines found cached, 0 to 1, by their own counters."""
    looked_up = told.get("engine_prompt_tokens")
    return told["engine_cached_tokens"] / looked_up if looked_up else None


def predicted(options: Options, about: About) -> float | None:
    """Prompt tokens that a router of ours has expected in its workers' caches so far; None where it expects nothing,
    which only `kv-aware` does."""
    page = _page(options, f"{options.base_url}/metrics") if about.workers else None
    try:
        found = [float(line.rpartition(" ")[2]) for line in (page or b"").decode("utf-8", "replace").splitlines()
                 if line.startswith(_PREDICTED)]
    except ValueError:
        return None
    return sum(found) if found else None


def _engines(pages: list[bytes | None]) -> tuple[int | None, int | None]:
    """(looked up, found) over all engines; of a part of them nobody would know what it stands for."""
    loads = [parse_load(page or b"") for page in pages]
    looked_up = [load.cache_queries for load in loads if load.cache_queries is not None]
    found = [load.cache_hits for load in loads if load.cache_hits is not None]
    whole = len(looked_up) == len(found) == len(loads)
    return (sum(looked_up), sum(found)) if whole else (None, None)


def _page(options: Options, url: str) -> bytes | None:
    """Without the key: the engines behind a router are none of its addressees."""
    try:
        answer = httpx.get(url, timeout=PATIENCE, verify=trust(options), trust_env=False)
    except httpx.HTTPError:
        return None
    return answer.content if answer.is_success else None
