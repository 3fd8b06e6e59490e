"""What somebody who mistyped a name may have meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

_LIKELY, _CERTAIN = 0.75, 0.9
_MOST = 3       # names that one word may stand for; more are no help
_UNGUARDED = frozenset({"admin-open"})
"""Takes protection away: meant only by somebody who all but wrote it."""


def near(name: str, known: Iterable[str]) -> list[str]:
    """Which of `known` are close enough to `name` to be worth a suggestion; dashes in front do not count.

    The one that is close as a whole; else those few that have it for a part (`--policy`), or a word that it shortens
    (`--rqst`).
    """
    wanted, names = name.lstrip("-"), {one: one.lstrip("-") for one in known}
    rate, best = max(((_likeness(wanted, bare), one) for one, bare in names.items()), default=(0.0, ""))
    guarded = {one: bare for one, bare in names.items() if bare not in _UNGUARDED}
    if rate >= _CERTAIN:
        return [best]
    if parts := _few(one for one, bare in guarded.items() if f"-{wanted}-" in f"-{bare}-"):
        return parts
    rate, best = max(((_likeness(wanted, bare), one) for one, bare in guarded.items()), default=(0.0, ""))
    if rate >= _LIKELY:
        return [best]
    return _few(one for one, bare in guarded.items() if any(_shortens(wanted, word) for word in bare.split("-")))


def _likeness(wanted: str, known: str) -> float:
    return difflib.SequenceMatcher(None, wanted, known).ratio()


def _shortens(wanted: str, word: str) -> bool:
    """Whether `wanted` is `word`, nearly, or without some of its letters, as `rqst` is `request`."""
    letters = iter(word)
    some = len(wanted) > 2 and len(word) < 2 * len(wanted) and wanted[:1] == word[:1]
    return _likeness(wanted, word) >= _CERTAIN or (some and all(letter in letters for letter in wanted))


def _few(found: Iterable[str]) -> list[str]:
    names = sorted(found, key=len)
    return names if len(names) <= _MOST else []
