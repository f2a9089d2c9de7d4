"""Net changes into MySQL, MariaDB and TiDB: DELETE by lists of keys, then INSERT ... ON DUPLICATE KEY UPDATE.

ON DUPLICATE KEY UPDATE fires on *any* unique key. A new row whose secondary unique value still belongs to another
row would overwrite that row and itself vanish, without an error. So each column of the identity is set to `IF(it
equals the new one, the new one, NULL)`: where the server has picked another row than the one with our identity, NULL
in a NOT NULL column ends the statement with an error.

Text is compared byte by byte there. A key whose collation on the target holds more texts equal than the source's does
(`a` and `a ` under PAD SPACE, accents, case) would take two rows of the source for one and keep the later.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from pidts.model import Column, Halted, Kind, Table, TableName, Where
from pidts.reduce import NetChange
from pidts.target.mysql.dialect import identifier, qualified
from pidts.target.mysql.encode import Limits, joined, literals, statements, tuples, wrapped
from pidts.target.mysql.errors import Refused
from pidts.target.mysql.server import Server
from pidts.target.mysql.shape import MyTable

_NOT_NULL = 1048
_ROWS = 1000
_KEYS = 1000
_COMPOSITE_KEYS = 200
_SIZE = 4 << 20
_PART = 64 << 20
"""Bytes of Arrow data that are turned into text at once."""

Execute = Callable[[bytes, str], int]
"""Runs a statement about a table and gives the number of warnings."""
Warnings = Callable[[], list[tuple[int, str]]]


@dataclass(frozen=True, slots=True)
class _Plan:
    table: Table
    written: tuple[Column, ...]
    """All but those that the target computes."""
    insert: bytes
    update: bytes


class Writer:
    """Belongs to one session."""

    def __init__(
        self,
        server: Server,
        shape: Callable[[TableName], MyTable | None],
        execute: Execute,
        warnings: Warnings,
    ) -> None:
        self._server, self._shape, self._execute, self._warnings = server, shape, execute, warnings
        self._plans: dict[TableName, _Plan] = {}
        self._limits = Limits(_ROWS, min(_SIZE, server.max_packet - 1024), server.max_packet - 16)

    def write(self, change: NetChange) -> None:
        """Deletes first, so that a value may move from one row to another."""
        plan = self._plan(change.table)
        for part in _parts(change.deletes):
            self._delete(plan, part)
        for part in _parts(change.upserts):
            self._upsert(plan, part)

    def forget(self) -> None:
        """After DDL."""
        self._plans.clear()

    def _plan(self, table: Table) -> _Plan:
        known = self._plans.get(table.name)
        if known is None or (known.table is not table and known.table != table):
            known = self._plans[table.name] = self._made(table)
        return known

    def _made(self, table: Table) -> _Plan:
        shape = self._shape(table.name)
        problems = ["there is no such table"] if shape is None else shape.misfits(table)
        if not table.identity:
            problems.append("its rows cannot be told apart: no primary key and no unique key without NULL")
        if shape is None or problems:
            raise Halted(
                "target-shape",
                f"the target's table does not fit: {'; '.join(problems)}",
                where=Where(table=str(table.name)),
                todo="Change the target's table to what the source has, or drop it and copy it anew",
            )
        computed = {column.name.lower() for column in shape.table.columns if column.generated}
        written = tuple(column for column in table.columns if column.name.lower() not in computed)
        names = [identifier(column.name) for column in written]
        insert = f"INSERT INTO {qualified(table.name)} ({', '.join(names)}) VALUES "
        return _Plan(table, written, insert.encode(), self._on_duplicate(table, written).encode())

    def _on_duplicate(self, table: Table, written: tuple[Column, ...]) -> str:
        alias = self._server.row_alias
        sets = []
        for column in written:
            name = identifier(column.name)
            new = f"pidts_new.{name}" if alias else f"VALUES({name})"
            if column.name in table.identity:
                old = f"{qualified(table.name)}.{name}"
                same = f"CAST({old} AS BINARY) <=> CAST({new} AS BINARY)" if _collated(column) else f"{old} <=> {new}"
                new = f"IF({same}, {new}, NULL)"
            sets.append(f"{qualified(table.name)}.{name} = {new}")
        return (" AS pidts_new" if alias else "") + " ON DUPLICATE KEY UPDATE " + ", ".join(sets)

    def _delete(self, plan: _Plan, keys: pa.Table) -> None:
        """A list of pairs is not looked up by index on every server; alternatives of conditions are."""
        table = plan.table
        values = [literals(table.column(name), keys[name]) for name in table.identity]
        target = qualified(table.name)
        if len(values) == 1:
            head = f"DELETE FROM {target} WHERE {identifier(table.identity[0])} IN (".encode()
            self._run(plan, head, wrapped(values[0], b"", b","), b")", 1, _KEYS)
            return
        equal = [
            wrapped(v, f"{identifier(name)}=".encode(), b"") for name, v in zip(table.identity, values, strict=True)
        ]
        alternatives = wrapped(joined(equal, b" AND "), b"(", b") OR ")
        self._run(plan, f"DELETE FROM {target} WHERE ".encode(), alternatives, b"", 4, _COMPOSITE_KEYS)

    def _upsert(self, plan: _Plan, rows: pa.Table) -> None:
        odd = _invalid_labels(plan, rows)
        if odd is not None:
            self._upsert_invalid_labels(plan, rows.filter(odd))
            rows = rows.filter(pc.invert(odd))
        self._run(plan, plan.insert, self._values(plan, rows), plan.update, 1, _ROWS)

    def _values(self, plan: _Plan, rows: pa.Table) -> pa.Array:
        return tuples([literals(column, rows[column.name]) for column in plan.written])

    def _upsert_invalid_labels(self, plan: _Plan, rows: pa.Table) -> None:
        """An enum's index 0 is refused in strict mode: these few rows go without it, and each warning is read."""
        limits = Limits(_ROWS // 10, self._limits.size, self._limits.packet)
        name = str(plan.table.name)
        self._execute(b"SET @pidts_mode = @@SESSION.sql_mode", name)
        self._execute(
            b"SET SESSION sql_mode = 'NO_AUTO_VALUE_ON_ZERO,ALLOW_INVALID_DATES,NO_ENGINE_SUBSTITUTION'", name
        )
        enums = [column.name for column in plan.written if column.type.kind is Kind.ENUM]
        for sql, _, _ in statements(plan.insert, self._values(plan, rows), plan.update, limits, cut=1):
            if self._execute(sql, name):
                for number, text in self._warnings():
                    if number != 1265 or not any(f"'{enum}'" in text for enum in enums):
                        raise Halted(
                            "target-refused", f"the target: {text} (warning {number})", where=Where(table=name)
                        )
        self._execute(b"SET SESSION sql_mode = @pidts_mode", name)

    def _run(self, plan: _Plan, head: bytes, rows: pa.Array, tail: bytes, cut: int, most: int) -> None:
        limits = Limits(most, self._limits.size, self._limits.packet)
        name = str(plan.table.name)
        for sql, _, _ in statements(head, rows, tail, limits, cut=cut):
            try:
                self._execute(sql, name)
            except Refused as error:
                if error.number == _NOT_NULL and tail == plan.update:
                    raise _collision(plan) from error
                raise


def _collision(plan: _Plan) -> Halted:
    """The guard's NULL, or one that the source sent for a column that is NOT NULL on the target."""
    return Halted(
        "target-refused",
        "a row would overwrite another one that the target holds equal to it in a unique key (or a column that may be "
        "NULL on the source is NOT NULL on the target)",
        where=Where(table=str(plan.table.name)),
        todo="Give the target's unique keys the source's columns and collations, or copy the table again",
    )


def _collated(column: Column) -> bool:
    """Text that a collation may hold equal to other text; labels cannot differ in that way within a column."""
    return column.type.is_text and column.type.kind not in (Kind.ENUM, Kind.SET)


def _parts(rows: pa.Table) -> list[pa.Table]:
    """Text is larger than data; a part at a time keeps the memory bounded."""
    if rows.num_rows == 0:
        return []
    count = max(1, -(-rows.nbytes // _PART))
    size = -(-rows.num_rows // count)
    return [rows.slice(first, size) for first in range(0, rows.num_rows, size)]


def _invalid_labels(plan: _Plan, rows: pa.Table) -> pa.Array | None:
    """Rows in which an enum holds '' that is none of its labels: MySQL's index 0."""
    mask = None
    for column in plan.written:
        if column.type.kind is not Kind.ENUM or "" in column.type.labels:
            continue
        hits = pc.fill_null(pc.equal(rows[column.name], ""), pa.scalar(value=False))
        if pc.any(hits).as_py():
            mask = hits if mask is None else pc.or_(mask, hits)
    return mask
