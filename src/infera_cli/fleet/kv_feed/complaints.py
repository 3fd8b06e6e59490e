"""One line in the log when a stream begins to speak rubbish, and no other until it has spoken well for a while (R085).

Every bad message is counted; a line for each would let whoever sends them fill the disk.
"""

from __future__ import annotations

import logging

GOOD_AFTER = 100
"""Good batches in a row after which a stream is good again."""

log = logging.getLogger("infera.kv")


class Complaints:
    """Of one stream, whose `name` is its target's."""

    def __init__(self, name: str) -> None:
        self.count = 0
        """Bad things that came."""
        self._name = name
        self._told = False
        self._good = 0

    def bad(self, what: str, *, fault: BaseException | None = None) -> None:
        """Something came that cannot be used; `fault` is shown where it is one of ours."""
        self.count += 1
        self._good = 0
        if not self._told:
            self._told = True
            log.warning(
                "KV events of %s: %s; it is skipped, and more of its kind are counted and not told",
                self._name, what, exc_info=fault,
            )  # fmt: skip

    def good(self) -> None:
        """A batch was good as a whole."""
        if self._told:
            self._good += 1
            if self._good >= GOOD_AFTER:
                self._told, self._good = False, 0
                log.info("KV events of %s are good again", self._name)
