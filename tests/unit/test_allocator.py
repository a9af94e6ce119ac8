"""Freed memory is kept: messages of hundreds of KiB cause no page faults once the first ones have come and gone."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import ctypes, resource
from seedrl_core.allocator import keep_freed_memory
keep_freed_memory()
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_size_t], [ctypes.c_void_p]
def pass_message(size=600_000):
    block = libc.malloc(size)
    ctypes.memset(block, 1, size)
    libc.free(block)
pass_message()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(100):
    pass_message()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the setting is glibc's")
def test_a_block_that_comes_again_is_resident() -> None:
    """A hundred blocks of 600 kB, one after the other, touch no new page; without the setting they touch 14,600."""
    run = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, timeout=60)
    assert int(run.stdout) < 100
