"""What a load process says of itself while it runs, and how busy it is."""

from __future__ import annotations

import statistics
from collections import deque
from time import perf_counter, process_time

from infera_cli.loadtest.job import Progress
from infera_cli.workload.sample import UNSENT, Sample

RECENT = 200
CPU_WINDOW = 5.0    # seconds over which a process counts as busy
SHORTEST = 1.0      # a shorter span counts as this long: a few busy milliseconds are no load that was too much


class Meter:
    """Watches samples and the clock; `progress` is cheap enough for twice a second."""

    def __init__(self) -> None:
        self._ttfts: deque[float] = deque(maxlen=RECENT)
        self._now = Progress()
        self._marks: deque[tuple[float, float]] = deque([(perf_counter(), process_time())])
        self._begin = self._marks[0]

    def restart(self) -> None:
        """The measured part begins: forget the CPU time of getting ready."""
        self._marks = deque([(perf_counter(), process_time())])
        self._begin = self._marks[0]
        self._now.cpu_max = 0.0

    def see(self, sample: Sample) -> None:
        """One request is over."""
        if not sample.measured or sample.outcome == UNSENT:
            return
        now = self._now
        now.sent += 1
        now.done += sample.ok
        now.failed += sample.failed
        now.tokens += sample.tokens()[0]
        now.lag = max(now.lag, sample.sent - sample.due)
        if sample.first is not None and sample.ok:
            self._ttfts.append(sample.first - sample.sent)

    def progress(self, state: str, opened: int) -> Progress:
        """The state of things; `opened` requests are going on."""
        now = self._now
        now.state, now.open = state, opened
        now.ttft = statistics.median(self._ttfts) if self._ttfts else None
        wall, cpu = perf_counter(), process_time()
        self._marks.append((wall, cpu))
        while len(self._marks) > 2 and wall - self._marks[1][0] >= CPU_WINDOW:
            self._marks.popleft()
        since, used = self._marks[0]
        now.cpu = (cpu - used) / max(wall - since, SHORTEST)
        if wall - since >= CPU_WINDOW * 0.9 or state != "running":
            now.cpu_max = max(now.cpu_max, now.cpu)
        now.cpu_mean = (cpu - self._begin[1]) / max(wall - self._begin[0], SHORTEST)
        return now
