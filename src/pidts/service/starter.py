"""Starts the process of a task in a session of its own. So it does not end with the service or with its terminal."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from pidts.relay.permissions import private_opener
from pidts.service.state_folder import TaskFolder

PROGRAM: Final = "pidts.cli.service.task_process"
_MOST_OUTPUT: Final = 1 << 20


class StartedProcess(Protocol):
    """A process that this service has started."""

    @property
    def pid(self) -> int:
        """The process id."""
        ...

    def poll(self) -> int | None:
        """Returns the exit code; None while the process lives."""
        ...


class Starter(Protocol):
    """Starts processes of tasks."""

    def __call__(self, folder: TaskFolder, tables: Sequence[str]) -> StartedProcess | None:
        """Starts a task, which copies `tables` again. None: this is not possible yet, and the caller calls again."""
        ...


@dataclass(frozen=True, slots=True)
class NewProgram:
    """Starts a new Python interpreter for each task."""

    def __call__(self, folder: TaskFolder, tables: Sequence[str]) -> StartedProcess:
        """Starts the process, which writes its log itself. Other output, such as tracebacks, goes to `output_file`."""
        with open(output_file(folder), "a", encoding="utf-8", opener=private_opener) as output:
            return subprocess.Popen(
                [sys.executable, "-m", PROGRAM, str(folder.path), *tables],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd="/",
                start_new_session=True,
            )


def output_file(folder: TaskFolder) -> Path:
    """Returns the file for the output of a task's process. If the file is too long, it is renamed first."""
    path = folder.path / "output.txt"
    if path.exists() and path.stat().st_size > _MOST_OUTPUT:
        path.replace(path.with_name("output.1.txt"))
    return path
