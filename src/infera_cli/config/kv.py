"""Settings of cache-aware routing (infera-wire §10.1; rulings 16–18)."""

from __future__ import annotations

from typing import Any, Protocol

from infera_cli.config.catalogue import setting
from infera_cli.config.kinds import Choice, Many, Number, Size, Switch, Text
from infera_cli.errors import UsageError
from infera_cli.routing.catalogue import POLICIES

GROUP = "Routing by cache"
POLICY = "kv-aware"
_WEIGHT = "What a block of prompt that a cache lacks costs, against a block of load{}."


def router_tokenizer_path() -> Any:
    """For all models, or one each."""
    return setting(
        (), Many(Text("[MODEL=]PATH")), GROUP,
        "Tokenizer: a folder, a tokenizer.json or a hub id; MODEL=PATH for one model; repeat for more.")


def kv_overlap_weight() -> Any:
    """The base weight."""
    return setting(1.0, Number("WEIGHT"), GROUP, _WEIGHT.format("; 0 routes by load alone"))


def kv_overlap_weight_of(role: str) -> Any:
    """The override of one role."""
    return setting(
        None, Number("WEIGHT"), GROUP, _WEIGHT.format(f", on {role} workers"), unset="as --kv-overlap-weight")


def kv_index_max_bytes() -> Any:
    """The limit of rulings 17."""
    return setting(1 << 30, Size(), GROUP, "Memory for the index of who holds which prefix.")


def session_affinity() -> Any:
    """Pins on top."""
    return setting(
        False, Switch(both=True), GROUP,
        "With kv-aware, keep a session where it was, within the slack, before the caches are weighed.")


def inject_retention() -> Any:
    """The one edit of bodies that anybody may ask for (rulings 8)."""
    return setting(
        False, Switch(), GROUP, "Tell engines how long a prompt should stay cached, by members added to the body.")


def router_default_retention() -> Any:
    """The hint of those that give none."""
    return setting(
        "long", Choice(("none", "short", "long")), GROUP,
        "What --inject-retention tells of requests that do not say themselves.")


class Routed(Protocol):
    """The settings that say how requests are routed."""

    @property
    def router_policy(self) -> str:
        """`--router-policy`."""
    @property
    def router_mode(self) -> str:
        """`--router-mode`."""
    @property
    def inject_retention(self) -> bool:
        """`--inject-retention`."""


def check_modes(settings: Routed) -> None:
    """What the scheduler's queue and costs do not go with. Raises UsageError."""
    if POLICIES[settings.router_policy].scored != "cost":
        return
    wanted = "--router-mode direct" if settings.router_mode == "direct" else "--inject-retention"
    if settings.router_mode == "direct" or settings.inject_retention:
        raise UsageError(
            f"{wanted} and --router-policy {settings.router_policy} do not go together: the scheduler decides itself; "
            "choose another policy, e.g. --router-policy session")


def check_kv(policy: str, tokenizers: tuple[str, ...], simulated: bool) -> None:
    """`kv-aware` needs to know what prompts are made of. Raises UsageError."""
    if policy == POLICY and not tokenizers and not simulated:
        raise UsageError(
            "--router-policy kv-aware needs --router-tokenizer-path, the folder or hub id of the model's tokenizer; "
            "or choose another policy, e.g. --router-policy session")
