"""Reads rows from MySQL and MariaDB in the Arrow types of the source."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pidts.binlog.machine_code import compiled
from pidts.model import Column, Halted, Kind, Table, Where, byte_size, calendar
from pidts.target.mysql.dialect import identifier, qualified
from pidts.target.mysql.encode import joined, literals, wrapped
from pidts.target.text import unreal

_KEYS = 5000
_KEY_BYTES = 1 << 20
"""The largest size, in Arrow, of one list of keys. The text of the list in a statement is larger."""
_COMPOSITE_KEYS = 200
_LEVELS = re.compile(r"(_uca1400.*)_(?:as_cs|ai_cs|as_ci)$")
_THAI = re.compile(r"_thai_520_w2$")
FEW = 50
"""Up to this number of rows, the driver reads faster than compiled code."""

Query = Callable[[bytes, str], Sequence[tuple[Any, ...]]]
"""A function that returns the rows of a statement about a table."""
Many = Callable[[bytes, Table], pa.Table | None]
"""A function that returns the same rows as an Arrow table; None if `Query` has to be used."""


class Reader:
    """Reads the rows of one table."""

    def __init__(self, query: Query, many: Many, table: Table) -> None:
        self._query, self._many, self._table = query, many, table
        self._identity = [identifier(name) for name in table.identity]
        self._most = _KEYS if len(self._identity) == 1 else _COMPOSITE_KEYS
        self._from = f" FROM {qualified(table.name)}".encode()

    def read(
        self,
        *,
        keys: pa.Table | None,
        after: Sequence[object] | None,
        limit: int | None,
        lock: bool = False,
        only: Mapping[str, str] | None,
        by_key: bool = False,
    ) -> pa.Table:
        """Reads the rows with the identities `keys`, or up to `limit` rows after the identity `after`.

        `only` contains the values that some columns of the rows must have.

        `lock` locks the rows that are read, until the transaction ends. `by_key`: the identity is the primary key, and
        its index has to be used. Otherwise MySQL would scan a small table for a long list of keys, and lock all rows
        that it scans: two workers would wait for each other.
        """
        order = f" ORDER BY {', '.join(self._identity)}" if self._identity else ""
        lockable = " FOR UPDATE" if lock else ""
        tail = order + (f" LIMIT {limit}" if limit is not None else "") + lockable
        if keys is not None:
            # The server finds neighbouring keys faster if they follow each other in the list.
            keys = keys.sort_by([(name, "ascending") for name in keys.column_names]) if keys.num_rows > FEW else keys
            parts = self._portions(keys)
            tail = order + lockable
            where = (" FORCE INDEX (PRIMARY)" if by_key else "").encode() + b" WHERE "
            found = [self._fetch(where + self._any_of(part) + tail.encode(), part.num_rows) for part in parts]
            return pa.concat_tables([self._table.arrow.empty_table(), *found]).slice(0, limit)
        asked = [self._past(after)] if after is not None else []
        asked += [identifier(name).encode() + b" = " + self._literal(name, text) for name, text in (only or {}).items()]
        return self._fetch((b" WHERE " if asked else b"") + b" AND ".join(asked) + tail.encode(), limit)

    def near(self, keys: pa.Table, most: int) -> pa.Table:
        """Reads and locks at most `most` rows with these keys, in any order."""
        found, left = [self._table.arrow.empty_table()], most
        for part in self._portions(keys):
            if left <= 0:
                break
            rest = b" WHERE " + self._any_of(part) + f" LIMIT {left} FOR UPDATE".encode()
            found.append(self._fetch(rest, left))
            left -= found[-1].num_rows
        return pa.concat_tables(found)

    def compared(self, keys: pa.Table, collations: Mapping[str, str]) -> pa.Table:
        """Returns keys with each text replaced by a digest of its weights under the column's collation.

        The query reads none of the table's rows: its derived table only has the collations of the table's columns.
        """
        texts = [name for name in self._table.identity if self._table.column(name).type.is_text]
        forms = ", ".join(_form(identifier(name), collations.get(name, "")) for name in texts)
        found: dict[int, Sequence[str]] = {}
        for place, *weights in self._of_literals(
            [(identifier(name), name, keys) for name in texts], f"SELECT pidts_place, {forms}"
        ):
            found[int(place)] = weights
        columns = [
            pa.array([_text(found[place][texts.index(name)]) for place in range(keys.num_rows)], pa.string())
            if name in texts
            else keys[name]
            for name in self._table.identity
        ]
        return pa.table(columns, names=list(self._table.identity))

    def equal_keys(self, keys: pa.Table, others: pa.Table) -> list[int]:
        """Returns the indexes at which `keys` and `others` are equal by the columns' collations.

        The comparison is not in the WHERE clause: servers evaluate it before the values have the columns' collations.
        """
        names = self._table.identity
        theirs = [f"pidts_other_{number}" for number in range(len(names))]
        columns = [(identifier(name), name, keys) for name in names]
        columns += [(other, name, others) for other, name in zip(theirs, names, strict=True)]
        equal = " AND ".join(f"{name} = {other}" for name, other in zip(self._identity, theirs, strict=True))
        found = self._of_literals(columns, f"SELECT pidts_place, {equal}")
        return sorted(int(place) for place, is_equal in found if int(is_equal))

    def _of_literals(self, columns: Sequence[tuple[str, str, pa.Table]], select: str) -> Iterator[tuple[Any, ...]]:
        """Yields the results of a query over given values, to which it gives the types of the table's columns.

        Each item of `columns` consists of an alias, the name of the table's column, and rows with the values.
        """
        shown = ", ".join(f"{identifier(name)} AS {alias}" for alias, name, _ in columns)
        empty = f"SELECT 0 AS pidts_place, {shown}".encode() + self._from + b" WHERE 1 = 0"
        size = columns[0][2].num_rows if columns else 0
        for first in range(0, size, _COMPOSITE_KEYS):
            parts = [(name, rows.slice(first, _COMPOSITE_KEYS)) for _, name, rows in columns]
            places = pa.array(
                [b"%d" % place for place in range(first, first + parts[0][1].num_rows)], pa.large_binary()
            )
            values = [literals(self._table.column(name), part[name]) for name, part in parts]
            asked = b" UNION ALL SELECT ".join([empty, *joined([places, *values], b", ").to_pylist()])
            sql = f"{select} FROM (".encode() + asked + b") AS asked"
            yield from self._query(sql, str(self._table.name))

    def _portions(self, keys: pa.Table) -> list[pa.Table]:
        """Returns lists of keys, each short enough for one statement."""
        most = min(self._most, max(1, keys.num_rows * _KEY_BYTES // max(byte_size(keys), 1)))
        return [keys.slice(first, most) for first in range(0, keys.num_rows, most)]

    def _any_of(self, keys: pa.Table) -> bytes:
        """Returns the condition for some keys: IN for one column, and the faster `a=1 AND b=2 OR …` for several."""
        values = [literals(self._table.column(name), keys[name]) for name in self._table.identity]
        if len(values) == 1:
            return self._identity[0].encode() + b" IN (" + b", ".join(values[0].to_pylist()) + b")"
        equal = [wrapped(value, name.encode() + b"=", b"") for name, value in zip(self._identity, values, strict=True)]
        return b" OR ".join(wrapped(joined(equal, b" AND "), b"(", b")").to_pylist())

    def _past(self, after: Sequence[object]) -> bytes:
        """Returns the condition for rows above a key. It compares no pairs: some servers use no index for them."""
        constants = [self._literal(name, value) for name, value in zip(self._table.identity, after, strict=True)]
        alternatives = []
        for place, name in enumerate(self._identity):
            equal = [other.encode() + b" = " + constants[at] for at, other in enumerate(self._identity[:place])]
            alternatives.append(b"(" + b" AND ".join([*equal, name.encode() + b" > " + constants[place]]) + b")")
        return b"(" + b" OR ".join(alternatives) + b")"

    def _literal(self, name: str, value: object) -> bytes:
        column = self._table.column(name)
        found: bytes = literals(column, pa.array([value], column.type.arrow))[0].as_py()
        return found

    def _fetch(self, rest: bytes, most: int | None) -> pa.Table:
        if (most is None or most > FEW) and compiled():
            found = self._many(self._select(_sent) + rest, self._table)
            if found is not None:
                return pa.Table.from_arrays(found.columns, schema=self._table.arrow)
        rows = self._query(self._select(_selected) + rest, str(self._table.name))
        columns = list(zip(*rows, strict=True)) if rows else [()] * len(self._table.columns)
        arrays = [self._array(column, values) for column, values in zip(self._table.columns, columns, strict=True)]
        return pa.table(arrays, schema=self._table.arrow)

    def _array(self, column: Column, values: Sequence[Any]) -> pa.Array:
        try:
            return _array(column, values)
        except (ValueError, OverflowError) as error:
            raise Halted(
                "target-refused",
                f"the target has a value that the source's column cannot hold: {column.name}, {error}",
                where=Where(table=str(self._table.name)),
                todo="Give the column on the target the source's type, or give the row a value that the source can "
                "have; then try again",
            ) from error

    def _select(self, shown: Callable[[Column], str]) -> bytes:
        return f"SELECT {', '.join(map(shown, self._table.columns))}".encode() + self._from


def _form(text: str, collation: str) -> str:
    """Returns SQL for a digest of a text's weights, without trailing spaces if the collation ignores these.

    MariaDB has no weights for collations that compare case or accents on separate levels. For such a collation, the
    expression uses the weights of the collation that ignores both. Values that are not text on the server have no
    weights.
    """
    plain = _LEVELS.sub(r"\1_ai_ci", _THAI.sub(r"_unicode_520_ci", collation))
    weighed = text
    if _THAI.search(collation):
        # In Thai, SARA AM equals the two signs that it consists of, and a vowel is sorted after the consonant that
        # follows.
        weighed = f"REPLACE({text}, _utf8mb4 X'E0B8B3', _utf8mb4 X'E0B8B2')"
        for sign in ("E0B98D", "E0B980", "E0B981", "E0B982", "E0B983", "E0B984"):
            weighed = f"REPLACE({weighed}, _utf8mb4 X'{sign}', '')"
    weighed = weighed if plain == collation else f"{weighed} COLLATE {plain}"
    space = f"WEIGHT_STRING(RIGHT(CONCAT({weighed}, ' '), 1))"
    return (
        f"COALESCE(SHA2(CASE WHEN {text} = CONCAT({text}, ' ') "
        f"THEN TRIM(TRAILING {space} FROM WEIGHT_STRING(TRIM(TRAILING ' ' FROM {weighed}))) "
        f"ELSE WEIGHT_STRING({weighed}) END, 256), HEX({text}))"
    )


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


def _sent(column: Column) -> str:
    """Returns the expression that a query selects for the column.

    If the server sends the column's values as UTF-8 text, this is the column's name. Otherwise it is the expression of
    `_selected`.
    """
    kind = column.type.kind
    is_plain = column.type.is_text or kind in _PARSERS or kind is Kind.DECIMAL
    return identifier(column.name) if is_plain else _selected(column)


def _selected(column: Column) -> str:
    """Returns an expression that sends numbers as numbers, and everything else as the bytes of its text."""
    name = identifier(column.name)
    kind = column.type.kind
    if column.type.is_integer or kind in (Kind.YEAR, Kind.BIT):
        return f"{name} + 0"
    if kind in (Kind.FLOAT, Kind.DOUBLE):
        return f"{name} * 1e0"  # `+ 0e0` would lose the sign of a negative zero.
    if column.type.is_bytes:
        return f"CAST({name} AS BINARY)" if kind is Kind.VECTOR else name
    if column.type.is_text:
        return f"CAST(CONVERT({name} USING utf8mb4) AS BINARY)"
    return f"CAST(CAST({name} AS CHAR) AS BINARY)"


def _array(column: Column, values: Sequence[Any]) -> pa.Array:
    kind, arrow = column.type.kind, column.type.arrow
    if kind in _PARSERS:
        return _moments(kind, values).view(arrow)
    if column.type.is_integer or kind in (Kind.YEAR, Kind.BIT):
        return pa.array([None if value is None else int(value) for value in values], arrow)
    if kind in (Kind.FLOAT, Kind.DOUBLE):
        return pa.array([None if value is None else float(value) for value in values], pa.float64()).cast(arrow)
    data = pa.array(values, pa.binary())
    if pa.types.is_binary(arrow):
        return data
    return pc.cast(pc.cast(data, pa.string()), arrow)


def _moments(kind: Kind, values: Sequence[Any]) -> pa.Array:
    """Returns times as Arrow's numbers. Arrow's fast parser reads neither durations nor zero or partial dates."""
    real = _REAL.get(kind)
    if real is not None:
        with suppress(pa.ArrowInvalid):
            parsed = pa.array(values, pa.binary()).cast(pa.string()).cast(real)
            if unreal(parsed) is None:
                return parsed
    storage = pa.int32() if kind is Kind.DATE else pa.int64()
    parse = _PARSERS[kind]
    return pa.array([None if value is None else parse(value.decode()) for value in values], storage)


def _day(text: str) -> int:
    return calendar.days(int(text[0:4]), int(text[5:7]), int(text[8:10]))


def _clock(text: str) -> int:
    """Returns the microseconds of `[-]HHH:MM:SS[.f]`."""
    sign, text = (-1, text[1:]) if text.startswith("-") else (1, text)
    hours, minutes, rest = text.split(":")
    seconds, _, fraction = rest.partition(".")
    return sign * (
        ((int(hours) * 60 + int(minutes)) * 60 + int(seconds)) * 1_000_000 + int(fraction.ljust(6, "0") or 0)
    )


def _moment(text: str) -> int:
    return calendar.microseconds(_day(text), _clock(text[11:]))


_REAL = {Kind.DATE: pa.date32(), Kind.DATETIME: pa.timestamp("us"), Kind.TIMESTAMP: pa.timestamp("us")}
_PARSERS: dict[Kind, Callable[[str], int]] = {
    Kind.DATE: _day,
    Kind.TIME: _clock,
    Kind.DATETIME: _moment,
    Kind.TIMESTAMP: _moment,
}
