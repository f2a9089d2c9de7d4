"""A process ends with its exit handlers and its output, and does not free its objects one by one."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import atexit, os, signal, sys, threading, time
from pidts.process_end import end_process

class Freed:
    def __del__(self):
        print("freed")

def later():
    time.sleep(0.2)
    print("the thread has ended")

kept = Freed()
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell starts background programs without it
atexit.register(print, "an exit handler")
if sys.argv[1] == "thread":
    threading.Thread(target=later).start()
if sys.argv[1] == "interrupted":
    threading.Thread(target=time.sleep, args=(60,)).start()
    threading.Timer(0.5, os.kill, [os.getpid(), signal.SIGINT]).start()
end_process(7)
"""


@pytest.mark.parametrize(
    ("case", "says"),
    [
        ("alone", "an exit handler\n"),
        ("thread", "the thread has ended\nan exit handler\n"),
        ("interrupted", "an exit handler\n"),
    ],
)
def test_threads_and_exit_handlers_end_and_objects_stay(case: str, says: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, case], capture_output=True, text=True, timeout=30, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (7, says, "")


def test_a_reader_who_has_gone_does_not_change_the_exit_code() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, "thread"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.wait(30) == 7
