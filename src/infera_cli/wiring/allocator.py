"""How the C library's allocator is to treat prompts, which are large and short-lived.

Left alone it gives each back to the system at once and asks for the next one again, page by page: half of the CPU
time that a prompt of some hundred kilobytes costs.
"""

from __future__ import annotations

import ctypes
from typing import Final

_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3

KEPT_BYTES: Final = 16 << 20
"""Freed memory at the top of the heap that is kept for what comes next."""
MAPPED_BYTES: Final = 4 << 20
"""From this size on, memory is still the system's the moment it is free."""
INDEX_KEPT_BYTES: Final = 64 << 20
INDEX_MAPPED_BYTES: Final = 32 << 20
"""The same where caches are watched: maps of blocks are made anew whenever they are full of what came and went, and
memory that must be fetched page by page would hold up everybody for that long."""


def keep_freed_memory(kept: int = KEPT_BYTES, mapped: int = MAPPED_BYTES) -> bool:
    """Keep some freed memory for the next prompt; False where the C library cannot be told (it is not glibc)."""
    try:
        tell = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    return bool(tell(_M_MMAP_THRESHOLD, mapped) and tell(_M_TRIM_THRESHOLD, kept))
