"""Starts the processes of tasks by forking one process that has loaded the program already.

Each process of a task would otherwise load more than a hundred megabytes for itself, for seconds. The spawner is a
process of its own, with a single Python thread, so that a fork of it is sound. It ends with its service; the tasks do
not: each has a session of its own, and the next service has a spawner of the program as it is then.
"""

from __future__ import annotations

import os
import select
import socket
import subprocess
import sys
from collections.abc import Sequence
from typing import Final

import structlog

from pidts.forked import Forker, channel
from pidts.relay.permissions import private_opener
from pidts.service.starter import NewProgram, Started, output_file
from pidts.service.state_folder import TaskFolder

_log = structlog.get_logger(__name__)

SPAWNER: Final = "pidts.cli.service.spawner"
_END_SECONDS: Final = 5.0


class Spawner:
    """The starter that asks the spawner: starts wait until that has loaded the program, and do without it if it dies.

    Only the thread of the supervisor uses it.
    """

    def __init__(self) -> None:
        self._ours, theirs = channel()
        self._process: subprocess.Popen[bytes] | None = None
        self._forker: Forker | None = None
        with theirs:
            try:
                self._process = subprocess.Popen(
                    [sys.executable, "-m", SPAWNER, str(theirs.fileno())],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    pass_fds=[theirs.fileno()],
                    cwd="/",
                    start_new_session=True,
                    # Threads of a library for matrices, which nobody uses here, would not survive a fork.
                    env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
                )
            except OSError as error:
                _log.warning("tasks do not share memory: the spawner cannot be started", cause=str(error))

    def __call__(self, folder: TaskFolder, tables: Sequence[str]) -> Started | None:
        """Returns the process of a task; None while the spawner loads the program: ask again."""
        if self._process is not None and self._forker is None:
            if not select.select([self._ours], [], [], 0)[0]:
                return None
            if _is_ready(self._ours):
                self._forker = Forker(self._ours)
            else:
                self._lost()
        if self._forker is None:
            return NewProgram()(folder, tables)
        with open(output_file(folder), "ab", opener=private_opener) as output:
            child = self._forker.fork("pidts-task", [str(folder.path), *tables], output.fileno(), output.fileno())
        if child is None:
            self._lost()
            return NewProgram()(folder, tables)
        return child

    def close(self) -> None:
        """Lets the spawner end."""
        self._ours.close()
        if self._process is not None:
            try:
                self._process.wait(_END_SECONDS)
            except subprocess.TimeoutExpired:  # it may still load the program; the tasks are processes of their own
                self._process.kill()
                self._process.wait()

    def _lost(self) -> None:
        """From now on, each task loads the program for itself."""
        _log.warning("the spawner is lost; tasks are started one by one, and share no memory")
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._process = self._forker = None


def _is_ready(answers: socket.socket) -> bool:
    try:
        return bool(answers.recv(16))
    except OSError:
        return False
