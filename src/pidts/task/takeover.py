"""Takes changes of the task file over while the task runs; what would not work is refused before anything stops.

A file speaks of all sources of the task at once, so its change is taken over by all of their parts or by none. It is
looked at in the thread of the part that comes first; each part takes its own piece when it looks the next time.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace

import structlog

from pidts.batch.shard_groups import ShardGroups
from pidts.model import PidtsError, Transient
from pidts.source import connect, read_structures
from pidts.task.changes import Difference, FileWatch, difference
from pidts.task.compose import source_config, target_of
from pidts.task.config import TaskConfig, load_parts
from pidts.task.fit import fits_of, followable
from pidts.task.landings import lock_open, moved
from pidts.task.shard_checks import APART, meeting
from pidts.task.shards import own_shards, shards_beside

_log = structlog.get_logger(__name__)

_LOOK_SECONDS = 1.0


class Takeover:
    """Of all parts, as long as a run lives."""

    def __init__(
        self, parts: Sequence[TaskConfig], tell: Callable[[str], None], shards: ShardGroups | None = None
    ) -> None:
        """`tell` shows a text to whoever watches."""
        self._path, self._tell, self._shards = parts[0].path, tell, shards
        self._file = FileWatch(self._path)
        self._decided = {part.source.source_id: part for part in parts}
        self._due = 0.0
        self._written: set[str] = set()
        """Parts that have not looked since the file was written."""
        self._looking = threading.Lock()

    @property
    def parts(self) -> tuple[TaskConfig, ...]:
        """All of them, with what has been taken over."""
        return tuple(self._decided.values())

    def look(self, running: TaskConfig, *, halted: bool = False) -> TaskConfig | None:
        """The configuration that a part is to go on with, where that is another than it runs with.

        While tables of it are `halted` any change of the file is something, if only of its time: whoever has mended
        what they halt for says so by it.
        """
        source = running.source.source_id
        if self._looking.acquire(blocking=False):
            try:
                self._decide()
            finally:
                self._looking.release()
        if halted and source in self._written and self._decided[source] is running:
            self._say("the task file was written: what has halted is tried again")
            self._decided[source] = replace(running)
        self._written.discard(source)
        decided = self._decided[source]
        return None if decided is running else decided

    def _decide(self) -> None:
        now = time.monotonic()
        if now < self._due:
            return
        self._due = now + _LOOK_SECONDS
        if not self._file.is_changed():
            return
        try:
            file = {part.source.source_id: part for part in load_parts(self._path)}
            found = {
                source: difference(decided, file.get(source, decided)) for source, decided in self._decided.items()
            }
            refused = self._refusal(found)
        except Transient:
            self._file.forget()  # a server that cannot be asked now is asked again
            return
        except PidtsError as error:
            self._say(f"the task file has changed, but nothing of it is taken over: {error}")
            return
        if refused:
            self._say(f"the task file has changed, but nothing of it is taken over: {refused}")
            return
        self._written = {*self._decided}
        waiting = dict.fromkeys(key for one in found.values() for key in one.waiting)
        if file.keys() != self._decided.keys():
            waiting["mysql-instances"] = None
        if waiting:
            self._say(f"the task file has changed: {', '.join(waiting)} will count from the next start on")
        for source, one in found.items():
            if one.taken:
                _log.info("taking over a change of the task file", source=source, keys=one.taken)
                self._decided[source] = one.config

    def _say(self, text: str) -> None:
        _log.warning(text, file=str(self._path))
        self._tell(text)

    def _refusal(self, found: Mapping[str, Difference]) -> str:
        """Why the new rules cannot be in force; empty where they can."""
        configs = [one.config for one in found.values()]
        for source, one in found.items():
            running, config = self._decided[source], one.config
            if config.rules == running.rules:
                continue
            self._demand_unlocked(running, config)
            refused = _refusal(running, config, [other for other in configs if other is not config])
            if refused:
                return f"source {source}: {refused}" if len(found) > 1 else refused
        return ""

    def _demand_unlocked(self, running: TaskConfig, config: TaskConfig) -> None:
        before, after = running.rules, config.rules
        locks = self._shards.locks() if self._shards is not None else ()
        if locks and (before.routes, before.mappings) != (after.routes, after.mappings):
            raise lock_open(lock.target for lock in locks)


def _refusal(running: TaskConfig, config: TaskConfig, beside: Sequence[TaskConfig]) -> str:
    """As far as one source tells."""
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
        others = shards_beside(target, beside, config.rules, [table.name for table in new], asks=False)
        others += own_shards(config.rules, kept, begun=True)
        fits = followable(source, fits_of(target, new, config.rules, copies=True, beside=others))
        refused = meeting(config, target, beside, new, kept)
        if refused:
            return f"{refused}. {APART}"
    return "; ".join(f"{fit}: {fit.problem}. {fit.fix}" for fit in fits if fit.problem)
