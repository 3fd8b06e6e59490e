"""Freed memory is kept for the next prompt (decision 0009)."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

PROMPTS = """
import resource, sys
from infera_cli.wiring.allocator import keep_freed_memory

if sys.argv[1] == "kept":
    assert keep_freed_memory()
bytearray(b"x") * (1 << 20)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(200):
    bytearray(b"x") * (1 << 20)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def page_faults(how: str) -> int:
    """Of 200 prompts of a megabyte, one after the other."""
    asked = subprocess.run([sys.executable, "-c", PROMPTS, how], capture_output=True, text=True, check=True)
    return int(asked.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the allocator of another C library")
def test_a_prompt_gets_the_memory_of_the_one_before() -> None:
    """Told to keep what is freed, the allocator asks the system for next to nothing while prompts come and go."""
    assert page_faults("kept") * 10 < page_faults("as it is")
