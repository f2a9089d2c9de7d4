"""Connects a comparison with a task's sources and its target."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field, replace

from pidts.apply import TargetSession
from pidts.model import TableName
from pidts.rules import AllowList
from pidts.source.connection import connect
from pidts.task.compare.catch_up import UNSEEN_SECONDS, TaskCatchUp
from pidts.task.compare.source import OpenPart, SourceTable
from pidts.task.compare.table_pairs import TakesTable, label, read_merged_tables, target_names
from pidts.task.compare.target import target_rows
from pidts.task.config.task_file import TaskConfig
from pidts.task.operate.warehouse import demand_warehouse
from pidts.verify import (
    EXACT,
    ICEBERG,
    POSTGRES,
    Callbacks,
    ComparisonInterrupted,
    ComparisonProgress,
    ComparisonState,
    Elsewhere,
    MergedCatchUp,
    MergedSource,
    MergedTable,
    Normals,
    Report,
    TableReport,
    compare,
)


def compare_task(
    *parts: TaskConfig,
    examples: int = 100,
    takes: TakesTable | None = None,
    memory: ComparisonState | None = None,
    callbacks: Callbacks | None = None,
    say: Callable[[str], None] = lambda _: None,
    elsewhere: Elsewhere | None = None,
) -> Report:
    """Compares every table that `takes` selects (None: all tables), on all sources.

    `say` receives a line when the comparison has to wait for the task. The other arguments are those of
    `Comparison.run`.
    """
    callbacks = callbacks or Callbacks()
    with opened_comparison(parts, takes or (lambda _: True), stop=callbacks.stop, say=say) as comparison:
        return comparison.run(examples=examples, memory=memory, callbacks=callbacks, elsewhere=elsewhere)


@contextmanager
def opened_comparison(
    parts: Sequence[TaskConfig],
    takes: TakesTable,
    left: set[ShownTable] | None = None,
    *,
    writes: bool = False,
    stop: threading.Event | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> Iterator[Comparison]:
    """Opens connections to all servers. Leaves out tables that lack rows on purpose; `left` gets their names.

    `writes`: unequal rows are repaired, so tables are refused that the account can only read.
    """
    with ExitStack() as stack:
        target = stack.enter_context(closing(parts[0].target.server.connect()))
        demand_warehouse(target)
        opened = []
        for config in parts:
            source = stack.enter_context(closing(connect(config.source.server)))
            prefix = f"{config.source.source_id}: " if len(parts) > 1 else ""
            catch_up = TaskCatchUp(
                config, source, target, stop=stop, say=say, prefix=prefix, unseen_seconds=UNSEEN_SECONDS
            )
            opened.append(OpenPart(config, source, catch_up))
        yield Comparison(tuple(opened), target, takes, left, writes)


@dataclass(frozen=True, slots=True, order=True)
class ShownTable:
    """A table as a report names it: two sources may have tables of the same name."""

    source: str
    """The source's id; empty if the task has one source, or if the table is merged."""
    name: TableName

    def __str__(self) -> str:
        return f"{self.source}: {self.name}" if self.source else str(self.name)


@dataclass(frozen=True, slots=True)
class Comparison:
    """A comparison of a task whose connections are open."""

    parts: tuple[OpenPart, ...]
    target: TargetSession
    takes: TakesTable
    left: set[ShownTable] | None
    writes: bool
    known: dict[TableName, MergedTable] = field(default_factory=dict)
    """All compared target tables, as they were last read."""

    def run(
        self,
        *,
        examples: int = 100,
        memory: ComparisonState | None = None,
        callbacks: Callbacks | None = None,
        elsewhere: Elsewhere | None = None,
    ) -> Report:
        """Compares all target tables, or continues the interrupted comparison in `memory`.

        The report names a single table as its source does, and a merged table as the target does.
        """
        callbacks = callbacks or Callbacks()

        def read() -> dict[TableName, MergedTable]:
            merged_tables = self.merged_tables()
            self.known.update(merged_tables)
            return merged_tables

        def show(progress: ComparisonProgress) -> None:
            callbacks.show(replace(progress, table=display_name(self.known, progress.table)))

        source = MergedSource(read, self.members)
        try:
            report = compare(
                source,
                target_rows(self.target, lambda: source.merged_tables, writes=self.writes),
                MergedCatchUp(lambda: source.merged_tables),
                normals=normals_of(self.parts[0].config),
                examples=examples,
                memory=memory,
                callbacks=replace(callbacks, show=show),
                elsewhere=elsewhere,
            )
        except ComparisonInterrupted as stopped:
            stopped.report = self._with_display_names(stopped.report)
            raise
        return self._with_display_names(report)

    def merged_tables(self) -> dict[TableName, MergedTable]:
        """Returns the tables to compare, with the servers' current structures."""
        found = read_merged_tables(self.parts, self.target, self.takes)
        if self.left is not None:
            lacking = {name for name, merged in found.items() if any(map(lacks_rows, members_of(merged)))}
            self.left.update(
                ShownTable(self._source(members_of(found[name])), display_name(found, name)) for name in lacking
            )
            found = {name: merged for name, merged in found.items() if name not in lacking}
        return found

    def members(self, name: TableName) -> frozenset[str]:
        """Returns the labels of all source tables whose target table this is now."""
        return frozenset(label(self.parts, part, one) for part, one in target_names(self.parts).get(name, ()))

    def _source(self, members: Sequence[SourceTable]) -> str:
        """Returns the source's id if the table is not merged and the task has several sources, otherwise no text."""
        return members[0].part.config.source.source_id if len(members) == 1 and len(self.parts) > 1 else ""

    def _with_display_names(self, report: Report) -> Report:
        return replace(
            report,
            tables=tuple(self._with_display_name(one) for one in report.tables),
            examples=tuple(replace(one, table=display_name(self.known, one.table)) for one in report.examples),
        )

    def _with_display_name(self, report: TableReport) -> TableReport:
        merged = self.known.get(report.table)
        if merged is None:
            return report
        members = members_of(merged)
        return replace(
            report,
            table=display_name(self.known, report.table),
            filtered=any(map(keeps_rows, members)),
            only_extra=not any(map(lacks_rows, members)),
            source=self._source(members),
            members=tuple(one.label for one in members) if len(members) > 1 else (),
            note=merged.note,
        )


def members_of(merged: MergedTable) -> tuple[SourceTable, ...]:
    """Returns the source tables of a merged table."""
    return tuple(one for one in merged.members if isinstance(one, SourceTable))


def display_name(merged_tables: Mapping[TableName, MergedTable], name: TableName) -> TableName:
    """Returns the name to show for the target table `name`: if it has one source table, the name of that table."""
    merged = merged_tables.get(name)
    return merged.members[0].name if merged is not None and len(merged.members) == 1 else name


def keeps_rows(member: SourceTable) -> bool:
    """Whether the target keeps rows that the source no longer has, because of filters. Extra rows are then intended."""
    return member.rules.keeps_rows(member.name)


def lacks_rows(member: SourceTable) -> bool:
    """Whether filters leave out inserts or updates. Then missing and different rows are intended."""
    return member.rules.keeps_away(member.name)


def normals_of(config: TaskConfig) -> Normals:
    """Returns the forms in which values are compared: each kind of target stores some values differently."""
    return {"postgresql": POSTGRES, "iceberg": ICEBERG, "hive": ICEBERG}.get(config.target.type, EXACT)


def chosen(tables: str) -> TakesTable:
    """Parses `--tables a.b,c.*`; an empty text selects all tables."""
    return AllowList.parse(tables) if tables else lambda _: True
