"""The program of one task of a service: `python -m pidts.cli.service.task_process FOLDER`.

The program takes the task's lock, records its process id, and runs the task until a signal stops it. At the end, it
records how the task has ended. If the service is killed, the program continues, and the next service finds this process
by the lock.
"""

from __future__ import annotations

import os
import secrets
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from threading import Event
from typing import Any

import structlog

from pidts.cli.errors import as_unexpected
from pidts.cli.log_options import choose, set_up_logs
from pidts.cli.signals import RUN_ENDS_WITHIN, run_until_stopped
from pidts.forked import Forker
from pidts.hidden_modules import hide_modules
from pidts.model import Halted, PidtsError, ServerDown
from pidts.process_end import end_process
from pidts.service.process_lock import take_lock
from pidts.service.state_folder import TaskFolder

_log = structlog.get_logger(__name__)

ALL_TABLES = "*"


def main(arguments: Sequence[str], replicators: Forker | None = None) -> int:
    """Runs the task of a folder, and returns the exit code.

    `arguments` are the folder, and the tables to copy again. `replicators` forks the task's replicators. Without it,
    each replicator is a new program.
    """
    folder, resync = TaskFolder(Path(arguments[0])), arguments[1:]
    if not take_lock(folder.lock):
        return 0  # another process runs the task, and the service finds that process by the lock
    run = secrets.token_hex(8)
    folder.write("process", {"run": run, **_identity()})
    choose("", "json", folder.log)
    set_up_logs()
    ended: dict[str, Any] = {}
    try:
        run_until_stopped(
            lambda stop: ended.update(_run(folder, run, resync, stop, replicators)), ends_within=RUN_ENDS_WITHIN
        )
    except PidtsError as error:
        ended = {
            "exit_code": error.exit_code,
            "error": error.to_json(),
            "may_pass": _may_pass(error),
        }
    except BaseException as error:  # noqa: BLE001 - it is written down, and the process ends
        unexpected = (
            as_unexpected(error, debug=True)
            if isinstance(error, Exception)
            else PidtsError("unexpected", str(error), todo="The log of the task contains the traceback")
        )
        ended = {"exit_code": PidtsError.exit_code, "error": unexpected.to_json()}
    if ended.get("error"):
        _log.error("the task has ended with an error", **ended["error"])
    else:
        _log.info("the task has ended", stage=ended["stage"])
    folder.write("ended", {"run": run, "at": time.time(), **ended})
    return int(ended["exit_code"])


def _may_pass(error: PidtsError) -> bool:
    """Whether another start may succeed without a change of the task."""
    from pidts.task.run.cutover_under_way import CutoverUnderWay

    return isinstance(error, ServerDown | CutoverUnderWay)


def _run(
    folder: TaskFolder, run: str, resync: Sequence[str], stop: Event, replicators: Forker | None
) -> dict[str, Any]:
    from pidts.service.task_report import facts_of, reported
    from pidts.task.config.task_file import load_parts
    from pidts.task.run.task_run import run_task

    parts = load_parts(folder.task_file)
    if parts[0].name != folder.name:
        raise _other_name(folder, parts[0].name)
    tables = None if not resync else () if ALL_TABLES in resync else tuple(resync)
    _log.info("the task begins", task=folder.name, process=os.getpid())
    with reported(folder, run, facts_of(parts)) as view:
        summary = run_task(
            parts, until_synced=False, stop=stop, on_progress=view, resync=tables, replicators=replicators
        )
        view(summary)
    is_halted = summary.stage == "halted"
    return {"exit_code": Halted.exit_code if is_halted else 0, "stage": summary.stage, "error": None}


def _other_name(folder: TaskFolder, name: str) -> PidtsError:
    from pidts.model import ConfigError, Where

    return ConfigError(
        "task-renamed",
        f"the task file names the task {name}, but its name in the service is {folder.name}",
        where=Where(file=str(folder.task_file)),
        todo="Give the task its former name in the file, or remove the task from the service and add the file again",
    )


def _identity() -> dict[str, Any]:
    """Returns this process's id and its start time, for the operator. The service finds the process by the lock."""
    stat = Path("/proc/self/stat").read_text("utf-8").rpartition(")")[2].split()
    boot = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    return {"process": os.getpid(), "started_ticks": int(stat[19]), "boot": boot, "began": time.time()}


if __name__ == "__main__":
    hide_modules()
    end_process(main(sys.argv[1:]))
