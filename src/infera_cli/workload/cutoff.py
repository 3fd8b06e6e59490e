"""What the end of a run makes of a request that is still open.

The end is nobody's failure: an answer that is coming is cut off with its tokens, and so is a request that was sent a
moment before (R158). But who got nothing for as long as the run waits for anybody (`--grace`), and for far longer than
others had to wait, has timed out. If that were no failure, a server that hangs would have no bad figure at all: those
it still answers are fast.
"""

from __future__ import annotations

from msgspec.structs import replace

from infera_cli.workload.sample import INCOMPLETE, Sample

TIMEOUT = "timeout_run_end"
"""The class of such a failure."""

LEAST = 1.0     # seconds: who got nothing for less was sent a moment before
USUAL = 2.0     # times the longest wait of an answer that came: who waits longer than that waits for nothing


class RunEnd:
    """Judges what is open once all that was answered has been seen; `grace` in seconds."""

    def __init__(self, grace: float) -> None:
        self._grace = grace
        self._longest = 0.0

    def see(self, sample: Sample) -> None:
        """A request that is over: how long a token may be waited for."""
        if sample.ok and sample.measured:
            begun = sample.last if sample.first is None else sample.first
            waits = (0.0 if begun is None else begun - sample.sent, max(sample.gap_list(), default=0) / 1e6)
            self._longest = max(self._longest, *waits)

    def judged(self, sample: Sample) -> Sample:
        """`sample`, a timeout instead of incomplete where it is one."""
        silent = sample.end - (sample.sent if sample.last is None else sample.last)
        patience = max(self._grace, LEAST, USUAL * self._longest)
        if sample.outcome != INCOMPLETE or sample.finish or silent < patience:
            return sample
        what = "no token" if sample.last is None else "no further token"
        return replace(sample, outcome=TIMEOUT, error=f"{what} in {silent:.3g} s, when the run ended (-d and --grace)")
