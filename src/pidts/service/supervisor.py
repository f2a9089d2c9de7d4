"""The supervisor: it starts the tasks that should run, starts them again if they die, and answers requests about tasks.

One thread checks all tasks a few times a second. Other threads bring requests. All threads hold the same lock while
they use tasks, only for moments, and never while they wait for a database server.
"""

from __future__ import annotations

import os
import shlex
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import structlog

from pidts.model import ConfigError, PidtsError, Where
from pidts.service.masked_file import MASK, unmasked
from pidts.service.starter import NewProgram, Starter
from pidts.service.state_folder import StateFolder, TaskFolder, WantedState, Wish, named_file, posted_file
from pidts.service.summary import detail, overview, summary
from pidts.service.task_report import facts_of
from pidts.service.watched_task import WatchedTask, rotate
from pidts.task.config.task_file import TaskConfig, load_parts

_log = structlog.get_logger(__name__)

_LOOK_SECONDS: Final = 0.25
_ROTATE_SECONDS: Final = 60.0
_LONGEST_STOP: Final = 30.0
"""The longest time for which a removal waits until the running task has ended. A long batch may need 20 seconds."""
_LONGEST_NAME: Final = 200
"""The longest name of a task in bytes. Folders are named after tasks, and a folder's name may have 255 bytes."""


class NoSuchTask(PidtsError):
    """The service has no task of this name."""


class WrongTaskState(PidtsError):
    """The state of the task does not allow the request."""


