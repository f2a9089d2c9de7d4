"""Starts the processes of tasks by forking one process that has loaded the program already.

Each process of a task would otherwise load more than a hundred megabytes for itself, for seconds. The spawner is a
process of its own, with a single Python thread, so that a fork of it is sound. It ends with its service; the tasks do
not: each has a session of its own, and the next service has a spawner of the program as it is then.
"""

from __future__ import annotations

import json
import os
import select
import socket
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

import structlog

from pidts.service.starter import NewProgram, Started, output_file
from pidts.service.state_folder import TaskFolder

_log = structlog.get_logger(__name__)

SPAWNER: Final = "pidts.cli.service.spawner"
_ANSWER_SECONDS: Final = 10.0
_END_SECONDS: Final = 5.0


@dataclass(slots=True)
class Spawned:
    """A process of a task that the spawner has forked: its end is seen by a descriptor, its exit code is asked for."""

    pid: int
    spawner: Spawner
    process: int = field(init=False, default=-1)
    code: int | None = None

    def __post_init__(self) -> None:
        with suppress(ProcessLookupError):
            self.process = os.pidfd_open(self.pid)

    def poll(self) -> int | None:
        """Returns the exit code, below zero for a signal; None while it lives."""
        if self.code is None and (self.process < 0 or select.select([self.process], [], [], 0)[0]):
            answer = self.spawner.ask({"ended": self.pid})
            found = (answer or {}).get("code")
            self.code = found if isinstance(found, int) else 0
            if self.process >= 0:
                os.close(self.process)
                self.process = -1
        return self.code


class Spawner:
    """The starter that asks the spawner: starts wait until that has loaded the program, and do without it if it dies.

    Only the thread of the supervisor uses it.
    """

    def __init__(self) -> None:
        self._ours, theirs = socket.socketpair()
        self._process: subprocess.Popen[bytes] | None = None
        self._lines = b""
        self._is_ready = False
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
        self._ours.settimeout(_ANSWER_SECONDS)

    def __call__(self, folder: TaskFolder, tables: Sequence[str]) -> Started | None:
        """Returns the process of a task; None while the spawner loads the program: ask again."""
        if self._process is None:
            return NewProgram()(folder, tables)
        if not self._is_ready:
            if not select.select([self._ours], [], [], 0)[0]:
                return None
            self._is_ready = self._answer() is not None
        answer = self.ask({"folder": str(folder.path), "output": str(output_file(folder)), "tables": list(tables)})
        if answer is not None and isinstance(answer.get("error"), int):
            raise OSError(answer["error"], os.strerror(answer["error"]))
        if answer is None or not isinstance(answer.get("pid"), int):
            return NewProgram()(folder, tables)
        return Spawned(answer["pid"], self)

    def ask(self, question: dict[str, Any]) -> dict[str, Any] | None:
        """Returns the spawner's answer; None if it has died."""
        if self._process is None:
            return None
        try:
            self._ours.sendall(json.dumps(question).encode() + b"\n")
        except OSError:
            self._lost()
            return None
        return self._answer()

    def close(self) -> None:
        """Lets the spawner end."""
        self._ours.close()
        if self._process is not None:
            try:
                self._process.wait(_END_SECONDS)
            except subprocess.TimeoutExpired:  # it may still load the program; the tasks are processes of their own
                self._process.kill()
                self._process.wait()

    def _answer(self) -> dict[str, Any] | None:
        while b"\n" not in self._lines:
            try:
                data = self._ours.recv(4096)
            except OSError:
                data = b""
            if not data:
                self._lost()
                return None
            self._lines += data
        line, _, self._lines = self._lines.partition(b"\n")
        found = json.loads(line)
        return found if isinstance(found, dict) else None

    def _lost(self) -> None:
        """From now on, each task loads the program for itself."""
        _log.warning("the spawner is lost; tasks are started one by one, and share no memory")
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._process = None
