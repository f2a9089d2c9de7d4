"""Net changes into MySQL, MariaDB and TiDB: DELETE by lists of keys, then INSERT ... ON DUPLICATE KEY UPDATE.

ON DUPLICATE KEY UPDATE fires on *any* unique key. A new row whose secondary unique value still belongs to another
row would overwrite that row and itself vanish, without an error. So a column of the identity is set to `IF(the whole
identity equals the new one, the new value, <an error>)`: where the server has picked another row than the one with our
identity, the statement ends with an error.

The error is a subquery of two rows. NULL for a NOT NULL column would not do: it sets an AUTO_INCREMENT column to 0 and
a TIMESTAMP of MariaDB to the current time, and the other row is lost. TiDB computes subqueries before it looks at rows,
so it gets a number that no integer column holds, or NULL.

Text is compared byte by byte there. A key whose collation on the target holds more texts equal than the source's does
(`a` and `a ` under PAD SPACE, accents, case) would take two rows of the source for one and keep the later.

Columns that the target computes itself are not written. One that is part of the key is named with DEFAULT, so that the
condition can speak of its new value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from pidts.model import Column, Halted, Kind, Table, TableName, Where
from pidts.reduce import NetChange
from pidts.target.ahead import ahead
from pidts.target.mysql.conflicts import conflicts
from pidts.target.mysql.dialect import identifier, qualified
from pidts.target.mysql.encode import Limits, joined, literals, statements, tuples, wrapped
from pidts.target.mysql.errors import Refused
from pidts.target.mysql.exact import is_collated
from pidts.target.mysql.exchange import Check, Exchange
from pidts.target.mysql.keyless import CopyRemover
from pidts.target.mysql.server import Server
from pidts.target.mysql.shape import MyTable

_TWO_ROWS = 1242
_NOT_NULL = 1048
_OUT_OF_RANGE = 1264
_ROWS = 1000
_KEYS = 1000
_COMPOSITE_KEYS = 200
_SIZE = 4 << 20
_PART_ROWS = 8_000
_PART = 16 << 20
"""Rows, and bytes of Arrow data, that are turned into text at once."""
_DUPLICATE = (1062, 1586)

_T = TypeVar("_T")

Warnings = Callable[[], list[tuple[int, str]]]


@dataclass(frozen=True, slots=True)
class _Plan:
    table: Table
    found: MyTable
    written: tuple[Column, ...]
    """All but those that the target computes."""
    insert: bytes
    row_end: bytes
    """What ends the text of each row."""
    update: bytes
    """Empty for a table without a key: its rows are only added."""
    never_null: tuple[str, ...]
    """Columns in which the server writes a value of its own for NULL, without an error."""

    @property
    def rivalled(self) -> bool:
        """Whether a row can stand in the way of another one's."""
        return bool(self.update) and len(self.found.unique) > 1


class _Collision(Halted):
    """A row would be written over another one."""


@dataclass(frozen=True, slots=True)
class _Text:
    """Rows as SQL, to be cut into statements."""

    head: bytes
    rows: pa.Array
    tail: bytes
    cut: int
    """Bytes between two rows."""
    most: int
    """Rows in one statement."""


