"""Decides whether a transaction in the relay contains, for one task, nothing, rows to write, or a schema change."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from pidts.batch.online_ddl import online_of
from pidts.batch.side_effects import Logged, SideEffects
from pidts.model import LogEntry, TableName, Transaction
from pidts.model.zone import left_out_in, origin_of
from pidts.plan import NOTES, Relevance, RelevanceKind
from pidts.rules import AllowList, EventFilter, FilterDecision
from pidts.schema import (
    AddKey,
    AlterDatabase,
    AlterTable,
    ChangeColumn,
    ConvertCharset,
    CreateDatabase,
    CreateTable,
    CreateTableLike,
    Dialect,
    DropColumn,
    DropConstraint,
    DropDatabase,
    DropKey,
    DropTable,
    IgnoredStatement,
    ModifyColumn,
    PartitionRows,
    RenameKey,
    RenameTable,
    RenameTo,
    Statement,
    StatementDml,
    Unknown,
    classify,
)
from pidts.schema.parse.classify import WITH_OTHERS

_TOUCHES_KEYS = (AddKey, ChangeColumn, ConvertCharset, DropColumn, DropConstraint, DropKey, ModifyColumn, RenameKey)
_NOTHING = Relevance(RelevanceKind.NOTHING)
FOREIGN = Relevance(RelevanceKind.NOTHING)
"""The relevance of a statement that names only other tables, and that has no row events or is not understood.

