"""Processes are forked on request from a process without threads, and end with it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

PROGRAM = """
import json, os, sys, time
import pidts.forked
from pidts.forked import end_with_parent, fork_forker

pidts.forked._ANSWER_SECONDS = 2.0

def run(forker, arguments):
    end_with_parent(forker)
    print(arguments[0], flush=True)
    if arguments[0] == "long":
        time.sleep(60)
    if arguments[0] == "broken":
        raise ConnectionResetError("in the child")
    return 3

forker = fork_forker("the-forker", run)
for line in sys.stdin:
    word = line.strip()
    reading, writing = os.pipe()
    child = forker.fork("a-child", [word], writing, 2)
    os.close(writing)
    with os.fdopen(reading, "rb") as output:
        said = output.readline().decode() if child else ""
    found = {"pid": child and child.pid, "said": said}
    if word in ("short", "broken"):
        found["code"] = child.wait(10)
    print(json.dumps(found), flush=True)
"""


class Parent:
    """A process with a forker."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def ask(self, word: str) -> dict[str, object]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{word}\n")
        self.process.stdin.flush()
        found = json.loads(self.process.stdout.readline())
        assert isinstance(found, dict)
        return found


@pytest.fixture
def parent() -> Iterator[Parent]:
    found = Parent()
    yield found
    found.process.kill()
    found.process.communicate()


def field(pid: int, number: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[number]


def ends(pid: int) -> None:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        try:
            if field(pid, 0) == "Z":
                return
        except OSError:
            return
        time.sleep(0.02)
    raise AssertionError(f"process {pid} has not ended")


def test_a_forked_process_says_what_it_has_to_say_and_how_it_ends(parent: Parent) -> None:
    found = parent.ask("short")
    assert (found["said"], found["code"]) == ("short\n", 3)
    other = parent.ask("long")["pid"]
    assert isinstance(other, int)
    assert Path(f"/proc/{other}/comm").read_text() == "a-child\n"
    assert os.getsid(other) == other


def test_all_end_with_their_parent(parent: Parent) -> None:
    child = parent.ask("long")["pid"]
    assert isinstance(child, int)
    forker = int(field(child, 1))
    assert Path(f"/proc/{forker}/comm").read_text() == "the-forker\n"
    parent.process.kill()
    ends(forker)
    ends(child)


def test_a_forker_that_is_killed_takes_its_children_along_and_is_known_to_be_lost(parent: Parent) -> None:
    child = parent.ask("long")["pid"]
    assert isinstance(child, int)
    os.kill(int(field(child, 1)), signal.SIGKILL)
    ends(child)
    assert parent.ask("long") == {"pid": None, "said": ""}


def test_an_error_of_a_forked_process_does_not_affect_its_forker(parent: Parent) -> None:
    assert parent.ask("broken")["code"] == 1
    assert parent.ask("short")["code"] == 3


def test_a_forker_that_answers_too_late_is_lost_and_ends_with_what_it_has_forked(parent: Parent) -> None:
    child = parent.ask("long")["pid"]
    assert isinstance(child, int)
    forker = int(field(child, 1))
    os.kill(forker, signal.SIGSTOP)
    assert parent.ask("long") == {"pid": None, "said": ""}
    os.kill(forker, signal.SIGCONT)
    ends(forker)
    ends(child)
