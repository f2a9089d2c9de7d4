"""Prepares the parts of statements that do not depend on the rows, once for each structure of a table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc

from pidts.model import Column, Halted, Kind, Table, TableName, Where
from pidts.model.errors import named
from pidts.target.fit import gone, unfit
from pidts.target.json_decimals import losing_digits, reads_documents
from pidts.target.mysql.dialect import identifier, qualified
from pidts.target.mysql.encode import stored_literals
from pidts.target.mysql.exact import is_collated
from pidts.target.mysql.few_rows import FewLiterals, few_literals
from pidts.target.mysql.server import TargetServer
from pidts.target.mysql.shape import MyTable


@dataclass(frozen=True, slots=True)
class PreparedTable:
    """The parts of the statements that write to one table, and the properties that decide between these statements."""

    table: Table
    found: MyTable
    written: tuple[Column, ...]
    """All columns except those that the target computes."""
    insert: bytes
    row_end: bytes
    """The end of each row's text."""
    update: bytes
    """The end of an INSERT that overwrites existing rows; empty for a table without a key."""
    texts: tuple[tuple[int, FewLiterals], ...]
    """For each written column, its place in the table, and the function that writes the values of a few rows as SQL."""
    is_loose: bool
    """Whether the target's collation differs, so that the target may treat keys as equal that differ on the source."""
    is_respelled: bool
    """Whether the key's texts have the same collations on source and target, so that both treat the same keys as equal.
    """
    removes_first: bool
    """Whether existing rows are deleted and inserted, since `update` would write wrong values."""
    never_null: tuple[str, ...]
    """Columns in which the server silently stores another value for NULL."""

    @property
    def rivalled(self) -> bool:
        """Whether an existing row can prevent another row from being written."""
        return bool(self.update) and (self.is_respelled or len(self.found.unique) > 1)

    def literals(self, rows: pa.Table) -> list[pa.Array]:
        """Returns the values of each written column as SQL."""
        return [stored_literals(each, self.found.column(each.name), rows[each.name]) for each in self.written]

    def losing_digits(self, rows: pa.Table) -> pa.Array | None:
        """Returns a mask of the rows with a document that LOAD DATA would change; None if there are none."""
        documents = [each.name for each in self.written if reads_documents(each, self.found.column(each.name))]
        masks = [mask for name in documents if (mask := losing_digits(rows[name])) is not None]
        return reduce(pc.or_, masks) if masks else None

    def demand_values(self, rows: pa.Table) -> None:
        """Raises if a value is NULL, and the server would store another value in this column."""
        for name in self.never_null:
            if rows[name].null_count:
                raise Halted(
                    "target-refused",
                    f"column {name} is NULL in a row of the source, and the target would store another value",
                    where=Where(table=str(self.table.name)),
                    todo="Allow NULL in the target's column, as in the source's column",
                )


def target_only_columns(table: Table, there: Table) -> tuple[str, ...]:
    """Returns the columns of the target's table that `table` lacks and that the target does not compute."""
    names = {column.name.lower() for column in table.columns}
    return tuple(column.name for column in there.columns if not column.generated and column.name.lower() not in names)


def would_lose(name: TableName, own: Sequence[str]) -> Halted:
    """Returns the error for a row that is to be deleted and inserted, and would lose the values of these columns."""
    return Halted(
        "target-shape",
        f"the target's table has {named('column', own)} of its own. TiDB cannot overwrite a BIT of 57 bits or more in "
        "a row, so PiDTS would delete and insert the row, and the row would lose its values in these columns",
        where=Where(table=str(name)),
        todo="If nothing needs these values, drop the column on the target, then run: pidts ddl retry TASK --source "
        "SOURCE --table TABLE --yes. Otherwise exclude the table in block-allow-list",
    )


