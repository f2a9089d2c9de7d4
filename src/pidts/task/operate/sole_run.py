"""Lets one process at a time run a task on a machine; a second process gets an error that names the first.

Two runs would not damage the target: the second one claims the task, and the first one ends as `fenced`. But a user who
starts a run twice by mistake does not want the first one to end. If the first one is suspended (SIGSTOP, a frozen
container), another run may replace it.
"""

from __future__ import annotations

import fcntl
import os
import shlex
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import IO

import structlog

from pidts.model import PidtsError
from pidts.relay.permissions import make_folder, private_opener
from pidts.task.config.task_file import TaskConfig

_log = structlog.get_logger(__name__)


@contextmanager
def sole_run(config: TaskConfig) -> Iterator[None]:
    """Takes the task's lock, which the kernel releases when the process ends.

    Raises if another process has the lock, unless that process is suspended: then this run replaces it.
    """
    path = config.relay / f"{config.name}.run"
    try:
        make_folder(config.relay)
        file = open(path, "a+", encoding="ascii", opener=private_opener)  # noqa: SIM115 - closed below
    except OSError:
        yield  # the checks report the problem with the folder
        return
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            _refuse(config.name, path, _holder(path))
            with _lock_instead(path) or nullcontext():
                yield
            return
        file.truncate(0)
        with suppress(OSError):  # if the disk is full, only the process id is missing
            file.write(str(os.getpid()))
            file.flush()
        yield


def _lock_instead(path: Path) -> IO[str] | None:
    """Replaces the file that a suspended process has locked by a file that this process locks; returns the new file.

    Without the new file, a third run could get the lock when the suspended process ends. Returns None if the disk is
    full.
    """
    new = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        file = open(new, "w", encoding="ascii", opener=private_opener)  # noqa: SIM115 - the caller closes it
    except OSError:
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        file.write(str(os.getpid()))
        file.flush()
        new.replace(path)
    except OSError:
        file.close()
        with suppress(OSError):
            new.unlink()
        return None
    return file


def running_process(config: TaskConfig) -> int:
    """Returns the id of the process that runs the task on this machine; 0 if there is none.

    This function does not try to take the lock: a run that begins at this moment would mistake the caller for a run.
    """
    path = config.relay / f"{config.name}.run"
    holder = _holder(path)
    with suppress(OSError):
        if holder and any(one.samefile(path) for one in Path(f"/proc/{holder}/fd").iterdir() if one.exists()):
            return holder
    return 0


def has_run_here(config: TaskConfig) -> bool:
    """Whether a process has run the task on this machine."""
    return (config.relay / f"{config.name}.run").exists()


def _refuse(task: str, path: Path, holder: int) -> None:
    if holder and _is_stopped(holder):
        _log.warning("a suspended process runs this task, and this run replaces it", process=holder)
        return
    who = f"process {holder}" if holder else "another process"
    end = f"kill {holder}" if holder else f"fuser {path}"
    raise PidtsError(
        "already-running",
        f"{who} on this machine runs the task {task} already",
        todo=f"To see what the run does: pidts status TASK. To end the run at the end of a transaction: {end} "
        f"(where a service runs the task: pidts stop {shlex.quote(task)})",
    )


def _holder(path: Path) -> int:
    """Returns the id of the process that has the lock; 0 if the process has not written its id."""
    with suppress(OSError, ValueError):
        return int(path.read_text("ascii"))
    return 0


def _is_stopped(process: int) -> bool:
    with suppress(OSError, IndexError):
        # The name of the program is in parentheses, and may contain spaces.
        return Path(f"/proc/{process}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()[0] in {"T", "t"}
    return False
