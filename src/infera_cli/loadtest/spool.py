"""Spool files read back: samples of all processes, in the order in which they ended."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from pathlib import Path

from infera_cli.workload.sample import Sample, unpack_all

CHUNK = 1 << 20


def samples(spools: Sequence[Path]) -> Iterator[Sample]:
    """Merge samples, never averages (R173); memory does not grow with the length of the run."""
    readers = [unpack_all(_chunks(path)) for path in spools if path.exists()]
    return heapq.merge(*readers, key=lambda sample: sample.end)


def _chunks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            yield chunk