class Supervisor:
    """Watches the tasks of a state folder."""

    def __init__(self, state: StateFolder, start: Starter | None) -> None:
        self._state = state
        self._start: Starter = start or NewProgram()
        self._lock = threading.Condition(threading.RLock())
        self._over = threading.Event()
        self._tasks: dict[str, WatchedTask] = {}
        self._changes = 0
        self._rotated = 0.0
        self._thread = threading.Thread(target=self._watch, name="supervisor", daemon=True)

    def begin(self) -> None:
        """Begins to watch all tasks. Takes over tasks whose processes live; starts others that should run."""
        now = time.monotonic()
        with self._lock:
            for folder in self._state.all():
                task = self._tasks[folder.name] = WatchedTask.found(folder, now)
                if task.is_alive:
                    _log.info("the task runs already, and the service watches it", task=task.name, process=task.process)
        self._thread.start()

    def end(self) -> None:
        """Ends the watching thread; the tasks continue."""
        self._over.set()
        self._thread.join()

    @property
    def is_watching(self) -> bool:
        """Whether the thread that watches the tasks lives."""
        return self._thread.is_alive()

    @property
    def changes(self) -> int:
        """A number that rises with every change that a reader of the tasks could see."""
        return self._changes

    def _watch(self) -> None:
        while not self._over.wait(_LOOK_SECONDS):
            now = time.monotonic()
            for task in self._all():
                with self._lock:
                    if self._tasks.get(task.name) is not task:
                        continue  # the task was removed meanwhile
                    before = task.version
                    try:
                        task.step(now, self._start)
                    except Exception as error:  # noqa: BLE001 - the other tasks have to be checked, too
                        _log.exception("the service cannot check a task", task=task.name, cause=str(error))
                    self._changes += task.version != before
            if now - self._rotated > _ROTATE_SECONDS:
                self._rotated = now
                for task in self._all():
                    rotate(task.folder)

    def _all(self) -> list[WatchedTask]:
        with self._lock:
            return list(self._tasks.values())

    def summaries(self) -> list[dict[str, Any]]:
        """Returns the overview: a summary of each task, with the curves of its last hour."""
        now = time.monotonic()
        with self._lock:
            return [overview(self._tasks[name], now) for name in sorted(self._tasks)]

    def tasks_of(self, file: Path) -> set[str]:
        """Returns the tasks that were created from the path of this task file. The file itself is not read."""
        folders = [task.folder for task in self._all()]
        return {one.name for one in folders if one.is_elsewhere and _is_same(one.task_file, file)}

    def detail(self, name: str) -> dict[str, Any]:
        """Returns all details of one task, with the curves of its last hour."""
        with self._lock:
            task = self._named(name)
            return detail(task, time.monotonic()) | {"last_hour": task.history.to_json()}

    def summary(self, name: str) -> dict[str, Any]:
        """Returns the overview's line of a task."""
        with self._lock:
            return summary(self._named(name), time.monotonic())

    def seen(self, name: str) -> tuple[int, dict[str, Any]] | None:
        """Returns a number that rises with each change of a task, and the task's details; None for a removed task."""
        with self._lock:
            task = self._tasks.get(name)
            return None if task is None else (task.version, detail(task, time.monotonic()))

    def folder(self, name: str) -> TaskFolder:
        """Returns the folder of a task."""
        with self._lock:
            return self._named(name).folder

    def metrics(self) -> list[tuple[str, bool, list[list[Any]]]]:
        """Returns, for each task, whether its process lives, and the metrics that it has reported."""
        with self._lock:
            return [(task.name, task.is_alive, task.report.get("metrics") or []) for task in self._tasks.values()]

    def create(self, text: str, *, start: bool) -> dict[str, Any]:
        """Creates a task from the text of a task file; returns its line of the overview."""
        with self._state.draft() as draft:
            posted_file(draft, text)
            return self._created(draft, draft / "task.yaml", start=start)

    def create_from(self, path: Path, *, start: bool) -> dict[str, Any]:
        """Creates a task from a task file that stays where it is; returns the task's line of the overview."""
        if not path.is_absolute():
            raise ConfigError(
                "usage", f"the path of the task file is not absolute: {path}", todo="Write the whole path, from / on"
            )
        with self._state.draft() as draft:
            named_file(draft, path)
            return self._created(draft, path, start=start)

    def _created(self, draft: Path, file: Path, *, start: bool) -> dict[str, Any]:
        parts = validated(file)
        name = parts[0].name
        TaskFolder(draft).write("facts", facts_of(parts))
        with self._lock:
            if name in self._tasks:
                raise WrongTaskState(
                    "task-exists",
                    f"there is a task {name} already",
                    todo=f"Run pidts stop {shlex.quote(name)}, then delete that task on the page; "
                    "or give the new task another name",
                )
            wish: Wish = "running" if start else "stopped"
            folder = self._state.create(draft, name, wish)
            self._tasks[name] = WatchedTask.found(folder, time.monotonic())
            self._changes += 1
            return summary(self._tasks[name], time.monotonic())

    def replace(self, name: str, text: str) -> dict[str, Any]:
        """Replaces a task's file, as if it was edited; returns the task's line of the overview."""
        with self._lock:
            task = self._named(name)
            if task.folder.is_elsewhere:
                raise WrongTaskState(
                    "file-elsewhere",
                    f"the task file is {task.folder.task_file}, which the service does not write",
                    todo="Edit that file",
                )
            earlier = task.folder.task_file
        with self._state.draft() as draft:
            if MASK in text:
                text = unmasked(text, earlier.read_text("utf-8"))
            parts = validated(posted_file(draft, text))
            if parts[0].name != name:
                raise ConfigError(
                    "task-renamed",
                    f"the file names the task {parts[0].name}, not {name}",
                    todo="Keep the former name in the file, or add the file as a new task",
                )
            with self._lock:
                task = self._named(name)
                (draft / "task.yaml").replace(task.folder.task_file)
                task.folder.write("facts", facts_of(parts))
                task.facts = facts_of(parts)
                task.version += 1
                self._changes += 1
                return summary(task, time.monotonic())

    def start(self, name: str, resync: Sequence[str] | None = None) -> dict[str, Any]:
        """Lets a task run from its checkpoint; returns its line of the overview.

        `resync` names tables to copy again; an empty list means all tables. With `resync`, raises if the task runs.
        """
        with self._changing(name) as task:
            if resync is not None and task.is_alive:
                raise WrongTaskState(
                    "task-runs",
                    f"the task {name} runs, and only a start can copy tables again",
                    todo=f"First run: pidts stop {shlex.quote(name)}",
                )
            if not (task.is_alive and task.wanted.wish == "running"):
                task.want(WantedState("running", time.time(), None if resync is None else tuple(resync)))
        return self.summary(name)

    def resume(self, name: str) -> dict[str, Any]:
        """Lets a paused, halted or failed task continue; returns its line of the overview."""
        with self._changing(name) as task:
            if task.wanted.wish == "stopped":
                raise WrongTaskState(
                    "task-stopped",
                    f"the task {name} is stopped, not paused",
                    todo=f"Run: pidts start {shlex.quote(name)}",
                )
        return self.start(name)

    def pause(self, name: str) -> dict[str, Any]:
        """Pauses a task at the end of a transaction; returns its line of the overview."""
        with self._changing(name) as task:
            if task.wanted.wish == "stopped":
                raise WrongTaskState("task-stopped", f"the task {name} is stopped already", todo="")
            task.want_no_more("paused")
        return self.summary(name)

    def stop(self, name: str) -> dict[str, Any]:
        """Stops a task at the end of a transaction, until it is started again; returns its line of the overview."""
        with self._changing(name) as task:
            task.want_no_more("stopped")
        return self.summary(name)

    def verdict(self, text: str) -> dict[str, Any]:
        """Checks the text of a task file without storing it. Returns facts about its task; raises for a mistake."""
        with self._state.draft() as draft:
            return _verdict(validated(posted_file(draft, text)))

    def verdict_of(self, path: Path) -> dict[str, Any]:
        """Checks a task file on this machine. Returns facts about its task; raises for a mistake."""
        return _verdict(validated(path))

    def remove(self, name: str, *, force: bool = False) -> dict[str, Any]:
        """Removes a task. Raises if the task runs; with `force`, stops it first.

        The task's relay and its records on the target stay. The result contains the task's name, and says this.
        """
        if force:
            self.stop(name)
            self._wait_for_end(name)
        with self._changing(name) as task:
            if task.is_alive or task.wanted.wish == "running":
                raise WrongTaskState(
                    "task-runs", f"the task {name} is not stopped", todo=f"First run: pidts stop {shlex.quote(name)}"
                )
            self._state.remove(task.folder)
            del self._tasks[name]
        left = "The relay and the target's records of the task stay: a new task of this name continues from them"
        return {"removed": name, "left": left}

    def _wait_for_end(self, name: str) -> None:
        over = time.monotonic() + _LONGEST_STOP
        while time.monotonic() < over:
            with self._lock:
                if not self._named(name).is_alive:
                    return
            time.sleep(_LOOK_SECONDS)

    @contextmanager
    def _changing(self, name: str) -> Iterator[WatchedTask]:
        with self._lock:
            yield self._named(name)
            self._changes += 1

    def _named(self, name: str) -> WatchedTask:
        found = self._tasks.get(name)
        if found is None:
            raise NoSuchTask("no-such-task", f"the service has no task {name!r}", todo="See its tasks: pidts list")
        return found


def _is_same(one: Path, other: Path) -> bool:
    return one == other or os.path.realpath(one) == os.path.realpath(other)


def _verdict(parts: Sequence[TaskConfig]) -> dict[str, Any]:
    return {"name": parts[0].name, **facts_of(parts), "notes": list(parts[0].notes)}


def validated(file: Path) -> tuple[TaskConfig, ...]:
    """Returns the parts of a task file. Raises if the file has a mistake."""
    try:
        parts = load_parts(file)
    except ConfigError as error:
        if error.where.file != str(file):
            raise
        if not file.parent.name.startswith("."):
            raise
        # The file is in a draft folder, which the user does not know. So the error has only the file's name and lines.
        what = error.what.replace(f"{file}:", "line ").replace(str(file), file.name)
        raise ConfigError(error.code, what, where=replace(error.where, file=file.name), todo=error.todo) from None
    if len(parts[0].name.encode()) > _LONGEST_NAME:
        what = f"the task's name has more than {_LONGEST_NAME} bytes"
        raise ConfigError("bad-value", what, where=Where(file=str(file)), todo="Give the task a shorter name")
    return parts
