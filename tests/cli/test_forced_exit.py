"""A process that does not end after a signal, whatever it waits for, is killed with all processes that it started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

PROGRAM = """
import ctypes, subprocess, threading, time
from pidts.cli import forced_exit
from pidts.cli.signals import run_until_stopped

forced_exit._SPARE_SECONDS = 1.0

def a_statement_without_end():
    {waits}

def work(stop):
    child = subprocess.Popen(["sleep", "60"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    print(child.pid, flush=True)
    stop.wait()
    a_statement_without_end()

run_until_stopped(work, ends_within=1.0)
"""


@pytest.mark.parametrize(
    ("waits", "python_runs"),
    [("threading.Event().wait()", True), ("ctypes.PyDLL(None).sleep(1000)", False)],
    ids=["a call without end", "a call that keeps the interpreter's lock"],
)
def test_a_command_whose_work_does_not_end_is_ended_with_all_that_it_has_started(
    waits: str, *, python_runs: bool
) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM.format(waits=waits)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        child = int(process.stdout.readline())
        began = time.monotonic()
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=60)
    assert process.returncode == 1
    assert time.monotonic() - began > 0.9
    if python_runs:
        assert "[not-ended]" in said
        assert "a_statement_without_end" in said, "the log says what it waited for"
        assert _ends(child)


def _ends(pid: int) -> bool:
    """Waits until the killed process has ended: the kernel ends it after the signal, not during it."""
    end = time.monotonic() + 10
    while _lives(pid) and time.monotonic() < end:
        time.sleep(0.01)
    return not _lives(pid)


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_command_that_ends_in_time_ends_as_usual() -> None:
    program = PROGRAM.format(waits="return").replace("ends_within=1.0", "ends_within=30.0")
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        child = int(process.stdout.readline())
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
    assert _lives(child)
    os.kill(child, signal.SIGKILL)


def test_a_second_ctrl_c_ends_the_process_at_once_with_a_last_line() -> None:
    program = (
        "import threading\n"
        "from pidts.cli.signals import run_until_stopped\n"
        "def work(stop):\n"
        "    print('begun', flush=True)\n"
        "    threading.Event().wait()\n"
        "run_until_stopped(work, at_once='see what is left')\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == "begun\n"
        process.send_signal(signal.SIGINT)
        assert process.stderr.readline() == "\n"
        assert "press Ctrl-C again" in process.stderr.readline()
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
    assert process.returncode == 1
    assert said.splitlines()[-1] == "see what is left"


RUN = """
import signal, sys
from pidts.cli.program import end_at_once_on_signals
from pidts.cli.signals import run_until_stopped

end_at_once_on_signals(0)
run_until_stopped(lambda stop: None, ends_within=60.0)
print("work done", flush=True)
sys.stdin.readline()
print("cleaned up", flush=True)
sys.exit(7)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_after_the_work_interrupts_no_clean_up_and_changes_no_exit_code(number: signal.Signals) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", RUN], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == "work done\n"
        process.send_signal(number)
        assert process.stderr.readline() == "\n"
        assert process.stderr.readline().startswith("the work has ended; the command ends after its clean-up")
        said, _ = process.communicate("go on\n", timeout=60)
    assert (process.returncode, said) == (7, "cleaned up\n")