class PreparedTables:
    """The prepared tables to which one session writes."""

    def __init__(self, server: TargetServer, shape: Callable[[TableName], MyTable | None]) -> None:
        self._server, self._shape = server, shape
        self._known: dict[TableName, PreparedTable] = {}

    def of(self, table: Table) -> PreparedTable:
        """Returns a prepared table; reads information_schema once for each structure."""
        known = self._known.get(table.name)
        if known is None or (known.table is not table and known.table != table):
            known = self._known[table.name] = self._made(table)
        return known

    def forget(self) -> None:
        """Forgets all prepared tables; called after DDL."""
        self._known.clear()

    def _made(self, table: Table) -> PreparedTable:
        found = self._shape(table.name)
        if found is None:
            raise gone(table.name)
        if problems := found.misfits(table):
            raise unfit(table.name, problems)
        computed = {column.name.lower() for column in found.table.columns if column.generated}
        written = tuple(column for column in table.columns if column.name.lower() not in computed)
        identifying = [name for name in table.identity if name.lower() in computed]
        names = [identifier(name) for name in (*(column.name for column in written), *identifying)]
        return PreparedTable(
            table,
            found,
            written,
            f"INSERT INTO {qualified(table.name)} ({', '.join(names)}) VALUES ".encode(),
            b",DEFAULT" * len(identifying) + b"),",
            self._on_duplicate(table, written, found).encode() if table.identity else b"",
            tuple(
                (number, few_literals(column, found.column(column.name)))
                for number, column in enumerate(table.columns)
                if column in written
            ),
            any(_is_looser(table.column(name), found.column(name)) for name in table.identity),
            _is_respelled([(table.column(name), found.column(name)) for name in table.identity]),
            any(self._server.misreads((found.column(column.name) or column).type) for column in written),
            tuple(column.name for column in written if _fills_null(found.column(column.name))),
        )

    def _on_duplicate(self, table: Table, written: tuple[Column, ...], found: MyTable) -> str:
        target, alias = qualified(table.name), self._server.row_alias

        def new(name: str) -> str:
            return f"pidts_new.{identifier(name)}" if alias else f"VALUES({identifier(name)})"

        same = []
        for name in table.identity:
            pair = f"{target}.{identifier(name)}", new(name)
            collated = is_collated(found.column(name) or table.column(name))
            same.append(" <=> ".join(f"CAST({each} AS BINARY)" if collated else each for each in pair))
        guard = next(column.name for column in written if column.name in table.identity)
        failing = self._failing(table, guard, found)
        sets = [f"{target}.{identifier(guard)} = IF({' AND '.join(same)}, {new(guard)}, {failing})"]
        sets += [
            f"{target}.{identifier(column.name)} = {new(column.name)}"
            for column in written
            if column.name not in table.identity
        ]
        return (" AS pidts_new" if alias else "") + " ON DUPLICATE KEY UPDATE " + ", ".join(sets)

    def _failing(self, table: Table, guard: str, found: MyTable) -> str:
        """Returns an SQL expression that fails if the server evaluates it."""
        if not self._server.tidb:
            # The type of the subquery's value influences the type of the IF. NULL does not change it, with one
            # exception: MariaDB rounds a FLOAT to six digits. So for floating point numbers the value is a DOUBLE.
            either = "0e0" if table.column(guard).type.kind in (Kind.FLOAT, Kind.DOUBLE) else "NULL"
            failing = f"(SELECT {either} UNION ALL SELECT {either})"
            charset = (found.column(guard) or table.column(guard)).type.charset
            # Without CONVERT, MySQL 9 converts the value to a charset such as ucs2 before it looks at the condition.
            return f"CONVERT({failing} USING {charset})" if charset else failing
        return "9" * 30 if table.column(guard).type.is_integer else "NULL"


def _is_looser(column: Column, found: Column | None) -> bool:
    """Whether the target's column may treat texts as equal that differ in the source's column.

    False for a column of another type, such as CHAR for VARCHAR: its values need not have the source's bytes.
    """
    if found is None or not is_collated(found) or found.type.kind is not column.type.kind:
        return False
    return found.type.collation != column.type.collation


def _is_respelled(pairs: Iterable[tuple[Column, Column | None]]) -> bool:
    """Whether there are text columns among these, and each has the same collation on the source and the target."""
    collated = [(column, found) for column, found in pairs if found is not None and is_collated(found)]
    return bool(collated) and all(
        column.type.kind is found.type.kind and column.type.collation == found.type.collation
        for column, found in collated
    )


def _fills_null(found: Column | None) -> bool:
    """Whether the server replaces NULL in this column.

    An AUTO_INCREMENT column gets the next number, and a TIMESTAMP the current time (on MariaDB, and on old MySQL by a
    setting).
    """
    return found is not None and (found.auto_increment or (found.type.kind is Kind.TIMESTAMP and not found.nullable))
