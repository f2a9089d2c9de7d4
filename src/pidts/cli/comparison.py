"""A task's source, its target and what is between them, as a comparison asks for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace

import pyarrow as pa

from pidts.apply import TargetSession
from pidts.cli.flight import TaskFlight
from pidts.copy import highest, ranges, read_snapshot
from pidts.model import Kind, Table, TableName
from pidts.rules import AllowList, Rules, mapping_of
from pidts.source.checksums import row_sum
from pidts.source.connection import Session, SourceConfig, connect, query, server_info
from pidts.source.position import row_lock
from pidts.source.rows import find_rows, last_key, select_range
from pidts.source.sizes import table_sizes
from pidts.source.structures import quoted_table, read_structure, read_structures
from pidts.task.compose import source_config, target_of
from pidts.task.config import TaskConfig
from pidts.verify import (
    EXACT,
    POSTGRES,
    Key,
    Memory,
    Normals,
    Order,
    Outside,
    Report,
    Size,
    Span,
    Sum,
    compare,
)
from pidts.verify.keys import is_ordered, native

_SPANS_AT_ONCE = 4
_LABELS = frozenset({Kind.ENUM, Kind.SET})

TakesTable = Callable[[TableName], bool]
RowSum = Callable[[Table, Sequence[object] | None, Sequence[object] | None], tuple[int, int] | None]


def compare_task(
    config: TaskConfig,
    *,
    examples: int = 100,
    takes: TakesTable | None = None,
    memory: Memory | None = None,
    outside: Outside | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> Report:
    """Every table of the task that `takes` lets pass."""
    outside = outside or Outside()
    with closing(connect(source_config(config))) as source, closing(target_of(config).connect()) as target:
        there = SourceRows(config, source, takes or (lambda _: True))
        here = target_rows(config, target)
        flight = TaskFlight(config, source, target, stop=outside.stop, say=say)
        report = compare(
            there, here, flight, normals=normals_of(config), examples=examples, memory=memory, outside=outside
        )
    return replace(
        report, tables=tuple(replace(one, filtered=config.rules.keeps_rows(one.table)) for one in report.tables)
    )


def normals_of(config: TaskConfig) -> Normals:
    """What the kind of target changes of values by agreement."""
    return POSTGRES if config.target.type == "postgresql" else EXACT


def chosen(tables: str) -> TakesTable:
    """`--tables a.b,c.*`; nothing chooses all."""
    return AllowList.parse(tables) if tables else lambda _: True


class SourceRows:
    """The source, on one connection."""

    def __init__(self, config: TaskConfig, session: Session, takes: TakesTable) -> None:
        self._config, self._session, self._takes = config, session, takes
        self._lock = row_lock(server_info(session))
        self._floats = config.target.type != "postgresql"

    def tables(self) -> Sequence[Table]:
        """In the order of their names."""
        found = read_structures(self._session, lambda name: self._config.allow(name) and self._takes(name))
        return list(found.values())

    def structure(self, name: TableName) -> Table | None:
        """From information_schema."""
        return read_structure(self._session, name)

    def size(self, table: Table) -> Size:
        """From the engine's statistics."""
        found = table_sizes(self._session, [table.name]).get(table.name)
        return Size() if found is None else Size(found.rows, found.bytes // max(found.rows, 1))

    def highest(self, table: Table) -> Key | None:
        """By the server's own order."""
        return highest(self._session, table)

    def spans(self, table: Table, span: Span, rows: int) -> Iterator[Span]:
        """Cut while they are used: no more of the table is gone through than is compared."""
        after = span.after
        while True:
            for one in ranges(self._session, table, after, span.upto, rows, _SPANS_AT_ONCE):
                yield Span(one.after, one.upto)
                if one.is_last:
                    return
                after = one.upto

    def sum(self, table: Table, span: Span) -> Sum | None:
        """As the server has the rows just now."""
        found = row_sum(self._session, table, span.after, span.upto, floats=self._floats)
        return None if found is None else Sum(*found)

    def rows(self, table: Table, span: Span) -> pa.Table:
        """In the order of the key."""
        return select_range(self._session, table, span.after, span.upto)

    def find(self, table: Table, keys: pa.Table) -> pa.Table:
        """With all that the log holds, also where the server shows rows later than it logs them."""
        return find_rows(self._session, table, keys, whole=True, lock=self._lock)

    def count(self, table: Table) -> int:
        """Exact."""
        return int(query(self._session, f"SELECT COUNT(*) FROM {quoted_table(table.name)}")[0][0])

    def all(self, table: Table) -> Iterator[pa.Table]:
        """On a connection of its own, from one snapshot."""
        with read_snapshot(self._source, table) as snapshot:
            yield from snapshot.batches

    @property
    def _source(self) -> SourceConfig:
        return source_config(self._config)


class TargetRows:
    """The target, on one connection; tables are the source's, whose columns are compared where their rows land."""

    def __init__(self, session: TargetSession, row_sum: RowSum, rules: Rules, *, is_postgres: bool) -> None:
        self._session, self._row_sum, self._rules, self._is_postgres = session, row_sum, rules, is_postgres

    def order(self, table: Table) -> Order:
        """Text is ordered by collations, which PostgreSQL has of its own."""
        if is_ordered(table):
            has_bits = any(table.column(name).type.kind is Kind.BIT for name in table.identity)
            return Order.OTHER if has_bits and self._is_postgres else Order.SAME
        texts = all(_is_plain_text(table, name) for name in table.identity)
        return Order.LIKELY if texts and not self._is_postgres else Order.OTHER

    def misfits(self, table: Table) -> list[str] | None:
        """From the catalogue; values that a rule changes on their way cannot be compared by the servers."""
        found = self._session.misfits(self._rules.landed(table))
        mapping = mapping_of(self._rules.mappings, table.name)
        if found is None or mapping is None:
            return found
        return [*found, f"column {mapping.target_column} is mapped on its way, and is not compared with the source's"]

    def sum(self, table: Table, span: Span) -> Sum | None:
        """As the server has the rows just now."""
        after, upto = (self._values(table, key) for key in (span.after, span.upto))
        found = self._row_sum(self._landed(table), after, upto)
        return None if found is None else Sum(*found)

    def find(self, table: Table, keys: pa.Table) -> pa.Table:
        """By lists of keys."""
        return self._session.read_rows(self._landed(table), keys=keys)

    def keys(self, table: Table, after: Key | None, rows: int) -> tuple[pa.Table, Key | None]:
        """Labels are ordered by number and compared by text: such keys are read all at once."""
        table = self._landed(table)
        if any(table.column(name).type.kind in _LABELS for name in table.identity):
            found = self._session.read_rows(_identity_alone(table)) if after is None else table.arrow.empty_table()
        else:
            found = self._session.read_rows(_identity_alone(table), after=self._values(table, after), limit=rows)
        return found.select(list(table.identity)), last_key(found, table)

    def all(self, table: Table) -> Iterator[pa.Table]:
        """At once."""
        yield self._session.read_rows(self._landed(table))

    def _landed(self, table: Table) -> Table:
        return table.renamed(self._rules.landed_name(table.name))

    def _values(self, table: Table, key: Key | None) -> Sequence[object] | None:
        """As a statement is given them; PostgreSQL takes its bits one by one."""
        if key is None:
            return None
        kinds = [table.column(name).type for name in table.identity]
        return [
            f"{value:0{kind.length}b}" if self._is_postgres and kind.kind is Kind.BIT and kind.length else value
            for kind, value in zip(kinds, native(table, key), strict=True)
        ]


def target_rows(config: TaskConfig, session: TargetSession) -> TargetRows:
    """With the sums of its kind of server."""
    from functools import partial

    if config.target.type == "postgresql":
        from pidts.target.postgres import PostgresSession
        from pidts.target.postgres.checksums import row_sum as postgres_sum

        if isinstance(session, PostgresSession):
            return TargetRows(session, partial(postgres_sum, session), config.rules, is_postgres=True)
    from pidts.target.mysql import MySqlSession
    from pidts.target.mysql.checksums import row_sum as mysql_sum

    if isinstance(session, MySqlSession):
        return TargetRows(session, partial(mysql_sum, session), config.rules, is_postgres=False)
    raise TypeError(session)


def _identity_alone(table: Table) -> Table:
    columns = tuple(table.column(name) for name in table.identity)
    keys = tuple(key for key in table.keys if key.columns == table.identity)
    return replace(table, columns=columns, keys=keys)


def _is_plain_text(table: Table, name: str) -> bool:
    kind = table.column(name).type
    return kind.is_integer or (kind.is_text and kind.kind not in _LABELS)
