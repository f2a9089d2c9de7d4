"""Keeps the files of servers and tests in memory during a run, if the machine has enough memory.

A run writes 25 GB, and removes nearly all of it after seconds. On a disk, the kernel writes much of it in the meantime,
and everything that makes its files durable waits for the disk: relays, warehouses, schema changes.

`TMPDIR` says where these files are, for this process and all that it starts. If it is set already, it is not changed.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from contextlib import ExitStack
from pathlib import Path

import pytest

from pidts.owned_folder import owned_folder

MEMORY = Path("/dev/shm")
ROOM = 8 << 30
"""The free bytes that the file system in memory must have."""
AVAILABLE = 16 << 30
"""The bytes of memory that must be free: servers, programs and Spark need most of them."""


class FilesInMemory:
    """Makes a folder in memory for the files of a run, and removes it at the end. The files of failed tests are kept in
    the usual folder.
    """

    def __init__(self) -> None:
        self._usual = tempfile.gettempdir()
        self._folder: Path | None = None
        self._made = ExitStack()
        if "TMPDIR" not in os.environ and is_enough(MEMORY):
            self._begin()

    def _begin(self) -> None:
        tempfile.tempdir = str(MEMORY)
        self._folder = self._made.enter_context(owned_folder("tests"))
        self._folder.chmod(0o711)  # PostgreSQL's user enters this folder.
        os.environ["TMPDIR"] = tempfile.tempdir = str(self._folder)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter, exitstatus: int) -> None:
        if self._folder is None or exitstatus == pytest.ExitCode.OK:
            return
        left = [
            folder
            for folder in self._folder.glob("pytest-of-*/pytest-[0-9]*")
            if any(path.is_file() for path in folder.rglob("*"))
        ]
        if left:
            kept = tempfile.mkdtemp(prefix="pidts-failed-tests-", dir=self._usual)
            subprocess.run(["cp", "-a", "--sparse=always", *map(str, left), kept], check=False)
            terminalreporter.write_line(f"The files of failed tests were in {left[0].parent} and are now in {kept}")

    def pytest_unconfigure(self) -> None:
        if self._folder is not None:
            del os.environ["TMPDIR"]
            tempfile.tempdir = None
            self._made.close()


def is_enough(memory: Path) -> bool:
    """Returns whether there is a file system in memory that has room and lets programs run, and whether enough memory
    is free.
    """
    try:
        found = os.statvfs(memory)
        lines = Path("/proc/meminfo").read_text("ascii").splitlines()
    except OSError:
        return False
    (free,) = (int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:"))
    return found.f_bavail * found.f_frsize >= ROOM and not found.f_flag & os.ST_NOEXEC and free >= AVAILABLE
