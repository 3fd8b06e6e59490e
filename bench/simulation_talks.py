"""The conversations of simulation_proof.py: made so that policies come to different ends.

* Twelve groups share a long system prompt each, so it pays to send what begins alike to one worker, which `session`
  does not know of.
* Every turn repeats all that was said, so who forgets where a conversation was pays for it anew.
* Every third conversation begins with a long answer: it keeps a worker's place for seconds, which `least-loaded`
  looks at, and `round-robin` does not.

Sizes and seed were looked for with the simulator alone, so that no coincidence of milliseconds decides: with arrivals
up to 8 ms late by dice and engines a little slower or faster, every policy stays within 5 % of its mean TTFT, and the
next one is further away than that.
"""

from __future__ import annotations

import json

from infera_cli.workload import text

SEED = 981
COUNT, GROUPS = 90, 12
SYSTEM, QUESTION = 2000, 200     # words
TURNS = (3, 5)
LONG_EVERY, LONG, SHORT = 3, 500, 16        # tokens of an answer


def conversations() -> str:
    """A line of JSON each; recorded answers tell how long the answers shall be."""
    return "\n".join(json.dumps({"messages": _messages(number)}) for number in range(COUNT))


def _messages(number: int) -> list[dict[str, str]]:
    dice = text.dice(SEED, "conversation", number)
    group = dice.randrange(GROUPS)
    found = [_said("system", text.text(SYSTEM, text.dice(SEED, "system", group)))]
    for turn in range(dice.randint(*TURNS)):
        question = text.text(round(QUESTION * dice.uniform(0.6, 1.4)), dice)
        length = LONG if turn == 0 and number % LONG_EVERY == LONG_EVERY - 1 else SHORT
        found += [_said("user", question), _said("assistant", "abc " * length)]
    return found


def _said(role: str, words: str) -> dict[str, str]:
    return {"role": role, "content": words}
