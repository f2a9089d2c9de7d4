"""Previews a task: what its first run would do on the target, table by table. Nothing is written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from pidts.apply import TargetSession
from pidts.model import ConfigError, PidtsError, RenderedChange, Table, TableName
from pidts.schema import type_text
from pidts.source.connection import Session, connect
from pidts.source.structures import TableSize, read_structures, table_sizes
from pidts.target.mysql.datacenter import DATA
from pidts.task.checks.channel import statements_of
from pidts.task.checks.hive import change_table_note
from pidts.task.checks.not_carried import table_notes
from pidts.task.checks.rule_hints import rule_hints
from pidts.task.checks.switch_structures import structures_at_start
from pidts.task.config.task_file import TaskConfig
from pidts.task.tables.lost_defaults import lost_default_note, lost_defaults
from pidts.task.tables.merged import Shard, by_target, own_shards, with_extracted_keys
from pidts.task.tables.target_fit import TableFit, fit_of


class FirstRunAction(StrEnum):
    """The action of the first run on one table of the target."""

    CREATE = "create"
    USE = "use"
    """The table exists and fits."""
    RECORD = "record"
    """The table's changes become records of a datacenter."""
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class ColumnPreview:
    """A column with its types on the source and the target."""

    name: str
    source_type: str
    """The type on the source; empty if the source has no such column."""
    target_type: str
    value: str | None = None
    """The value that a route writes, if the route adds this column; otherwise None."""


@dataclass(frozen=True, slots=True)
class RulePreview:
    """A rule of the task file that concerns a table."""

    map: str
    name: str
    says: str


@dataclass(frozen=True, slots=True)
class TablePreview:
    """The actions of a run for one table of the task."""

    source: TableName
    target: TableName
    rules: tuple[RulePreview, ...]
    way: FirstRunAction
    key: tuple[str, ...]
    """The columns that identify a row; empty if whole rows are compared."""
    columns: tuple[ColumnPreview, ...]
    statements: tuple[str, ...]
    """The statements that run before the table's rows are copied."""
    finish: tuple[str, ...]
    """The statements that run after the copy."""
    notes: tuple[str, ...]
    """Notes on values that will differ on the target, and on surprising effects of rules."""
    problems: tuple[str, ...]
    """The reasons why the table is refused."""
    size: TableSize | None
    """The table's size; None if the source has no statistics."""
    merged: tuple[str, ...] = ()
    """Other tables of the task with the same target table."""

    def to_json(self) -> dict[str, Any]:
        """Returns plain values for JSON."""
        return {
            "source": str(self.source),
            "target": str(self.target),
            "rules": [asdict(rule) for rule in self.rules],
            "way": self.way.value,
            "key": self.key,
            "columns": [asdict(column) for column in self.columns],
            "statements": self.statements,
            "finish": self.finish,
            "notes": self.notes,
            "problems": self.problems,
            "rows": self.size.rows if self.size else None,
            "bytes": self.size.bytes if self.size else None,
            "merged": self.merged,
        }


def preview_task(parts: Sequence[TaskConfig]) -> dict[str, list[TablePreview]]:
    """Returns the previews of all tables that the task replicates, for each source, sorted by name."""
    tables: dict[str, dict[TableName, Table]] = {}
    sizes: dict[str, Mapping[TableName, TableSize]] = {}
    for config in parts:
        source_id = config.source.source_id
        with closing(connect(config.source.server)) as source:
            tables[source_id] = _tables(config, source)
            sizes[source_id] = table_sizes(source, tables[source_id])
    besides = {}
    for config in parts:
        with closing(connect(config.source.server)) as source:
            besides[config.source.source_id] = table_notes(parts, config, source, tables)
    found = {}
    with closing(parts[0].target.server.connect()) as target:
        for config in parts:
            own = config.source.source_id
            others = [
                Shard(table, other.rules, other.source.source_id, begun=True)
                for other in parts
                if other is not config
                for table in tables[other.source.source_id].values()
            ]
            previewer = _Previewer(config, target, tables[own], others)
            found[own] = [
                previewer.preview(table, sizes[own].get(name), besides[own].get(name, ()))
                for name, table in sorted(tables[own].items())
            ]
    return found


def _tables(config: TaskConfig, source: Session) -> dict[TableName, Table]:
    """Returns the source's tables, with their structures at the place where the first run begins."""
    at_start = structures_at_start(config, source)
    if at_start:
        with closing(config.target.server.connect()) as target:
            if not target.meta.checkpoints.read(config.name, config.source.source_id):
                return at_start
    return read_structures(source, config.allow)


