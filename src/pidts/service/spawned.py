"""Starts the processes of tasks by forking one process, the spawner, which has loaded the program already.

Without the spawner, each process of a task would first load more than a hundred megabytes, which takes seconds. The
spawner has a single Python thread, so that forking it is safe.

The spawner ends with its service. The tasks continue, since each has a session of its own. The next service starts a
new spawner, with the version of the program that is then installed.

The spawner may hang or die. A separate thread sends the requests and waits for the answers, with a time limit. So the
supervisor never waits long. If the spawner is lost, it is killed and replaced. The tasks that it has forked continue,
and the service finds them by their locks.
"""

from __future__ import annotations

import os
import select
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import structlog

from pidts.forked import ForkedProcess, Forker, channel
from pidts.relay.permissions import private_opener
from pidts.service.starter import NewProgram, StartedProcess, output_file
from pidts.service.state_folder import TaskFolder

_log = structlog.get_logger(__name__)

SPAWNER: Final = "pidts.cli.service.spawner"
_END_SECONDS: Final = 5.0
_AT_ONCE_SECONDS: Final = 0.2
"""The supervisor waits this long for the spawner's answer. A fork takes only some milliseconds."""
_LONGEST_LOAD: Final = 1800.0
"""The longest time for which a spawner may load the program. The first load compiles the decoder, for minutes."""


@dataclass(slots=True)
class SpawnedProcess:
    """A process that the spawner has forked. Only the spawner can read its exit code."""

    forked: ForkedProcess
    asking: ThreadPoolExecutor
    """The thread that asks the spawner."""
    _code: Future[int | None] | None = None

    @property
    def pid(self) -> int:
        """The process id."""
        return self.forked.pid

    def poll(self) -> int | None:
        """Returns the exit code; None while the process lives, or the spawner has not answered yet."""
        if self._code is None:
            if not self.forked.has_ended:
                return None
            self._code = self.asking.submit(self.forked.poll)
            wait([self._code], _AT_ONCE_SECONDS)
        return self._code.result() if self._code.done() else None


class Spawner:
    """Starts tasks through the spawner, or without one as new programs. For the supervisor's thread only."""

    def __init__(self, seconds_between: float = 60.0) -> None:
        """Starts a spawner. If it ends, the next spawner is started after `seconds_between` at the earliest.

        Without this pause, a cause that ends each spawner would make the service start one spawner after the other.
        """
        self._seconds_between = seconds_between
        self._asking = ThreadPoolExecutor(1, thread_name_prefix="spawner")
        self._asked: dict[tuple[Path, tuple[str, ...]], Future[ForkedProcess | None]] = {}
        """The requested starts whose answers were not read yet."""
        self._process: subprocess.Popen[bytes] | None = None
        self._forker: Forker | None = None
        self._ours: socket.socket | None = None
        self._began = 0.0
        self._begin()

    def __call__(self, folder: TaskFolder, tables: Sequence[str]) -> StartedProcess | None:
        """Starts a task; returns its process. None: the spawner has not answered, and the caller has to call again."""
        what = folder.path, tuple(tables)
        asked = self._asked.get(what)
        if asked is None:
            if self._process is None and time.monotonic() - self._began >= self._seconds_between:
                self._begin()
            if self._process is None:
                return NewProgram()(folder, tables)
            if (forker := self._ready()) is None:
                return None
            asked = self._asked[what] = self._asking.submit(_forked, forker, folder, tables)
            wait([asked], _AT_ONCE_SECONDS)
        if not asked.done():
            return None
        del self._asked[what]
        child = asked.result()
        if child is None:
            if self._forker is not None and self._forker.is_lost:
                self._lost()
            return None
        return SpawnedProcess(child, self._asking)

    def close(self) -> None:
        """Lets the spawner end."""
        if self._ours is not None:
            _shut(self._ours)
        if self._process is not None:
            try:
                self._process.wait(_END_SECONDS)
            except subprocess.TimeoutExpired:  # it may still be loading the program; killing it does not end the tasks
                self._process.kill()
                self._process.wait()
        self._asking.shutdown(wait=True, cancel_futures=True)

    def _begin(self) -> None:
        self._began = time.monotonic()
        self._ours, theirs = channel()
        with theirs:
            try:
                self._process = subprocess.Popen(
                    [sys.executable, "-m", SPAWNER, str(theirs.fileno())],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    pass_fds=[theirs.fileno()],
                    cwd="/",
                    start_new_session=True,
                    # OpenBLAS would start threads, although the program does not use it. Threads do not survive a fork.
                    env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
                )
            except OSError as error:
                _shut(self._ours)
                _log.warning(
                    "tasks do not share memory: the process that forks them cannot be started", cause=str(error)
                )

    def _ready(self) -> Forker | None:
        """Returns the connection to the spawner; None while it loads the program, or if it is lost."""
        if self._forker is None and self._ours is not None:
            if select.select([self._ours], [], [], 0)[0]:
                if _is_ready(self._ours):
                    self._forker = Forker(self._ours)
                else:
                    self._lost()
            elif time.monotonic() - self._began > _LONGEST_LOAD:
                self._lost()
        return self._forker

    def _lost(self) -> None:
        """Ends the spawner. The tasks that it has forked continue. A later start of a task starts another spawner."""
        _log.warning("the process that starts tasks is lost, and another one is started; running tasks continue")
        if self._ours is not None:
            _shut(self._ours)
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._process = self._forker = self._ours = None


def _forked(forker: Forker, folder: TaskFolder, tables: Sequence[str]) -> ForkedProcess | None:
    with open(output_file(folder), "ab", opener=private_opener) as output:
        title = f"pidts-task {folder.name}"
        return forker.fork(title, [str(folder.path), *tables], output.fileno(), output.fileno())


def _is_ready(answers: socket.socket) -> bool:
    try:
        return bool(answers.recv(16))
    except OSError:
        return False


def _shut(channel: socket.socket) -> None:
    """Closes this process's end of the connection. A thread that waits for an answer is woken."""
    with suppress(OSError):
        channel.shutdown(socket.SHUT_RDWR)
    channel.close()
