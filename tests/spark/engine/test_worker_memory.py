"""A worker uses a copy's memory again, and gives it back at the end.

The test runs in a process of its own, whose memory no other code uses.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

_WORK = """
import resource
import numpy
from pidts.spark.worker_memory import memory_kept

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):
        numpy.ones(12 << 20, numpy.uint8)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()

faults()
given_back = faults()
with memory_kept():
    faults()
    kept = faults()
    while_kept = resident()
behind = resident()
faults()
print(given_back, kept, faults(), while_kept - behind)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="it is glibc's memory that is kept")
def test_within_memory_is_used_again_and_at_the_end_given_back() -> None:
    env = {**os.environ, "MALLOC_MMAP_THRESHOLD_": str(4 << 20), "NUMPY_MADVISE_HUGEPAGE": "0"}
    done = subprocess.run([sys.executable, "-c", _WORK], env=env, check=True, capture_output=True, text=True)
    given_back, kept, behind, freed = map(int, done.stdout.split())

    assert given_back > 1_000, "else there is nothing to keep"
    assert kept < given_back / 10
    assert behind > given_back / 2
    assert freed > 8 << 20
