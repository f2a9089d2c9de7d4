"""Starts long operations on tasks (comparisons, repairs, checks, previews), and stores their results.

Each run is a process with a folder. In this folder, run.json contains the request, report.json the command's output,
and progress.txt its messages. A run continues when its service ends. The next service cannot get the exit code of a
process that it has not started. So it learns the result from the command's output.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from pidts.model import ConfigError, PidtsError
from pidts.relay.permissions import private_opener
from pidts.service.durable_file import read_json, write_json
from pidts.service.state_folder import TaskFolder
from pidts.service.task_command import last_object

KINDS: Final = ("check", "plan", "verify", "repair")
_LONGEST_END, _LOOK_SECONDS = 20.0, 0.2
_KEPT: Final = 20
_AT_ONCE: Final = 2
"""The largest number of runs of one task at the same time."""
_ID: Final = re.compile(r"[0-9a-f]{16}")
_OPTION: Final = re.compile(r"[a-z][a-z-]{0,40}")
_OPTIONS: Final[Mapping[str, frozenset[str]]] = {
    "check": frozenset(),
    "plan": frozenset({"sql", "brief"}),
    "verify": frozenset({"tables", "examples", "restart"}),
    "repair": frozenset({"tables", "apply", "remove-extra"}),
}


class NoSuchRun(PidtsError):
    """The task has no run with this id."""


class TooManyRuns(PidtsError):
    """Other runs of the task are under way."""


@dataclass(slots=True)
class Runs:
    """The runs of all tasks of a service."""

    _children: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def begin(self, task: TaskFolder, kind: str, options: Mapping[str, str | bool]) -> dict[str, Any]:
        """Starts a run and returns its description."""
        words = [kind, *_words(kind, options)]
        with self._lock:
            known = [self._described(path) for path in _folders(task)]
            if sum(one["state"] == "running" for one in known) >= _AT_ONCE:
                raise TooManyRuns(
                    "too-many-runs",
                    f"{_AT_ONCE} runs of the task {task.name} are under way",
                    todo="Wait for one of them, or cancel it",
                )
            for old in sorted(known, key=lambda one: -float(one["begun"]))[_KEPT - 1 :]:
                if old["state"] != "running":
                    shutil.rmtree(task.runs / old["id"], ignore_errors=True)
            name = secrets.token_hex(8)
            folder = task.runs / name
            try:
                task.runs.mkdir(mode=0o700, exist_ok=True)
                folder.mkdir(mode=0o700)
            except FileNotFoundError:  # the task was removed meanwhile
                raise NoSuchRun("no-such-task", f"the service has no task {task.name!r} any more") from None
            with (
                open(folder / "report.json", "wb", opener=private_opener) as report,
                open(folder / "progress.txt", "wb", opener=private_opener) as progress,
            ):
                process = subprocess.Popen(
                    [sys.executable, "-m", "pidts", *words, "--json", "--", str(task.task_file)],
                    stdin=subprocess.DEVNULL,
                    stdout=report,
                    stderr=progress,
                    cwd="/",
                    start_new_session=True,
                )
            self._children[name] = process
            asked = {"kind": kind, "options": dict(options), "begun": time.time()}
            # `started_ticks` distinguishes the process from a later process with the same process id.
            asked |= {"process": process.pid, "started_ticks": _started(process.pid)}
            write_json(folder / "run.json", asked, durable=False)
            return self._described(folder)

    def all(self, task: TaskFolder) -> list[dict[str, Any]]:
        """Returns the runs of a task, the newest first, without their reports."""
        with self._lock:
            found = [self._described(path) for path in _folders(task)]
        return sorted(found, key=lambda one: -float(one["begun"]))

    def one(self, task: TaskFolder, name: str) -> dict[str, Any]:
        """Returns a run with its report or its error."""
        with self._lock:
            folder = _folder(task, name)
            found = self._described(folder)
        if found["state"] != "running":
            value = last_object(_tail(folder / "report.json", 64 << 20)) or {}
            found |= {"error": value["error"]} if set(value) == {"error"} else {"report": value or None}
        return found

    def cancel(self, task: TaskFolder, name: str) -> dict[str, Any]:
        """Ends a run and returns its description. Removes a run that has already ended, and returns only the name."""
        with self._lock:
            folder = _folder(task, name)
            found = self._described(folder)
            if found["state"] != "running":
                shutil.rmtree(folder, ignore_errors=True)
                return {"removed": name}
            asked = read_json(folder / "run.json") or {}
            write_json(folder / "run.json", asked | {"cancelled": True}, durable=False)
            _end(asked)
            return found | {"cancelled": True}

    @contextmanager
    def none_of(self, task: TaskFolder, *, force: bool) -> Iterator[None]:
        """Prevents new runs of a task in the block. Raises if a run is under way; `force` first asks it to end."""
        over = time.monotonic() + (_LONGEST_END if force else 0.0)
        while True:
            with self._lock:
                living = [one["id"] for one in map(self._described, _folders(task)) if one["state"] == "running"]
                if not living:
                    yield
                    return
                if force:
                    for name in living:
                        _end(read_json(task.runs / name / "run.json") or {})
            if time.monotonic() >= over:
                raise TooManyRuns(
                    "run-under-way",
                    f"{len(living)} runs of the task {task.name} are under way",
                    todo="Wait for them, or cancel them",
                )
            time.sleep(_LOOK_SECONDS)

    def _described(self, folder: Path) -> dict[str, Any]:
        asked = read_json(folder / "run.json") or {}
        child = self._children.get(folder.name)
        code = child.poll() if child is not None else None
        if child is not None and code is not None and asked.get("ended") is None:
            asked |= {"ended": time.time(), "exit_code": code}
            write_json(folder / "run.json", asked, durable=False)
            del self._children[folder.name]
        lives = asked.get("ended") is None and (child is not None or _lives(asked))
        code = asked.get("exit_code")
        is_done = (
            not lives
            and not asked.get("cancelled")
            and (code in {0, 3, 4, 5} or (code is None and _has_report(folder)))
        )
        return {
            "id": folder.name,
            "kind": asked.get("kind", ""),
            "options": asked.get("options", {}),
            "state": "running" if lives else "done" if is_done else "failed",
            "begun": asked.get("begun", 0.0),
            "ended": asked.get("ended"),
            "exit_code": code,
            "cancelled": bool(asked.get("cancelled")),
            "progress": _tail(folder / "progress.txt", 4000).decode("utf-8", "replace").strip().rpartition("\n")[2],
        }


def _words(kind: str, options: Mapping[str, str | bool]) -> list[str]:
    """Returns the options as words of a command line; raises for an option that is not allowed."""
    words = []
    for name, value in options.items():
        if not _OPTION.fullmatch(name) or name not in _OPTIONS[kind]:
            known = ", ".join(sorted(_OPTIONS[kind])) or "none"
            raise ConfigError("usage", f"{kind} takes no option {name!r} here", todo=f"Known: {known}")
        if value is True:
            words.append(f"--{name}")
        elif value is not False:
            words.append(f"--{name}={value}")
    return words


def _folders(task: TaskFolder) -> list[Path]:
    try:
        return [path for path in task.runs.iterdir() if _ID.fullmatch(path.name)]
    except FileNotFoundError:
        return []


def _folder(task: TaskFolder, name: str) -> Path:
    folder = task.runs / name
    if not _ID.fullmatch(name) or not folder.is_dir():
        raise NoSuchRun("no-such-run", f"the task {task.name} has no run {name!r}", todo="List them: GET …/runs")
    return folder


def _has_report(folder: Path) -> bool:
    value = last_object(_tail(folder / "report.json", 64 << 20))
    return value is not None and set(value) != {"error"} and value.get("stage") != "stopped"


def _tail(path: Path, most: int) -> bytes:
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - most))
            return file.read()
    except OSError:
        return b""


def _started(process: int) -> int | None:
    try:
        return int(Path(f"/proc/{process}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()[19])
    except (OSError, IndexError, ValueError):
        return None


def _lives(asked: Mapping[str, Any]) -> bool:
    process, started = asked.get("process"), asked.get("started_ticks")
    return isinstance(process, int) and started is not None and _started(process) == started


def _end(asked: Mapping[str, Any]) -> None:
    process = asked.get("process")
    if isinstance(process, int) and _lives(asked):
        try:
            os.kill(process, signal.SIGTERM)
        except ProcessLookupError:
            return
