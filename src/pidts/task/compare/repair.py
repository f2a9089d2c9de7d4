"""Repairs the differences that a comparison finds: writes them to the target while the task runs, or prints the SQL.

Extra rows are removed only on request in two cases:

- The table is merged. When a shard is dropped or emptied, its rows stay on the target on purpose, even if only one
  shard is left. If extracted columns show the shard of a row, rows of existing shards and rows of no shard are counted
  separately.
- Filters leave out changes that remove rows (DELETE, TRUNCATE, DROP).

If filters leave out inserts or updates, the table is not compared.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

import pyarrow as pa

from pidts.apply import TargetSession
from pidts.apply.merge.recorded_tables import has_others
from pidts.apply.repair import PendingChanges, RepairSource, as_changes, repair
from pidts.copy import read_keys
from pidts.model import Lsn, OnDivergence, StructureChanged, TableName, Where
from pidts.reduce import NetChange
from pidts.target.iceberg.connection import CatalogConnection
from pidts.target.mysql import MySqlSession
from pidts.target.mysql import repair_sql as mysql
from pidts.target.postgres import PostgresSession
from pidts.target.postgres import repair_sql as postgres
from pidts.task.compare.source import SourceTable
from pidts.task.compare.wiring import ShownTable, keeps_rows, members_of
from pidts.verify import ANYBODY, NOBODY, ComparisonInterrupted, DifferenceKind, MergedTable, Report, UnequalKeys

_KEYS = 500
"""The most keys that one transaction repairs. The task waits for this transaction."""
_CROWDED_SECONDS = 10.0
"""If a table has pending changes at all attempts during this number of seconds, a repair no longer waits."""
_STILL_SECONDS = 2.0
"""The limit for further tables, if the task's checkpoints have not moved during a whole wait."""
_CROWDED_PAUSE = 0.1


@dataclass(frozen=True, slots=True)
class ExtraRows:
    """The numbers of extra rows: of existing shards, of no shard, and of a shard that is not known."""

    of_shards: int = 0
    """The number of extra rows that belong to existing shards."""
    of_no_shard: int = 0
    unattributed: int = 0
    """The number of extra rows whose shard is not known."""

    @classmethod
    def of(cls, members: Sequence[int]) -> ExtraRows:
        """Counts rows; `members` contains for each row the number of its shard, `NOBODY` or `ANYBODY`."""
        nobody, unattributed = members.count(NOBODY), members.count(ANYBODY)
        return cls(len(members) - nobody - unattributed, nobody, unattributed)

    def __add__(self, other: ExtraRows) -> ExtraRows:
        return ExtraRows(
            self.of_shards + other.of_shards,
            self.of_no_shard + other.of_no_shard,
            self.unattributed + other.unattributed,
        )

    @property
    def count(self) -> int:
        """The number of all extra rows."""
        return self.of_shards + self.of_no_shard + self.unattributed


@dataclass(slots=True)
class PendingWait:
    """Decides how long a repair waits for the end of a table's pending changes.

    If the checkpoints do not move for a moment, the task may still run: it may be preparing a large batch, or the
    source may be quiet. So the limit is short only if the checkpoints have not moved during a whole wait for another
    table.
    """

    _stood: tuple[object, ...] | None = None
    """The places of the checkpoints that have not moved during a whole wait."""
    _began: float | None = None
    _first: tuple[object, ...] = ()

    def begin(self) -> None:
        """Begins to wait for another table, or for other keys."""
        self._began = None

    def is_over(self, places: tuple[object, ...], now: float) -> bool:
        """Whether to wait no longer. `places` are those of the source's checkpoints."""
        if self._began is None:
            self._began, self._first = now, places
        if now - self._began <= (_STILL_SECONDS if places == self._stood else _CROWDED_SECONDS):
            return False
        if places == self._first:
            self._stood = places
        return True


