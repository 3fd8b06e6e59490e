"""Names of datasets, other tools' included, and what kind each is."""

from __future__ import annotations

from infera_cli.errors import UsageError

MADE_UP = ("random", "prefix", "multi-turn")
TEXTS = ("sharegpt", "conversations", "openai")
TRACES = ("mooncake", "azure", "burstgpt")
FROM_FILE = (*TEXTS, *TRACES)
CONVERSATIONS = ("multi-turn", "conversations")
NAMES = (*MADE_UP, *FROM_FILE)
ALIASES = {
    "prefix_repetition": "prefix", "generated-shared-prefix": "prefix", "shared_prefix": "prefix",
    "custom": "openai", "timed_trace": "mooncake", "multi_turn": "multi-turn", "multiturn": "multi-turn",
}
MEANT_FOR = {
    "input_len": MADE_UP, "output_len": (*MADE_UP, *TEXTS), "range_ratio": MADE_UP, "prefix_len": MADE_UP,
    "groups": ("prefix",), "zipf": ("prefix",), "turns": ("multi-turn",), "turns_ratio": ("multi-turn",),
    "turn_pause": ("multi-turn",), "multi_turn": ("sharegpt",), "block": ("mooncake",), "dataset_path": FROM_FILE,
}
"""Options that mean something for some datasets only."""


def resolve(name: str) -> str:
    """Our name of a dataset. Raises UsageError for an unknown one."""
    found = ALIASES.get(name, name)
    if found not in NAMES:
        raise UsageError(f"there is no dataset {name!r}; choose from {', '.join(NAMES)}", param="--dataset-name")
    return found