class _Previewer:
    def __init__(
        self, config: TaskConfig, target: TargetSession, tables: Mapping[TableName, Table], others: Sequence[Shard]
    ) -> None:
        self._config, self._target = config, target
        own = own_shards(config.rules, tables.values(), begun=True)
        self._rules, shards = with_extracted_keys(target, config.rules, tables.values(), [*own, *others])
        self._merged_shards = by_target(shards)
        self._target_names: dict[TableName, TableName] = {}
        for name in tables:
            with suppress(ConfigError):  # `preview` reports this error as a problem of the table
                self._target_names[name] = config.rules.target_name(name)

    def preview(self, table: Table, size: TableSize | None, besides: Sequence[str]) -> TablePreview:
        name = table.name
        columns: tuple[ColumnPreview, ...] = ()
        rendered = RenderedChange(())
        finish: tuple[str, ...] = ()
        if self._config.target.is_datacenter:
            return self._recorded(table, size)
        try:
            fit = fit_of(
                self._target,
                table,
                self._rules,
                copies=self._config.mode != "incremental",
                may_have_rows=True,
                other_shards=self._shards_beside(name),
            )
            columns = self._columns(table, fit.target_table)
            if fit.missing:
                rendered, finish = self._created(fit)
            elif self._config.target.allows_cutover:
                besides = [*map(lost_default_note, lost_defaults(self._config, self._target, table)), *besides]
        except PidtsError as error:
            fit = TableFit(name, table, problem=error.what)
        return TablePreview(
            source=name,
            target=self._target_names.get(name, name),
            rules=self._rules_of(name),
            way=FirstRunAction.REFUSED if fit.problem else FirstRunAction.CREATE if fit.missing else FirstRunAction.USE,
            key=fit.target_table.identity,
            columns=columns,
            statements=rendered.statements,
            finish=finish,
            notes=(
                *rendered.notes,
                *change_table_note(self._config, fit.target_table),
                *besides,
                *rule_hints(self._config.rules, table),
            ),
            problems=tuple(filter(None, fit.problem.split("; "))),
            size=size,
            merged=self._merged(name),
        )

    def _recorded(self, table: Table, size: TableSize | None) -> TablePreview:
        database = self._config.target.database
        statements = statements_of(database, self._target)
        return TablePreview(
            source=table.name,
            target=TableName(database, DATA),
            rules=self._rules_of(table.name),
            way=FirstRunAction.RECORD,
            key=(),
            columns=(),
            statements=statements,
            finish=(),
            notes=("each change after the task's first position becomes a record; existing rows are not copied",),
            problems=(),
            size=size,
        )

    def _merged(self, name: TableName) -> tuple[str, ...]:
        others = (one for one in self._shards_beside(name) if one.source or one.table.name != name)
        return tuple(sorted(map(str, others)))

    def _shards_beside(self, name: TableName) -> Sequence[Shard]:
        there = self._target_names.get(name)
        return self._merged_shards.get(there, ()) if there is not None else ()

    def _columns(self, table: Table, target_table: Table) -> tuple[ColumnPreview, ...]:
        before = {column.name: type_text(column.type) for column in table.columns}
        added = dict(self._config.rules.routes.destination(table.name).extracted)
        types = self._target.schema.column_types(target_table)
        return tuple(
            ColumnPreview(column.name, before.get(column.name, ""), there, added.get(column.name))
            for column, there in zip(target_table.columns, types, strict=True)
        )

    def _created(self, fit: TableFit) -> tuple[RenderedChange, tuple[str, ...]]:
        """Returns the statements that run before the copy, and those that run after it."""
        made = fit.made or fit.target_table
        whole = self._target.schema.create_statements(made)
        before = whole if fit.is_shared else self._target.schema.create_statements(made, before_copy=True)
        return before, tuple(statement for statement in whole.statements if statement not in before.statements)

    def _rules_of(self, name: TableName) -> tuple[RulePreview, ...]:
        """Returns the rules that concern a table. Of several matching routes, returns only the one that is used."""
        rules, sensitive = self._config.rules, self._config.allow.case_sensitive
        routed = str(rules.routes.destination(name).rule or "") if name in self._target_names else None
        return tuple(
            RulePreview(rule.map, rule.name, rule.says)
            for rule in self._config.rule_names
            if rule.fits(name, case_sensitive=sensitive) and (rule.map != "routes" or routed in (None, rule.says))
        )
