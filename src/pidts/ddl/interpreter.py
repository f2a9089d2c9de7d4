"""Determines what a DDL of the log does to the recorded structures of the source, and what the target runs for it.

Five things stand between the two. A statement may belong to an online schema change (`online_ddl`). An operator may
have ordered something else (`ordered_change`). Other sources may have rows in the target table (`protected_rows`). The
task's filters may leave out parts of the statement, and the target has other names (`target_statement`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial

from pidts.apply import SchemaChange
from pidts.batch.context import JobContext
from pidts.batch.online_ddl import followed, made_of, online_of
from pidts.batch.relevance import Meaning
from pidts.binlog import Query
from pidts.ddl.ordered_change import overrides, unfollowed
from pidts.ddl.shards.admission import ShardWaits
from pidts.ddl.shards.protected_rows import Sharing
from pidts.ddl.target_statement import landed, taken
from pidts.model import ConfigError, DdlOrder, Halted, Kind, LogEntry, Shadow, Spoken, Table, TableName, Where
from pidts.plan import Work, WorkKind
from pidts.rules import AllowList, Rules
from pidts.schema import (
    AddColumn,
    AlterTable,
    CreateTable,
    CreateTableLike,
    Dialect,
    Statement,
    StatementDml,
    Unknown,
    classify,
)
from pidts.schema.online.swap import untranslated
from pidts.shards.decide import Wait
from pidts.source import is_utc

Shadows = Callable[[], Mapping[TableName, Shadow]]
"""Returns the online schema changes that the target remembers."""


@dataclass(frozen=True, slots=True)
class Found:
    """A schema change to make, even if it is only put on record."""

    change: SchemaChange
    statement: Statement | None = None
    """The statement as the task follows it; None where it is only remembered, or not understood."""

    @property
    def table(self) -> TableName | None:
        """Returns the source table that the statement alters or creates, if it is one."""
        statement = self.statement
        return statement.table if isinstance(statement, AlterTable | CreateTable | CreateTableLike) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """A statement of the log, with the context in which it is interpreted."""

    context: JobContext
    allow: AllowList
    entry: LogEntry
    query: Query
    where: Where
    is_ours: Callable[[TableName], bool]
    order: DdlOrder | None = None
    sharing: Sharing | None = None

    def found(self, shadows: Shadows) -> Found | None:
        """Returns the change that the statement means for the task; None where it does not concern the task."""
        try:
            return self._found(shadows)
        except ConfigError as error:  # a rule cannot be applied to a name or a type from the log
            where = replace(self.where, table=error.where.table or ", ".join(map(str, self._statement.tables)))
            raise Halted(error.code, error.what, where=where, todo=error.todo) from None

    def _found(self, shadows: Shadows) -> Found | None:
        statement, order = self._statement, self.order
        if order is not None and overrides(order) and isinstance(statement, StatementDml | Unknown):
            return Found(self._as_ordered(order))
        online = online_of(self.allow)
        if isinstance(statement, Unknown) and self._taken(statement, self.query.sql) is None:
            return None
        if online.parted(statement).rest is not None:
            _demand_understood(statement, self.query.sql, self.where)
        # The planner could not decide this without the modes that the statement ran under.
        work = Meaning(self.allow, self._dialect).of_statement(statement)
        if work.kind is WorkKind.NOTHING or (work.tables is not None and not any(map(self.is_ours, work.tables))):
            return None
        remembered = shadows() if online.is_on else {}
        spoken = Spoken(self.query.sql, self.query.schema, self.query.sql_mode)
        try:
            heard = followed(self.context, self.allow, statement, spoken, remembered, self.is_ours)
        except Halted:
            if order is None or not overrides(order):
                raise
            known, forgotten = untranslated(online, statement, remembered)
            change = self._as_ordered(order)
            return Found(replace(change, structures={**change.structures, **known}, shadows=forgotten))
        runs = heard.statement
        if runs is not None and not overrides(order):
            runs = self._left_to_run(runs, work)
        if not overrides(order):
            self._demand_same_rows(work.renamed)
        if runs is not None and not overrides(order):
            runs = self._taken(runs, heard.text)
        change = self._change(heard.statement, runs, heard.structures, heard.shadows)
        renamed = {old: new for old, new in work.renamed if old in self.context.structures}
        return Found(replace(change, renamed=renamed), heard.statement)

    def _left_to_run(self, statement: Statement, work: Work) -> Statement | None:
        """Returns the statement without what would change rows of other sources; waits until all of these are known."""
        sharing = self.sharing
        if sharing is None or not sharing.looks_at(statement):
            return statement
        if absent := sharing.absent(statement):
            raise ShardWaits(Wait(absent=absent), absent=partial(sharing.absent, statement))
        return sharing.runs(statement, work, self.where, self.context.structures)

    def _demand_same_rows(self, renamed: Iterable[tuple[TableName, TableName]]) -> None:
        """Halt where the table's new name would give its rows on the target other values."""
        rules, structures = self.context.rules, self.context.structures
        for old, new in renamed:
            # Rows of a table without a key are found by all values, the extracted ones among them.
            extracts_alike = rules.routes.landing(old).extracted == rules.routes.landing(new).extracted
            has_key = old in structures and bool(structures[old].identity)
            if old in structures and not (rules.maps_alike(old, new) and (has_key or extracts_alike)):
                raise Halted(
                    "rename-moves-rows",
                    f"{old} was renamed to {new}, and by that name its rows would have other values on the target",
                    where=replace(self.where, table=str(old)),
                    todo="Say pidts ddl replace, with what gives its rows on the target the new name's values, and "
                    "renames the target's table where it is called otherwise then",
                )

    @property
    def _dialect(self) -> Dialect:
        return self.context.dialect.under(self.query.sql_mode)

    @property
    def _statement(self) -> Statement:
        return classify(self.query.sql, self.query.schema, dialect=self._dialect)

    def _taken(self, statement: Statement, text: str) -> Statement | None:
        context = self.context
        return taken(statement, text, context.rules, self.where, self._dialect, context.structures)

    def _as_ordered(self, order: DdlOrder) -> SchemaChange:
        return unfollowed(self.context, order, self.query.sql, self.query.schema, self._dialect, self.is_ours)

    def _change(
        self,
        statement: Statement | None,
        runs: Statement | None,
        structures: Mapping[TableName, Table | None],
        shadows: Mapping[TableName, Shadow | None],
    ) -> SchemaChange:
        """Returns the change: `structures` is its result on the source, and the target gets only what `runs` does."""
        context, rules = self.context, self.context.rules
        there: Mapping[TableName, Table | None] = {}
        if runs is not None:
            makes = isinstance(runs, CreateTable | CreateTableLike)
            there = structures if runs is statement or makes else made_of(context, runs, self._dialect, self.is_ours)
        return SchemaChange(
            statement=None if runs is None else landed(runs, rules),
            text=self.query.sql,
            before=_landed({name: context.structures.get(name) for name in there}, rules),
            after=_landed(there, rules),
            structures=structures,
            shadows=shadows,
            order=self.order,
            executed_at=0 if statement is None or self._needs_zone(statement) else self.entry.transaction.timestamp,
        )

    def _needs_zone(self, statement: Statement) -> bool:
        """Whether existing rows get the wall clock of a session in an unknown zone.

        A new DATETIME column whose default is the current time does that.
        """
        zone = self.query.time_zone
        if is_utc(zone) if zone not in ("", "SYSTEM") else self.context.clock_is_utc:
            return False
        return isinstance(statement, AlterTable) and any(
            isinstance(action, AddColumn)
            and action.column.type.kind is Kind.DATETIME
            and (action.column.default or "").lower().startswith("current_timestamp")
            for action in statement.actions
        )


def _landed(tables: Mapping[TableName, Table | None], rules: Rules) -> dict[TableName, Table | None]:
    """Returns the structures by the target's names; a renamed table may keep its name on the target."""
    found: dict[TableName, Table | None] = {rules.landed_name(name): None for name in tables}
    return found | {
        rules.landed_name(table.name): rules.landed(table) for table in tables.values() if table is not None
    }


def _demand_understood(statement: Statement, text: str, where: Where) -> None:
    where = replace(where, table=", ".join(map(str, statement.tables)))
    if isinstance(statement, Unknown):
        raise Halted(
            "ddl-not-understood",
            f"a statement in the log cannot be followed ({statement.reason}): {text[:200]}",
            where=where,
            todo="Have the target do it and skip it, or replace it (pidts ddl skip, pidts ddl replace)",
        )
    if isinstance(statement, StatementDml):
        raise Halted(
            "statement-format",
            f"rows were changed by a statement in the log instead of row events: {text[:200]}",
            where=where,
            todo="SET GLOBAL binlog_format = 'ROW' on the source, reconnect its clients, and copy the table again",
        )