Compare with this object by `is`.
"""
_TEMPORARY = Relevance(RelevanceKind.NOTHING)
"""The relevance of a statement on temporary tables, or of DO RELEASE_LOCK. Compare with this object by `is`."""
_COMES_BACK = Relevance(RelevanceKind.NOTHING, comes_back=True)
_MOST_ROWS, _MOST_WIDE, _MOST_STATEMENTS = 1 << 15, 1024, 4096
"""The most relevances that are cached: of transactions with few tables, of wide transactions, and of statements. A
task may have 20,000 tables, and its transactions change each of them in turn.
"""
_FEW_TABLES, _MANY_TABLES = 8, 256
"""A transaction with more than `_FEW_TABLES` tables is wide. The relevance of a transaction with more than
`_MANY_TABLES` is not cached, since such a transaction may have thousands of tables.
"""
_LONGEST_STATEMENT = 4096
"""The relevance of a statement with more characters is not cached."""
_Judged: TypeAlias = tuple[Relevance, tuple[TableName, ...]]
"""The relevance of a statement, and the tables to which it writes without row events."""


def written_by(statement: Statement) -> tuple[TableName, ...]:
    """Returns the tables to which a statement without row events writes, except the tables that it creates."""
    return statement.tables if isinstance(statement, StatementDml) else ()


def is_judged(relevance: Relevance) -> bool:
    """Whether a statement names no table of the task, but may change one by a function, a trigger or a view."""
    return relevance is FOREIGN or relevance is _TEMPORARY


@dataclass(frozen=True, slots=True)
class TransactionClassifier:
    """Classifies transactions by the tables that the task replicates."""

    allow: AllowList
    dialect: Dialect
    events: EventFilter = field(default_factory=EventFilter)
    """The filter for statements that cannot be parsed. All other statements are filtered when they are run."""
    marks_in: str = ""
    """The meta schema in which transactions mark the zone that they came from; empty without two zones."""
    forwards: frozenset[str] = frozenset()
    """The other zones whose changes the task passes on; it leaves out the changes of all further zones."""
    returns_to: str = ""
    """The target's zone if versions decide between zones, otherwise empty. If a DELETE from the target's zone removes a
    row in the source's zone, the task carries this removal back (`pidts.apply.rows.convergence`).
    """
    reads_notes: bool = False
    """Whether the task reads the source's notes about changes that were already made (`apply.locks.zone_notes`)."""
    side_effects: SideEffects | None = field(default=None, compare=False, repr=False)
    """Finds statements on other tables that may have changed the task's tables. None: such statements are ignored."""
    _rows: dict[tuple[TableName, ...], Relevance] = field(default_factory=dict, init=False, compare=False, repr=False)
    """The relevance of rows of the tables in the key. Most transactions change the same tables."""
    _wide: dict[tuple[TableName, ...], Relevance] = field(default_factory=dict, init=False, compare=False, repr=False)
    """The same as `_rows`, for keys with many tables."""
    _statements: dict[tuple[str, str], _Judged] = field(default_factory=dict, init=False, compare=False, repr=False)
    """The relevance of the statement and the schema in the key. Parsing takes long, and each table that has waited
    reads the statements on other tables again.
    """

    def __call__(self, entry: LogEntry) -> Relevance:
        """Returns the relevance of an entry of the log."""
        transaction = entry.transaction
        if transaction.ddl is not None:
            logged = self.side_effects.logged(entry) if self.side_effects is not None else tuple
            relevance = self.of_schema_change(transaction, logged)
            if relevance.kind is RelevanceKind.DDL:
                return relevance
        if transaction.row_events:
            return self._rows.get(transaction.tables) or self._of_rows(transaction.tables)
        return _NOTHING

    def of_schema_change(self, transaction: Transaction, logged: Logged = tuple) -> Relevance:
        """Returns the relevance of a transaction's statement, whatever rows the transaction has.

        `logged` reads the transaction's statements from the log, to find their side effects.
        """
        if transaction.ddl is None:
            return _NOTHING
        effects = self.side_effects
        known = effects.judged(transaction.lsn) if effects is not None else None
        if known is None:
            relevance, tables = self._of_ddl(transaction.ddl, transaction.ddl_schema)
            if effects is None or not is_judged(relevance):
                return relevance
            known = effects.may_reach(transaction, tables, logged)
        return Relevance(RelevanceKind.DDL) if known else _NOTHING

    def _of_rows(self, tables: tuple[TableName, ...]) -> Relevance:
        cached, most = (self._rows, _MOST_ROWS) if len(tables) <= _FEW_TABLES else (self._wide, _MOST_WIDE)
        if (known := cached.get(tables)) is not None:
            return known
        ours = frozenset(filter(self.allow, tables))
        relevance = Relevance(RelevanceKind.ROWS, ours) if ours else _NOTHING
        origin = origin_of(self.marks_in, tables) if self.marks_in else ""
        if origin and origin == self.returns_to and ours:
            relevance = replace(relevance, is_returned=True)
        elif self.reads_notes and (origin or not ours) and (notes := left_out_in(self.marks_in, tables)):
            relevance = Relevance(RelevanceKind.ROWS, frozenset({notes}), origin=NOTES)
        elif origin:
            relevance = replace(relevance, origin=origin) if origin in self.forwards else _COMES_BACK
        if len(tables) > _MANY_TABLES:
            return relevance
        if len(cached) >= most:
            cached.clear()
        return cached.setdefault(tables, relevance)

    def _of_ddl(self, text: str, schema: str) -> _Judged:
        if (known := self._statements.get((text, schema))) is not None:
            return known
        statement = self._statement(text, schema)
        found = self.of_statement(statement), written_by(statement)
        if len(text) > _LONGEST_STATEMENT:
            return found
        if len(self._statements) >= _MOST_STATEMENTS:
            self._statements.clear()
        return self._statements.setdefault((text, schema), found)

    def _statement(self, text: str, schema: str) -> Statement:
        """Parses a statement without its SQL modes, which the index does not have.

        ANSI_QUOTES is the only SQL mode that could hide names. So if a statement cannot be parsed, it is parsed once
        more with this mode.
        """
        statement = classify(text, schema, dialect=self.dialect)
        if isinstance(statement, Unknown):
            return classify(text, schema, dialect=replace(self.dialect, ansi_quotes=True))
        return statement

    def of_statement(self, statement: Statement) -> Relevance:
        """Returns the relevance of a statement. A statement that cannot be parsed counts as DDL, and ends the batch.

        A statement about a shadow table counts as a statement about its table. When the shadow table gets the table's
        name, nothing here shows which statements have altered the shadow table. So the table's key may have changed.
        """
        parts = online_of(self.allow).split(statement)
        relevance = self._of_real(parts.rest) if parts.rest is not None else _NOTHING
        if not parts.shadows or (relevance.kind is RelevanceKind.DDL and relevance.tables is None):
            return relevance
        swapped = tuple(name for _, name in parts.swapped if self.allow(name))
        names = {*swapped, *(relevance.tables or ())}
        for shadow in parts.shadows:
            reals = online_of(self.allow).reals(shadow)
            if reals is None and self.allow.takes_schema(shadow.schema):
                return replace(relevance, kind=RelevanceKind.DDL, tables=None, recopied=swapped)
            names.update(filter(self.allow, reals or ()))
        if not names:
            return relevance
        recopied = (*relevance.recopied, *swapped)
        return replace(relevance, kind=RelevanceKind.DDL, tables=frozenset(names), recopied=recopied)

    def _of_real(self, statement: Statement) -> Relevance:
        match statement:
            case IgnoredStatement():
                return _TEMPORARY if statement in WITH_OTHERS else _NOTHING
            case Unknown(sql=text) if self.events(TableName("", ""), (), text) is FilterDecision.SKIP:
                return _NOTHING
            case CreateDatabase(name=name, or_replace=False) | AlterDatabase(name=name):
                return Relevance(RelevanceKind.DDL, schemas=(name,)) if self.allow.takes_schema(name) else _NOTHING
            case DropDatabase(name=name) | CreateDatabase(name=name):
                return (
                    Relevance(RelevanceKind.DDL, schemas=(name,), gone_schemas=(name,))
                    if self.allow.takes_schema(name)
                    else _NOTHING
                )
            case Unknown() | StatementDml() if not statement.tables:
                return Relevance(RelevanceKind.DDL)
            case _ if not any(map(self.allow, statement.tables)):
                return FOREIGN if isinstance(statement, StatementDml | Unknown) else _NOTHING
            case Unknown() | StatementDml():
                return Relevance(RelevanceKind.DDL)
            case _:
                return replace(self._of_tables(statement), tables=frozenset(filter(self.allow, statement.tables)))

    def _of_tables(self, statement: Statement) -> Relevance:
        match statement:
            case DropTable():
                return Relevance(RelevanceKind.DDL, gone=statement.tables)
            case CreateTable(or_replace=True) | CreateTableLike(or_replace=True):
                return Relevance(RelevanceKind.DDL, gone=(statement.table,))
            case RenameTable(pairs=pairs):
                return self._renaming(pairs)
            case AlterTable(table=table, actions=actions):
                relevance = self._renaming((table, action.name) for action in actions if isinstance(action, RenameTo))
                taken = (
                    one.other for one in actions if isinstance(one, PartitionRows) and one.takes_other and one.other
                )
                relevance = replace(relevance, gone=(*relevance.gone, *taken))
                rekeyed = any(isinstance(action, _TOUCHES_KEYS) for action in actions)
                return replace(relevance, recopied=(table,)) if rekeyed else relevance
            case _:
                return Relevance(RelevanceKind.DDL)

    def _renaming(self, pairs: Iterable[tuple[TableName, TableName]]) -> Relevance:
        """Returns the relevance of a RENAME. The pairs are followed in order: a third name may help to swap two."""
        first_names: dict[TableName, TableName] = {}
        for old, new in pairs:
            first_names[new] = first_names.pop(old, old)
        renamed = {first: last for last, first in first_names.items()}
        return Relevance(
            RelevanceKind.DDL,
            gone=tuple(name for name, last in renamed.items() if not self.allow(last)),
            renamed=tuple((name, last) for name, last in renamed.items() if self.allow(last)),
        )
