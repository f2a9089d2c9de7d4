"""Applies changes of the task file while the task runs. A change that cannot work is refused before anything stops.

The file describes all sources of the task, so either all parts apply a change or none does. The thread of the first
part that notices the change checks it for all parts. Each part applies the change when it next looks at the file.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace

import structlog

from pidts.apply.apply_rules import is_guarded
from pidts.ddl.shards.coordinator import ShardGroups
from pidts.model import OnDivergence, PidtsError, SourceTablesKey, Transient
from pidts.model.errors import listed, sentence
from pidts.source import connect, read_structures
from pidts.task.checks.shards import LOCK_NO_MERGED, SEPARATE_KEYS, locks_rows, overlapping_keys, unlockable_text
from pidts.task.config.diff import ConfigDifference, FileWatch, difference
from pidts.task.config.servers import SourceSpec
from pidts.task.config.task_file import TaskConfig, load_parts
from pidts.task.config.zones_file import split_path
from pidts.task.tables.merged import by_target, own_shards, shards_of_other_sources
from pidts.task.tables.rule_changes import lock_open_error, rule_conflict, with_other_writers
from pidts.task.tables.target_fit import fits_of, followable

_log = structlog.get_logger(__name__)

_LOOK_SECONDS = 1.0


class ConfigReload:
    """Watches the task file for all parts of one run."""

    def __init__(
        self, parts: Sequence[TaskConfig], say: Callable[[str], None], shards: ShardGroups | None = None
    ) -> None:
        """`say` shows a text to the user of the run."""
        self._path, self._show, self._shards = parts[0].path, say, shards
        self._file = FileWatch(split_path(self._path)[0])
        self._decided = {part.source.source_id: part for part in parts}
        self._due = 0.0
        self._has_looked = False
        """Whether the file was read before. The file that is read first was saved before the run. So the first reading
        counts as a change only if the file differs.
        """
        self._written: set[str] = set()
        """The source ids of the parts that have not called `look` since the file was saved."""
        self._looking = threading.Lock()

    @property
    def parts(self) -> tuple[TaskConfig, ...]:
        """The configurations of all parts, with the applied changes."""
        return tuple(self._decided.values())

    def moved(self, source: SourceSpec) -> TaskConfig:
        """Records that a part now reads another server of its source, and returns the part's configuration.

        Another part's thread may have accepted changes of the file meanwhile: the configuration includes them.
        """
        with self._looking:
            moved = self._decided[source.source_id] = replace(self._decided[source.source_id], source=source)
        return moved

    def look(self, running: TaskConfig, *, halted: bool = False) -> TaskConfig | None:
        """Returns the configuration with which a part has to continue, or None if it has not changed.

        If tables of the part are `halted`, saving the unchanged file counts as a change. So an operator who has removed
        the cause of a halt can ask for another attempt by saving the file.
        """
        source = running.source.source_id
        if self._looking.acquire(blocking=False):
            try:
                self._decide()
                # Without the lock, a change that another part's thread accepts at this moment would be lost.
                if halted and source in self._written and self._decided[source] is running:
                    self._report("the task file was saved: the task tries its halted tables again")
                    self._decided[source] = replace(running)
                self._written.discard(source)
            finally:
                self._looking.release()
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
            self._file.forget()  # a server that does not answer now is asked again
            return
        except PidtsError as error:
            self._report(f"the task file has changed, and the running task ignores the change: {error}")
            return
        if refused:
            self._report(f"the task file has changed, and the running task ignores the change: {refused}")
            return
        if self._has_looked or any(one.taken or one.waiting for one in found.values()):
            self._written = {*self._decided}
        self._has_looked = True
        waiting = dict.fromkeys(key for one in found.values() for key in one.waiting)
        if file.keys() != self._decided.keys():
            waiting["mysql-instances"] = None
        if waiting:
            self._report(f"the task file has changed: {', '.join(waiting)} will take effect at the next start")
        for source, one in found.items():
            if one.taken:
                _log.info("a change of the task file takes effect", source=source, keys=one.taken)
                self._decided[source] = one.config

    def _report(self, text: str) -> None:
        _log.warning(text, file=str(self._path))
        self._show(text)

    def _refusal(self, found: Mapping[str, ConfigDifference]) -> str:
        """Returns the reason why the new rules cannot take effect; empty if they can."""
        configs = [one.config for one in found.values()]
        for source, one in found.items():
            running, config = self._decided[source], one.config
            begins = config.on_divergence is OnDivergence.LOCK and running.on_divergence is not OnDivergence.LOCK
            if begins and (merged := self._merged(config)):
                return f"{merged}. {LOCK_NO_MERGED}"
            if config.rules == running.rules:
                continue
            self._demand_unlocked(running, config)
            refused = _refusal(running, config, [other for other in configs if other is not config])
            if refused:
                return f"source {source}: {refused}" if len(found) > 1 else refused
        return ""

    def _merged(self, config: TaskConfig) -> str:
        """Returns a message about a merged table of this source whose rows cannot be locked; empty if there is none.

        Rows of a merged table can be locked if versions decide about all of its shards.
        """
        if self._shards is None:
            return ""
        for table in self._shards.tables(config.source.source_id):
            members = self._shards.members(target := config.rules.target_name(table))
            shards = self._shards.structures(target)
            if len(members) > 1 and not all(is_guarded(one, config.version_column) for one in shards):
                return unlockable_text(target, listed(one.table for one in members))
        return ""

    def _demand_unlocked(self, running: TaskConfig, config: TaskConfig) -> None:
        before, after = running.rules, config.rules
        locks = self._shards.locks() if self._shards is not None else ()
        if locks and (before.routes, before.mappings) != (after.routes, after.mappings):
            raise lock_open_error(lock.target for lock in locks)


def _refusal(running: TaskConfig, config: TaskConfig, other_parts: Sequence[TaskConfig]) -> str:
    """Returns the reason why one source's new rules cannot take effect; empty if they can."""
    with closing(connect(config.source.server)) as source, closing(config.target.server.connect()) as target:
        tables = read_structures(source, config.allow)
        known = target.meta.structures.load(config.name, SourceTablesKey(config.source.source_id))
        if not tables:
            return "no table of the source would match block-allow-list"
        kept = [table for name, table in known.items() if config.allow(name)]
        refused = rule_conflict(running.rules, config.rules, kept)
        if refused:
            return f"{sentence(str(refused))} Only a new task, or a task that copies the table again, can change this"
        for table in kept:
            config.rules.check(table)
        new = [table for name, table in tables.items() if name not in known and not running.allow(name)]
        if new and config.mode == "incremental":
            return f"{new[0].name} cannot join the task, because task-mode incremental copies no rows"
        others = shards_of_other_sources(target, other_parts, config.rules, [table.name for table in new], asks=False)
        others += own_shards(config.rules, kept, begun=True)
        for target_name, shards in by_target([*others, *own_shards(config.rules, new, begun=False)]).items():
            if target_name is not None and len(shards) > 1 and locks_rows(config, shards):
                return f"{unlockable_text(target_name, listed(shards))}. {LOCK_NO_MERGED}"
        fits = with_other_writers(config, target, fits_of(target, new, config.rules, copies=True, other_shards=others))
        fits = followable(source, fits)
        refused = overlapping_keys(config, target, other_parts, new, kept)
        if refused:
            return f"{sentence(str(refused))} {SEPARATE_KEYS}"
    return "; ".join(f"{fit}: {fit.problem}. {fit.fix}" for fit in fits if fit.problem)
