"""What the end of a run makes of a request that is still open.

The end is nobody's failure: an answer that is coming is cut off with its tokens, and so is a request that was sent a
moment before (R158). But who got nothing for as long as the run waits for anybody (`--grace`) has timed out. If that
were no failure, a server that hangs would have no bad figure at all: those it still answers are fast.
"""

from __future__ import annotations

from msgspec.structs import replace

from infera_cli.workload.sample import INCOMPLETE, Sample

TIMEOUT = "timeout_run_end"
"""The class of such a failure."""

LEAST = 1.0     # seconds: who got nothing for less was sent a moment before


class RunEnd:
    """Judges the requests of one load process; `grace` in seconds. Without `stream` nothing comes before all does."""

    def __init__(self, grace: float, *, stream: bool = True) -> None:
        self._grace, self._stream = grace, stream
        self._longest = 0.0

    def see(self, sample: Sample) -> None:
        """A request was answered: how long that may take."""
        begun = sample.last if sample.first is None else sample.first
        if sample.ok and begun is not None:
            self._longest = max(self._longest, begun - sample.sent)

    @property
    def patience(self) -> float:
        """Seconds without a token from which on a request has timed out.

        Where the grace is too short to tell anything, or answers come whole, the slowest that came says what is long.
        """
        if self._stream and self._grace >= LEAST:
            return self._grace
        return max(self._grace, LEAST, self._longest)

    def judged(self, sample: Sample) -> Sample:
        """`sample`, a timeout instead of incomplete where it is one."""
        if sample.outcome != INCOMPLETE:
            return sample
        silent = sample.end - (sample.sent if sample.last is None else sample.last)
        if silent < self.patience:
            return sample
        what = "no token" if sample.last is None else "no further token"
        return replace(sample, outcome=TIMEOUT, error=f"{what} in {silent:.3g} s, when the run ended (-d and --grace)")