@dataclass(slots=True)
class Repairs:
    """The repairs of one task, and how many rows they change. `target` is a connection for the repairs alone."""

    task: str
    target: TargetSession
    stop: threading.Event
    print_sql: Callable[[str], None]
    apply: bool = field(kw_only=True)
    removes: bool = field(kw_only=True, default=False)
    """Whether extra rows of merged and filtered tables are also removed."""
    report: Report | None = None
    """With `apply`: the report of a second comparison of the repaired rows, which shows the remaining differences."""
    written: int = 0
    removed: int = 0
    left: ExtraRows = field(default_factory=ExtraRows)
    """Extra rows that stay because their removal was not requested."""
    removing: ExtraRows = field(default_factory=ExtraRows)
    """Extra rows of merged tables whose removal was requested."""
    kept: set[tuple[str, TableName]] = field(default_factory=set)
    """Tables that are not merged, with extra rows that may be there because of filters; each with its source."""
    repaired: int = 0
    """The number of repaired rows; without `apply`, the number of rows that a repair would change."""
    shared: int = 0
    """The number of keys that several shards of one merged table have."""
    filtered: set[ShownTable] = field(default_factory=set)
    """Tables that were not compared, because their filters leave out inserts or updates."""
    _began: bool = False
    _merged: dict[TableName, bool] = field(default_factory=dict)
    _wait: PendingWait = field(default_factory=PendingWait)
    _never_quiet: set[TableName] = field(default_factory=set)
    """Tables that had pending changes at all attempts to repair them. Repairs no longer wait for these changes."""

    def differ(self, merged: MergedTable, settled: UnequalKeys) -> bool:
        """Repairs a few keys at a time; returns whether these keys have to be compared again."""
        members = members_of(merged)
        keeps = any(map(keeps_rows, members)) and not self.removes
        settled = settled.only(_repairable(settled, merged=len(members) > 1, keeps=keeps))
        settled = self._without_left(merged, members, settled)
        shared = self.shared
        for begin in range(0, len(settled.keys), _KEYS):
            if self.stop.is_set():
                raise ComparisonInterrupted
            part = settled.only(range(begin, min(begin + _KEYS, len(settled.keys))))
            if self.apply:
                self._write(merged, members, part.keys, removes=not keeps)
            else:
                self._print(merged, members, part, removes=not keeps)
        self.repaired += len(settled.keys) - (self.shared - shared)
        return self.apply and bool(len(settled.keys))

    def _without_left(self, merged: MergedTable, members: Sequence[SourceTable], settled: UnequalKeys) -> UnequalKeys:
        """Returns the differences without the extra rows that are removed only on request, if there is no request."""
        extra = [place for place, (kind, _) in enumerate(settled.found) if kind is DifferenceKind.EXTRA]
        kept: list[int] = []
        if not self._is_merged(merged, members):
            own = [place for place in extra if settled.belongs_to[place] != NOBODY]
            extra = [place for place in extra if settled.belongs_to[place] == NOBODY]
            if own and keeps_rows(members[0]):
                kept = own
                self.kept.add((members[0].part.config.source.source_id, members[0].name))
        found = ExtraRows.of([settled.belongs_to[place] for place in extra])
        if self.removes:
            self.removing += found
            return settled
        self.left += found
        return settled.only(sorted({*range(len(settled.found))} - {*extra, *kept}))

    def _is_merged(self, merged: MergedTable, members: Sequence[SourceTable]) -> bool:
        """Whether the table has rows of several shards, including dropped shards, which the target has on record."""
        name = merged.table.name
        if name not in self._merged:
            source = members[0].part.config.source.source_id
            self._merged[name] = len(members) > 1 or has_others(self.target, name, self.task, source)
        return self._merged[name]

    def _write(self, merged: MergedTable, members: Sequence[SourceTable], keys: pa.Table, *, removes: bool) -> None:
        """Writes the rows of these keys; waits while the task has pending changes of these rows.

        Without `removes`, no row is removed, even if the source has deleted it since the comparison.
        """
        name = merged.table.name
        origins = [
            RepairSource(
                one.part.config.source.source_id,
                one.rules.target_table(one.whole),
                partial(_read, one),
                partial(one.catch_up.caught_up, one.name),
            )
            for one in members
        ]
        self._wait.begin()
        while True:
            try:
                compares = any(one.part.config.on_divergence is not OnDivergence.OVERWRITE for one in members)
                insist = name in self._never_quiet
                done = repair(
                    self.target,
                    self.task,
                    merged.table,
                    origins,
                    keys,
                    insist=insist,
                    compares=compares,
                    removes=removes,
                )
            except PendingChanges as pending:
                if self._wait.is_over(pending.places, time.monotonic()):
                    self._never_quiet.add(name)
                if self.stop.wait(_CROWDED_PAUSE):
                    raise ComparisonInterrupted from None
                continue
            self.written += done.written
            self.removed += done.removed
            self.shared += done.shared
            return

    def _print(
        self, merged: MergedTable, members: Sequence[SourceTable], settled: UnequalKeys, *, removes: bool
    ) -> None:
        preamble, statements = _sql(self.target)
        if not self._began:
            self.print_sql("\n".join(preamble))
            self._began = True
        kinds = Counter(kind for kind, _ in settled.found)
        columns = sorted({name for _, names in settled.found for name in names})
        name = members[0].name if len(members) == 1 else merged.table.name
        self.print_sql(f"-- {name}: {', '.join(f'{count} {kind.value}' for kind, count in kinds.items())}")
        if columns:
            self.print_sql(f"-- {DifferenceKind.DIFFERENT.value} in {', '.join(columns)}")
        rows = [(one.rules.target_table(one.whole), _read(one, settled.keys)[0]) for one in members]
        remedy = as_changes(merged.table, rows, settled.keys, removes=removes)
        self.shared += remedy.shared
        for change in remedy.changes:
            for statement in statements(change):
                self.print_sql(statement)