class Writer:
    """Belongs to one session."""

    def __init__(
        self,
        server: Server,
        shape: Callable[[TableName], MyTable | None],
        exchange: Exchange,
        warnings: Warnings,
    ) -> None:
        self._server, self._shape, self._exchange, self._warnings = server, shape, exchange, warnings
        self._plans: dict[TableName, _Plan] = {}
        self._limits = Limits(_ROWS, min(_SIZE, server.max_packet - 1024), server.max_packet - 16)

    def write(self, change: NetChange) -> None:
        """Deletes first, so that a value may move from one row to another."""
        plan = self._plan(change.table)
        if change.times is not None:
            self._remove_copies(plan, change.deletes, change.times)
        else:
            self._run(plan, _each(partial(_removal, plan), change.deletes))
        if change.safe and plan.rivalled:
            self._upsert_safely(plan, change.upserts)
        else:
            self._upsert(plan, change.upserts)

    def _upsert_safely(self, plan: _Plan, rows: pa.Table) -> None:
        """Rivals are rare, and looking for them costs as much as writing: not before one is in the way."""
        if not self._server.tidb:  # its refusal of a rival may mean something else
            self._exchange.later(b"SAVEPOINT pidts_upsert")
            try:
                self._upsert(plan, rows)
                self._exchange.flush()
            except (Refused, _Collision) as error:
                if isinstance(error, Refused) and error.number not in _DUPLICATE:
                    raise
                self._exchange.now(b"ROLLBACK TO SAVEPOINT pidts_upsert")
            else:
                return
        for texts in _each(partial(_rivals, plan), rows):
            self._run(plan, texts)
        self._upsert(plan, rows)

    def forget(self) -> None:
        """After DDL."""
        self._plans.clear()

    def _plan(self, table: Table) -> _Plan:
        known = self._plans.get(table.name)
        if known is None or (known.table is not table and known.table != table):
            known = self._plans[table.name] = self._made(table)
        return known

    def _made(self, table: Table) -> _Plan:
        found = self._shape(table.name)
        problems = ["there is no such table"] if found is None else found.misfits(table)
        if found is None or problems:
            raise Halted(
                "target-shape",
                f"the target's table does not fit: {'; '.join(problems)}",
                where=Where(table=str(table.name)),
                todo="Change the target's table to what the source has, or drop it and copy it anew",
            )
        computed = {column.name.lower() for column in found.table.columns if column.generated}
        written = tuple(column for column in table.columns if column.name.lower() not in computed)
        named = [name for name in table.identity if name.lower() in computed]
        names = [identifier(name) for name in (*(column.name for column in written), *named)]
        return _Plan(
            table,
            found,
            written,
            f"INSERT INTO {qualified(table.name)} ({', '.join(names)}) VALUES ".encode(),
            b",DEFAULT" * len(named) + b"),",
            self._on_duplicate(table, written, found).encode() if table.identity else b"",
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
        sets = [f"{target}.{identifier(guard)} = IF({' AND '.join(same)}, {new(guard)}, {self._failing(table, guard)})"]
        sets += [
            f"{target}.{identifier(column.name)} = {new(column.name)}"
            for column in written
            if column.name not in table.identity
        ]
        return (" AS pidts_new" if alias else "") + " ON DUPLICATE KEY UPDATE " + ", ".join(sets)

    def _failing(self, table: Table, guard: str) -> str:
        if not self._server.tidb:
            # NULL leaves the type of the other value alone, but MariaDB would round a FLOAT to six digits.
            either = "0e0" if table.column(guard).type.kind in (Kind.FLOAT, Kind.DOUBLE) else "NULL"
            return f"(SELECT {either} UNION ALL SELECT {either})"
        return "9" * 30 if table.column(guard).type.is_integer else "NULL"

    def _remove_copies(self, plan: _Plan, rows: pa.Table, times: pa.Int64Array) -> None:
        name, first = str(plan.table.name), 0
        remover = CopyRemover(
            plan.table, plan.found, plan.written, self._limits, lambda sql: self._exchange.now(sql, name)
        )
        for part in _parts(rows):
            remover.remove(part, times.slice(first, part.num_rows))
            first += part.num_rows

    def _upsert(self, plan: _Plan, rows: pa.Table) -> None:
        for name in plan.never_null:
            if rows[name].null_count:
                raise Halted(
                    "target-refused",
                    f"column {name} is NULL in a row of the source, and the target would write a value of its own",
                    where=Where(table=str(plan.table.name)),
                    todo="Let the target's column be NULL, as the source's is",
                )
        odd = _invalid_labels(plan, rows)
        if odd is not None:
            self._upsert_invalid_labels(plan, rows.filter(odd))
            rows = rows.filter(pc.invert(odd))
        for text in _each(partial(_rows, plan), rows):
            for sql in self._statements(text):
                self._upsert_later(plan, sql)

    def _upsert_invalid_labels(self, plan: _Plan, rows: pa.Table) -> None:
        """An enum's index 0 is refused in strict mode: these few rows go without it, and each warning is read."""
        name = str(plan.table.name)
        self._exchange.later(b"SET @pidts_mode = @@SESSION.sql_mode", name)
        self._exchange.later(
            b"SET SESSION sql_mode = 'NO_AUTO_VALUE_ON_ZERO,ALLOW_INVALID_DATES,NO_ENGINE_SUBSTITUTION'", name
        )
        enums = [column.name for column in plan.written if column.type.kind is Kind.ENUM]
        warned: list[int] = []
        for sql in self._statements(replace(_rows(plan, rows), most=_ROWS // 10)):
            warned.clear()
            self._upsert_later(plan, sql, check=lambda done: warned.append(done.warnings))
            self._exchange.flush()
            if any(warned):
                for number, text in self._warnings():
                    if number != 1265 or not any(f"'{enum}'" in text for enum in enums):
                        raise Halted(
                            "target-refused", f"the target: {text} (warning {number})", where=Where(table=name)
                        )
        self._exchange.now(b"SET SESSION sql_mode = @pidts_mode", name)  # a rollback drops what waits

    def _run(self, plan: _Plan, texts: Iterable[_Text]) -> None:
        for text in texts:
            for sql in self._statements(text):
                self._exchange.later(sql, str(plan.table.name))

    def _statements(self, text: _Text) -> Iterator[bytes]:
        limits = replace(self._limits, rows=text.most)
        for sql, _, _ in statements(text.head, text.rows, text.tail, limits, cut=text.cut):
            yield sql

    def _upsert_later(self, plan: _Plan, sql: bytes, check: Check | None = None) -> None:
        def explain(error: Refused) -> Halted | None:
            signs = (_NOT_NULL, _OUT_OF_RANGE) if self._server.tidb else (_TWO_ROWS,)
            if not plan.update or error.number not in signs:
                return None
            return _collision(plan, error, sure=not self._server.tidb)

        self._exchange.later(sql, str(plan.table.name), check=check, explain=explain)


def _rows(plan: _Plan, rows: pa.Table) -> _Text:
    values = tuples([literals(column, rows[column.name]) for column in plan.written], plan.row_end)
    return _Text(plan.insert, values, plan.update, cut=1, most=_ROWS)


def _removal(plan: _Plan, keys: pa.Table) -> _Text:
    """A list of pairs is not looked up by index on every server; alternatives of conditions are."""
    table = plan.table
    values = [literals(table.column(name), keys[name]) for name in table.identity]
    head = f"DELETE FROM {qualified(table.name)} WHERE "
    if len(values) == 1:
        head += f"{identifier(table.identity[0])} IN ("
        return _Text(head.encode(), wrapped(values[0], b"", b","), b")", cut=1, most=_KEYS)
    equal = [wrapped(v, f"{identifier(name)}=".encode(), b"") for name, v in zip(table.identity, values, strict=True)]
    alternatives = wrapped(joined(equal, b" AND "), b"(", b") OR ")
    return _Text(head.encode(), alternatives, b"", cut=4, most=_COMPOSITE_KEYS)


def _rivals(plan: _Plan, rows: pa.Table) -> list[_Text]:
    head = f"DELETE FROM {qualified(plan.table.name)} WHERE ".encode()
    return [_Text(head, rivals, b"", cut=4, most=_COMPOSITE_KEYS) for rivals in conflicts(plan.table, plan.found, rows)]


def _each(made: Callable[[pa.Table], _T], rows: pa.Table) -> Iterator[_T]:
    """What is made of each part of the rows, ahead of its use where there are several."""
    parts = _parts(rows)
    return ahead(map(made, parts)) if len(parts) > 1 else map(made, parts)


def _collision(plan: _Plan, error: Refused, *, sure: bool) -> Halted:
    what = "a row would overwrite another one that the target holds equal to it in a unique key"
    return _Collision(
        "target-refused",
        what if sure else f"{what}, or the target's column does not hold its value: {error.what}",
        where=Where(table=str(plan.table.name)),
        todo="Give the target's unique keys the source's columns and collations, or copy the table again",
    )


def _fills_null(found: Column | None) -> bool:
    """AUTO_INCREMENT counts on, and a TIMESTAMP takes the current time (MariaDB, and MySQL of old by a setting)."""
    return found is not None and (found.auto_increment or (found.type.kind is Kind.TIMESTAMP and not found.nullable))


def _parts(rows: pa.Table) -> list[pa.Table]:
    """Text is larger than data; a part at a time keeps the memory bounded."""
    if rows.num_rows == 0:
        return []
    count = max(-(-rows.num_rows // _PART_ROWS), -(-rows.nbytes // _PART))
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
