"""Every routing policy, one row each: a new one is one file under `policies/` and one row here.

Cheap to import, since settings and `--help` read names and sentences from it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

from infera_cli.errors import UsageError
from infera_cli.routing.pickers import Dice
from infera_cli.routing.policies import least_loaded, power_of_two, random_choice, round_robin, session

if TYPE_CHECKING:
    from infera_cli.routing.types import Pool

    Choose = Callable[[Pool, Sequence[int], int, Dice], int]
    """(pool, column of open requests, rotation counter, dice) → index into `pool.workers`."""


class Policy(NamedTuple):
    """One policy. With `pins`, a session first follows its pin, within the slack; `choose` does the rest.

    `scored` names the kind of scorer that chooses instead, where the caller of `decide` has one: `cost`
    (routing/scheduler.py) or `tokens` (prompts as block hashes).
    """

    name: str
    summary: str
    choose: Choose
    pins: bool = False
    scored: Literal["", "cost", "tokens"] = ""


_ROWS = (
    Policy(
        "session",
        "A conversation stays on the worker that has its cache, unless that one is busier than the least "
        "busy by more than the slack; new ones go to the least loaded.",
        session.choose,
        pins=True,
    ),
    Policy("round-robin", "Each worker in turn, whatever its load.", round_robin.choose),
    Policy(
        "least-loaded", "The worker with the fewest requests open through this router.", least_loaded.choose
    ),
    Policy(
        "kv-aware",
        "The worker with the least to compute: the prompt's blocks that its KV cache lacks, and what it has to "
        "do already; needs the engines' KV events and a tokenizer.",
        least_loaded.choose,
        scored="tokens",
    ),
    Policy(
        "prefix-aware",
        "The node that holds the longest known prefix of the conversation, unless it costs more than 1.5 times "
        "the cheapest; else the cheapest. Without a tokenizer.",
        least_loaded.choose,
        scored="cost",
    ),
    Policy(
        "cost",
        "The node that would be done first: prompt, answer, load, cache pressure and hardware as estimated seconds.",
        least_loaded.choose,
        scored="cost",
    ),
    Policy(
        "adaptive",
        "As prefix-aware while more than 40 % of the last five minutes' requests had a known prefix, else as cost.",
        least_loaded.choose,
        scored="cost",
    ),
    Policy("random", "Any worker, equally likely.", random_choice.choose),
    Policy("power-of-two", "The less loaded of two workers drawn at random.", power_of_two.choose),
)

POLICIES: dict[str, Policy] = {row.name: row for row in _ROWS}
"""By name, in the order in which they are listed to people."""


def policy(name: str) -> Policy:
    """The row of that name. Raises UsageError that lists the names there are."""
    try:
        return POLICIES[name]
    except KeyError:
        names = ", ".join(POLICIES)
        raise UsageError(f"There is no routing policy {name!r}; choose one of {names}.") from None
