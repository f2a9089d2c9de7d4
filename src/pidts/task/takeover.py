"""Takes changes of the task file over while the task runs; what would not work is refused before anything stops."""

from __future__ import annotations

import time
from contextlib import closing
from dataclasses import replace

import structlog

from pidts.model import PidtsError, Transient
from pidts.source import connect, read_structures
from pidts.task.changes import Difference, FileWatch, difference
from pidts.task.compose import source_config, target_of
from pidts.task.config import TaskConfig, load_task
from pidts.task.fit import fits_of, followable
from pidts.task.landings import moved
from pidts.task.tracker import Tracker

_log = structlog.get_logger(__name__)

_LOOK_SECONDS = 1.0


class Takeover:
    """Lives as long as a run."""

    def __init__(self, config: TaskConfig, tracker: Tracker) -> None:
        self._file, self._tracker = FileWatch(config.path), tracker
        self._path = config.path
        self._due = 0.0

    def look(self, running: TaskConfig, *, halted: bool = False) -> TaskConfig | None:
        """The configuration to go on with, where the file has changed and there is something to take over.

        While tables are `halted` any change of the file is something, if only of its time: whoever has mended what they
        halt for says so by it.
        """
        now = time.monotonic()
        if now < self._due:
            return None
        self._due = now + _LOOK_SECONDS
        if not self._file.is_changed():
            return None
        try:
            found = difference(running, load_task(self._path))
            refused = _refusal(running, found)
        except Transient:
            self._file.forget()  # a server that cannot be asked now is asked again
            return None
        except PidtsError as error:
            self._say(f"the task file has changed, but nothing of it is taken over: {error}")
            return None
        if refused:
            self._say(f"the task file has changed, but nothing of it is taken over: {refused}")
            return None
        if found.waiting:
            self._say(f"the task file has changed: {', '.join(found.waiting)} will count from the next start on")
        if not found.taken:
            if halted:
                self._say("the task file was written: what has halted is tried again")
            return replace(running) if halted else None
        _log.info("taking over a change of the task file", keys=found.taken)
        return found.config

    def _say(self, text: str) -> None:
        _log.warning(text, file=str(self._path))
        self._tracker.note(text)


def _refusal(running: TaskConfig, found: Difference) -> str:
    """Why the new rules cannot be in force; empty where they can."""
    config = found.config
    if config.rules == running.rules:
        return ""
    with closing(connect(source_config(config))) as source, closing(target_of(config).connect()) as target:
        tables = read_structures(source, config.allow)
        known = target.load_structures(config.name, config.source.source_id)
        if not tables:
            return "block-allow-list would let no table of the source pass"
        kept = [table for name, table in known.items() if config.allow(name)]
        refused = moved(running.rules, config.rules, kept)
        if refused:
            return f"{refused}. Only a new task, or one that copies it again, can do that"
        for table in kept:
            config.rules.check(table)
        new = [table for name, table in tables.items() if name not in known and not running.allow(name)]
        if new and config.mode == "incremental":
            return f"{new[0].name} cannot join, since task-mode incremental copies no rows"
        fits = followable(source, fits_of(target, new, config.rules, copies=True, beside=known))
    return "; ".join(f"{fit}: {fit.problem}. {fit.fix}" for fit in fits if fit.problem)
