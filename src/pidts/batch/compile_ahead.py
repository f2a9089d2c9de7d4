"""`python -m pidts.batch.compile_ahead`: compiles all functions, so that no first use waits for the compiler.

The command also removes the machine code of files that have changed since their compilation.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence

from pidts.binlog.machine_code import cache_folder, complete, is_complete, progress
from pidts.forked import end_with_parent

_PROGRAM = (sys.executable, "-m", "pidts.batch.compile_ahead")
_SAID_EVERY = 10.0


def compile_once(
    say: Callable[[str], object] = lambda _: None, *, program: Sequence[str] = _PROGRAM, every: float = _SAID_EVERY
) -> None:
    """Compiles all functions that are not compiled yet, in another process: the compiler does not free its memory.

    `say` receives a text about the progress of `program` after each `every` seconds.
    """
    if is_complete():
        return
    began = time.monotonic()
    with subprocess.Popen([*program, str(os.getpid())], stdin=subprocess.DEVNULL) as process:
        while True:
            try:
                process.wait(every)
                return
            except subprocess.TimeoutExpired:
                say(f"compiling for {time.monotonic() - began:.0f} s: {progress()}")


def _compile_all() -> None:
    # Some functions are compiled when their modules are loaded.
    import numpy as np
    import pyarrow as pa

    from pidts.binlog import LogWalker
    from pidts.binlog.blocks.header_times import HeaderTimes
    from pidts.binlog.kernel.payloads import UnpackedTransactions
    from pidts.replicate.warm import warm
    from pidts.target.postgres.encode.block import block

    warm()
    # Few tasks use the following functions, so `warm` does not load them.
    HeaderTimes().read(b"\0", 0, LogWalker("bin.000001"), -1)
    UnpackedTransactions.of(memoryview(b"\0"), 0, 0)
    block([(pa.array([1]), np.array([1], ">i8"))])


def _sweep() -> None:
    """Removes machine code that was compiled from earlier versions of the files."""
    here = cache_folder()
    for folder in here.parent.glob("compiled-*"):
        if folder != here:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C ends this process without a traceback
    if len(sys.argv) > 1:
        end_with_parent(int(sys.argv[1]))
    complete(_compile_all)
    _sweep()
