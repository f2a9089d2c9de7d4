"""A process that ends while it starts a JVM leaves no JVM behind, since the JVM has the lock of a publication."""

from __future__ import annotations

import fcntl
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pidts.owned_folder import owned_folder

pytestmark = pytest.mark.spark

PROGRAM = """
import fcntl, sys, threading, time
from pathlib import Path
from pidts.spark.metastore import metastore

def publish():
    with open(sys.argv[1], "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        print("begins", flush=True)
        with metastore("", Path(sys.argv[2]), lock.fileno()):
            time.sleep(100)

threading.Thread(target=publish, daemon=True).start()
sys.stdin.readline()
"""


@pytest.mark.parametrize("is_killed", [False, True])
@pytest.mark.parametrize("after", [0.1, 1.0])
def test_no_jvm_keeps_the_lock_of_a_publication(tmp_path: Path, after: float, *, is_killed: bool) -> None:
    lock = tmp_path / "lock"
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(lock), str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "begins\n"
        time.sleep(after)
        if is_killed:
            process.send_signal(signal.SIGKILL)
        process.stdin.close()
        process.wait(60)
    with owned_folder("next"):  # the next process removes what killed processes have left
        pass
    with lock.open("r+") as file:
        until = time.monotonic() + 60
        while not is_free(file.fileno()):
            assert time.monotonic() < until
            time.sleep(0.1)


def is_free(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