def _repairable(settled: UnequalKeys, *, merged: bool, keeps: bool) -> list[int]:
    """Returns the places of the differences that are repaired.

    These differences are not repaired:

    - A waiting row: it will be equal when its change is applied.
    - A locked row: an operator decides about it.
    - An unsettled row of a merged table: its shard is not known.
    - With `keeps` (no extra row is removed): an unsettled row that the source does not have.
    """
    left = {DifferenceKind.WAITING, DifferenceKind.LOCKED} | ({DifferenceKind.UNSETTLED} if merged else set())
    return [
        place
        for place, (kind, _) in enumerate(settled.found)
        if kind not in left and not (keeps and kind is DifferenceKind.UNSETTLED and not settled.members[place])
    ]


def _read(member: SourceTable, keys: pa.Table) -> tuple[pa.Table, Lsn]:
    """Returns a source's rows, changed by the rules as the target gets them, and the end of the log at that time."""
    part = member.part
    chunk = read_keys(part.config.source.server, member.whole, member.own_keys(keys), whole=True)
    if chunk.altered:
        raise StructureChanged(
            "structure-changed",
            "a schema change has altered the table meanwhile",
            where=Where(table=str(member.name)),
        )
    return member.rules.rows(member.whole, chunk.rows), Lsn.at(chunk.high, part.catch_up.change_no)


def _sql(target: TargetSession) -> tuple[Sequence[str], Callable[[NetChange], Iterator[str]]]:
    """Returns the first lines of the script, and the function that writes a change as SQL of this kind of server."""
    if isinstance(target, PostgresSession):
        return postgres.PREAMBLE, partial(postgres.repair_sql, target)
    if isinstance(target, MySqlSession):
        return mysql.PREAMBLE, partial(mysql.repair_sql, target)
    if isinstance(target, CatalogConnection):
        return (
            "-- Rows of Iceberg tables are not repaired by SQL. `pidts repair --apply` writes them.",
        ), lambda _: iter(())
    raise TypeError(target)
