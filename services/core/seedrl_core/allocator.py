"""How the C library treats memory that was freed: it keeps it for the next message instead of giving it back."""

from __future__ import annotations

import ctypes

# Numbers of mallopt(3) in glibc.
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
# Largest block that comes from the heap; the most that glibc allows.
_HEAP_BLOCK_BYTES = 32 << 20
# Most free memory kept at the end of a heap.
_KEPT_BYTES = 256 << 20


def keep_freed_memory() -> None:
    """Makes malloc keep what a service frees, up to 256 MiB a heap; without effect where the C library is not glibc.

    A tick of many images is some hundred KiB. By default such a block is mapped when a message arrives and unmapped
    when it is done, and the page faults in between cost more than all copies of the message together.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return
    mallopt(_M_MMAP_THRESHOLD, _HEAP_BLOCK_BYTES)
    mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)
