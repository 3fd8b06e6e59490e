"""Every metric of ours: name, kind, labels, one sentence; the reference page comes from here.

Names of infera-wire §8 where they apply. Units are in the names, counters end in `_total`, and no label can
take more values than the fleet has workers and models (bench-and-cli §E1).
"""

from __future__ import annotations

from infera_cli.telemetry import cache_names
from infera_cli.telemetry.family import Family

__all__ = ["FAMILIES", "Family"]

REQUEST_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
FIRST_TOKEN_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 600)
GAP_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5)
STAGE_BUCKETS = (0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 1, 60)
LAG_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1)

_SERVED = ("model", "worker_id")
_WORKER = ("worker_id",)

DURATION = Family(
    "infera_request_duration_seconds", "histogram", ("router", "outcome"),
    "From the request head to the last byte; router is direct where the caller named the worker, else mixed; outcome "
    "is ok, 4xx, 5xx, error, or the status of a refusal.",
)  # fmt: skip
INFLIGHT = Family(
    "infera_request_inflight", "gauge", ("router",), "Requests inside, until their last byte."
)
PICKS = Family(
    "infera_router_picks_total", "counter", ("role", "worker_id"),
    "Times the policy chose the worker; worker_id is WORKER#dpRANK where it chooses ranks.",
)  # fmt: skip
ACTIVE = Family(
    "infera_active_workers", "gauge", ("disagg_mode",), "Workers that are ready and not draining."
)
BREAKER_STATE = Family(
    "infera_router_worker_breaker_state", "gauge", _WORKER, "Breaker: 0 closed, 1 half open, 2 open."
)
BREAKER_TRIPS = Family(
    "infera_router_worker_breaker_trips_total", "counter", _WORKER, "Times the breaker went open."
)
REQUESTS = Family(
    "infera_requests_total", "counter", (*_SERVED, "outcome"),
    "Requests by how they ended: ok, 4xx, 5xx, broken, timeout, client_gone, rejected; worker_id is empty "
    "where no worker was asked, or it left.",
)  # fmt: skip
SERVED_DURATION = Family(
    "infera_worker_request_duration_seconds", "histogram", _SERVED,
    "From the request head to the last byte.",
)
FIRST_TOKEN = Family(
    "infera_time_to_first_token_seconds", "histogram", _SERVED,
    "From the request head to the first body byte, of streamed answers.",
)  # fmt: skip
GAP = Family(
    "infera_stream_chunk_gap_seconds", "histogram", _SERVED,
    "Mean time between the chunks of a stream, one observation a stream.",
)  # fmt: skip
PROMPT_TOKENS = Family(
    "infera_prompt_tokens_total", "counter", _SERVED, "Prompt tokens, as answers report them."
)
COMPLETION_TOKENS = Family(
    "infera_completion_tokens_total", "counter", _SERVED, "Generated tokens, as answers report them."
)
CACHED_TOKENS = Family(
    "infera_cached_tokens_total", "counter", _SERVED,
    "Prompt tokens that came from the engine's prefix cache.",
)
RETRIES = Family(
    "infera_retries_total", "counter", _SERVED,
    "Re-sends before the first byte, by the worker that was tried last.",
)
WORKER_INFLIGHT = Family("infera_worker_inflight", "gauge", _WORKER, "Requests open on the worker.")
WORKER_READY = Family("infera_worker_ready", "gauge", _WORKER, "1 while the worker is ready.")
WORKER_DRAINING = Family("infera_worker_draining", "gauge", _WORKER, "1 while the worker drains.")
WORKER_FAULTS = Family(
    "infera_worker_faults_total", "counter", ("worker_id", "reason"),
    "Attempts that failed through the worker.",
)
CONNECTIONS = Family(
    "infera_upstream_connections", "gauge", ("worker_id", "state"), "Connections to the worker: busy, idle."
)
CONNECTIONS_CREATED = Family(
    "infera_upstream_connections_created_total", "counter", _WORKER, "Connections opened to the worker."
)
CONNECTIONS_REUSED = Family(
    "infera_upstream_connections_reused_total", "counter", _WORKER,
    "Requests sent on a connection kept alive.",
)
STAGES = Family(
    "infera_router_stage_seconds", "histogram", ("stage",),
    "The router's own part: queue (body and admission), pick, connect (until the request is handed over).",
)  # fmt: skip
REJECTED = Family(
    "infera_requests_rejected_total", "counter", ("reason",),
    "Requests refused before a worker was asked, by the cause, whatever status the client's API has for it: full "
    "(the router, its queue, or every worker), quota (of the caller's key), nothing_routable, unknown_model, "
    "unauthorized, forbidden, bad_request, body_timeout, body_too_large, headers_too_large, other.",
)  # fmt: skip
SESSIONS = Family("infera_router_sessions", "gauge", (), "Session pins held.")
AFFINITY_HITS = Family(
    "infera_router_affinity_hits_total", "counter", (), "Picks that followed a session's pin."
)
RELOADS = Family(
    "infera_source_reloads_total", "counter", ("result",), "Source files read again: ok, refused."
)
SOURCE_STALE = Family(
    "infera_source_stale", "gauge", ("source",), "1 while the last view of a discovery source serves, for want of news."
)
RECORDS_REFUSED = Family(
    "infera_discovery_records_refused_total", "counter", ("source",), "Records of workers that could not be used."
)
DISCOVERY_RECONNECTS = Family(
    "infera_discovery_reconnects_total", "counter", ("source",), "Times that following a source was begun anew."
)
LAG = Family("infera_event_loop_lag_seconds", "histogram", (), "How late the router's timer came.")
BUILD = Family("infera_build_info", "gauge", ("version",), "1, with the version that runs.")

FAMILIES = (
    DURATION, INFLIGHT, PICKS, ACTIVE, BREAKER_STATE, BREAKER_TRIPS, REQUESTS, SERVED_DURATION, FIRST_TOKEN,
    GAP, PROMPT_TOKENS, COMPLETION_TOKENS, CACHED_TOKENS, RETRIES, WORKER_INFLIGHT, WORKER_READY,
    WORKER_DRAINING, WORKER_FAULTS, CONNECTIONS, CONNECTIONS_CREATED, CONNECTIONS_REUSED, STAGES, REJECTED,
    SESSIONS, AFFINITY_HITS, RELOADS, SOURCE_STALE, RECORDS_REFUSED, DISCOVERY_RECONNECTS, LAG, BUILD,
    *cache_names.FAMILIES,
)  # fmt: skip
