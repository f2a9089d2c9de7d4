"""The state of one task in the service: its folder, its process, the last report, and the end of the last process."""

from __future__ import annotations

import json
import signal
import time
from dataclasses import dataclass, field
from typing import Any, Final

import structlog

from pidts.model import PidtsError
from pidts.service.lag_curve import LagCurve
from pidts.service.next_action import HEALTHY_SECONDS, ProcessEnd, TaskStage, pause_before, task_stage
from pidts.service.process_lock import holder_of, signal_holder
from pidts.service.starter import StartedProcess, Starter
from pidts.service.state_folder import TaskFolder, WantedState, Wish

_log = structlog.get_logger(__name__)

_MOST_LOG: Final = 10 << 20
_LOGS: Final = 3
"""The largest number of a task's older logs that are kept."""
_TOO_LONG: Final = 30.0
"""A process that still runs this many seconds after it was asked to stop is asked again."""


@dataclass(slots=True)
class WatchedTask:
    """One task of the service, with its process. Callers hold the supervisor's lock, since the class has none."""

    folder: TaskFolder
    wanted: WantedState
    facts: dict[str, Any] = field(default_factory=dict)
    report: dict[str, Any] = field(default_factory=dict)
    """The last report of a process of the task. It is emptied when the service starts a process."""
    process: int | None = None
    ended: ProcessEnd | None = None
    restarts: int = 0
    next_start: float | None = None
    """The time of the next start, by the monotonic clock."""
    history: LagCurve = field(default_factory=LagCurve)
    stage: TaskStage = "starting"
    since: float = 0.0
    version: int = 0
    """A number that rises with every change that a reader of the task would see."""
    waits_for_program: bool = False
    """Whether the task's process cannot be started yet, because the spawner is still loading the program."""
    _child: StartedProcess | None = None
    _was_alive: bool = False
    _alive_since: float = 0.0
    _asked: tuple[int, float] = (0, 0.0)
    """The process that was asked to stop, and the time of the request."""
    _report_at: int = 0

    @classmethod
    def found(cls, folder: TaskFolder, now: float) -> WatchedTask:
        """Returns the task of a folder. Its process may already live."""
        task = cls(folder, folder.wanted(), history=LagCurve(folder.read("history"), time.time()))
        task.facts = folder.read("facts") or {}
        process, ended = folder.read("process"), folder.read("ended")
        if ended is not None and (process is None or ended.get("run") == process.get("run")):
            task.ended, since = _ended(ended), ended.get("at")
        elif process is not None:
            task.ended, since = ProcessEnd(None), process.get("began")
        else:
            since = None
        task._look(now)
        task._name_stage()
        # The task already had this stage before this service began.
        task.since = float(since or task.wanted.since or time.time())
        return task

    @property
    def name(self) -> str:
        """The task's name."""
        return self.folder.name

    @property
    def is_alive(self) -> bool:
        """Whether the task's process lived at the last check."""
        return self._was_alive

    def want(self, wanted: WantedState) -> None:
        """Records the wanted state."""
        if wanted.wish == "running":
            # The record of the last end is removed first. Suppose that the wanted state were recorded first. After a
            # crash between the two steps, the record may name a final end, and the task would not be started.
            self.folder.forget("ended")
            self.ended, self.restarts, self.next_start = None, 0, None
        self.folder.want(wanted)
        self.wanted = wanted
        self.version += 1
        self._name_stage()

    def want_no_more(self, wish: Wish) -> None:
        """Records the wanted state, and asks the task to stop.

        If the wanted state cannot be recorded (the disk is full), the task is asked to stop, then the error is raised.
        """
        wanted = WantedState(wish, time.time())
        self.wanted = wanted
        try:
            self.want(wanted)
        finally:
            self.stop_now()

    def step(self, now: float, start: Starter) -> None:
        """Checks the process, stops or starts it, and reads its report."""
        self._look(now)
        if self._was_alive:
            if self.wanted.wish != "running":
                self._ask_to_stop(now)
        elif self.wanted.wish == "running" and not (self.ended is not None and self.ended.is_final):
            if self.next_start is None:
                self.next_start = now + (pause_before(self.restarts - 1) if self.restarts else 0.0)
            if now >= self.next_start:
                self._start(now, start)
        else:
            self.next_start = None
        self._name_stage()
        self._keep_history()

    def stop_now(self) -> None:
        """Asks the process to stop at the end of a transaction, without waiting for the next step."""
        self._ask_to_stop(time.monotonic())

    def _look(self, now: float) -> None:
        child_lives = self._child is not None and self._child.poll() is None
        holder = holder_of(self.folder.lock)
        self.process = holder or (self._child.pid if child_lives and self._child is not None else None)
        is_alive = self.process is not None
        if is_alive and not self._was_alive:
            self._alive_since = now
        if is_alive and now - self._alive_since >= HEALTHY_SECONDS:
            self.restarts = 0
        if self._was_alive and not is_alive:
            self._has_ended()
        if is_alive != self._was_alive:
            self.version += 1
        self._was_alive = is_alive
        self._take_report()

    def _has_ended(self) -> None:
        ended, process = self.folder.read("ended"), self.folder.read("process")
        known = ended is not None and process is not None and ended.get("run") == process.get("run")
        code = self._child.poll() if self._child is not None else None
        self._child = None
        self.ended = _ended(ended) if known and ended is not None else ProcessEnd(None, error=_died(code))
        self.restarts += 1
        self.next_start = None
        by = {"signal": -code} if code is not None and code < 0 else {}
        _log.info("the process of a task has ended", task=self.name, exit_code=self.ended.exit_code, **by)

    def _start(self, now: float, start: Starter) -> None:
        resync = self.wanted.resync
        tables = [] if resync is None else list(resync) or ["*"]
        rotate(self.folder)
        self.folder.forget("progress")
        self.report, self._report_at = {}, 0
        try:
            child = start(self.folder, tables)
        except OSError as error:
            self.restarts += 1
            self.next_start = None
            what = f"the process of the task cannot be started: {error.strerror}"
            todo = "The service tries it again. Free memory, or end other processes on this machine"
            self.ended = ProcessEnd(None, error=PidtsError("task-start", what, todo=todo).to_json())
            return
        if (child is None) != self.waits_for_program:
            self.waits_for_program = child is None
            self.version += 1
        if child is None:
            return  # the next step tries again
        self._child = child
        self.process, self._was_alive, self._alive_since = child.pid, True, now
        self.next_start = None
        self.version += 1

    def _ask_to_stop(self, now: float) -> None:
        if self.process is None or (self._asked[0] == self.process and now - self._asked[1] < _TOO_LONG):
            return
        # If the process does not have its lock yet, no signal is sent, and a later step asks it to stop.
        if signal_holder(self.folder.lock, signal.SIGTERM):
            self._asked = (self.process, now)

    def _take_report(self) -> None:
        path = self.folder.path / "progress.json"
        try:
            found = path.stat()
            if found.st_mtime_ns == self._report_at:
                return
            report = json.loads(path.read_text("utf-8"))
        except (OSError, ValueError):
            return
        self._report_at = found.st_mtime_ns
        if isinstance(report, dict) and isinstance(report.get("progress"), dict):
            self.report, self.facts = report, report.get("facts") or self.facts
            self.version += 1
            is_of_wish = found.st_mtime >= self.wanted.since
            if self.wanted.resync is not None and is_of_wish and report["progress"].get("stage") in {"copy", "sync"}:
                # The target has recorded that the tables are copied again, so later starts need not request this. A
                # report from before the request proves nothing: it is from an earlier run. Such a report exists if the
                # service was killed before it started the next run.
                self.wanted = WantedState(self.wanted.wish, self.wanted.since)
                self.folder.want(self.wanted)

    def _name_stage(self) -> None:
        reported = str(self.progress.get("stage", "")) if self._was_alive else ""
        stage = task_stage(self.wanted.wish, is_alive=self._was_alive, reported=reported, ended=self.ended)
        if stage != self.stage:
            if self.since == 0.0 or self.version:
                self.since = time.time()
            self.stage = stage
            self.version += 1

    @property
    def progress(self) -> dict[str, Any]:
        """The last snapshot of a run; empty before the first one."""
        found = self.report.get("progress")
        return found if isinstance(found, dict) else {}

    def _keep_history(self) -> None:
        progress = self.progress if self._was_alive else {}
        if self.history.take(time.time(), progress.get("lag_seconds"), progress.get("rate")):
            try:
                self.folder.write("history", self.history.stored())
            except OSError:
                return


def rotate(folder: TaskFolder) -> None:
    """Renames a long log, and replaces the oldest one. The task's process opens the file anew for each line."""
    log = folder.log
    try:
        if log.stat().st_size < _MOST_LOG:
            return
        for number in range(_LOGS - 1, 0, -1):
            older = log.with_name(f"{log.name}.{number}")
            if older.exists():
                older.replace(log.with_name(f"{log.name}.{number + 1}"))
        log.replace(log.with_name(f"{log.name}.1"))
    except OSError:
        return


def _ended(value: dict[str, Any]) -> ProcessEnd:
    code, error = value.get("exit_code"), value.get("error")
    return ProcessEnd(
        code if isinstance(code, int) else None,
        str(value.get("stage") or ""),
        error if isinstance(error, dict) else None,
        may_pass=value.get("may_pass") is True,
    )


def _died(code: int | None) -> dict[str, Any]:
    """Returns the error for a process that has ended without recording its end. A negative code is a signal."""
    how = f"by signal {-code}" if code is not None and code < 0 else f"with code {code}" if code else "without a report"
    todo = "The service starts it again. If this repeats, look at the task's log and at the system's log (dmesg)"
    return PidtsError("task-died", f"the process of the task has ended {how}", todo=todo).to_json()
