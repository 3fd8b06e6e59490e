"""The metrics of `kv-aware` (infera-wire §8, and ours)."""

from __future__ import annotations

from infera_cli.telemetry.family import Family

BLOCK_BUCKETS = (0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048)

_TARGET = ("worker_id",)

PICK_HITS = Family("infera_router_pick_cache_hits", "histogram", ("role",), "Blocks that the picked worker held.")
PICK_BLOCKS = Family("infera_router_pick_request_blocks", "histogram", ("role",), "Full blocks of routed prompts.")
ACTIVE_BLOCKS = Family(
    "infera_policy_active_blocks", "gauge", _TARGET, "Different prompt blocks in flight on the worker or rank."
)
VIEW_SIZE = Family(
    "infera_policy_cache_view_size", "gauge", _TARGET, "Blocks that the worker or rank is known to hold."
)
RETENTION = Family(
    "infera_cache_control_seen_total", "counter", ("retention",), "Requests with a cache hint: none, short, long."
)
SKIPPED = Family(
    "infera_cache_locality_skipped_total", "counter", ("reason",),
    "Requests whose text was not weighed: multimodal.",
)  # fmt: skip
EVENTS = Family(
    "infera_kv_events_received_total", "counter", _TARGET, "KV events that the worker or rank published to us."
)
EVENTS_UNUSED = Family(
    "infera_kv_events_unused_total", "counter", (*_TARGET, "reason"),
    "KV events without effect: ignored (another tier or kind), refused (does not add up), malformed, orphan "
    "(parent unknown), unknown (block unknown), duplicate.",
)  # fmt: skip
STREAM = Family(
    "infera_kv_stream_total", "counter", (*_TARGET, "what"),
    "What befell an event stream: gap, restart, replay, replay_failed, block_size (another one than registered), "
    "unusable (an address that cannot be), fault (an error of ours; the rank is followed anew).",
)  # fmt: skip
FALLBACKS = Family(
    "infera_kv_fallbacks_total", "counter", ("cause",), "Requests routed by load alone, since their tokens are unknown."
)
RENDERED = Family("infera_kv_prompts_total", "counter", (), "Prompts whose tokens were worked out.")
SHORT = Family("infera_kv_short_prompts_total", "counter", (), "Prompts without one full block.")
INDEX_BYTES = Family("infera_kv_index_bytes", "gauge", (), "Estimated memory of the prefix index.")
INDEX_BLOCKS = Family("infera_kv_index_blocks", "gauge", (), "Different blocks in the prefix index.")
EVICTED = Family("infera_kv_index_evicted_total", "counter", (), "Blocks forgotten for want of memory.")
LAPSED = Family(
    "infera_kv_promises_lapsed_total", "counter", (), "Blocks credited ahead that the engine never announced."
)
EXPECTED = Family(
    "infera_kv_expected_cached_tokens_total", "counter", _TARGET, "Prompt tokens expected to be in the worker's cache."
)
REPORTED = Family(
    "infera_kv_reported_cached_tokens_total", "counter", _TARGET, "Prompt tokens that the worker found there."
)
DRIFTING = Family(
    "infera_kv_drifting", "gauge", _TARGET, "1 while expectation and report of the last requests differ by half."
)

FAMILIES = (
    PICK_HITS, PICK_BLOCKS, ACTIVE_BLOCKS, VIEW_SIZE, EVENTS, EVENTS_UNUSED, STREAM, RETENTION, SKIPPED, FALLBACKS,
    RENDERED, SHORT, INDEX_BYTES, INDEX_BLOCKS, EVICTED, LAPSED, EXPECTED, REPORTED, DRIFTING,
)  # fmt: skip
