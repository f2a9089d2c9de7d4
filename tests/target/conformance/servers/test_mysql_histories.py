"""On MySQL and MariaDB, any history in any batches has the same result as a row-by-row replay, even if its end is
repeated.

The tables have keys that ignore case and trailing spaces, unique keys with NULLs, and rows that swap their values.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from tests.target.conformance.conftest import MYSQL_KINDS
from tests.target.conformance.samples import INT, create

from pidts.apply import TargetSession
from pidts.model import ChangeBatch, Column, ColumnType, Key, Kind, Lsn, Op, Table, TableName
from pidts.reduce import net_changes

Row = tuple[Any, ...]
Change = tuple[Op, Row | None, Row | None]

_FOLDING = ColumnType(Kind.VARCHAR, length=20, charset="utf8mb4", collation="utf8mb4_general_ci")
_COLUMNS = (Column("u", _FOLDING), Column("a", INT), Column("b", INT), Column("v", INT))


def keyed(name: TableName) -> Table:
    keys = (Key("PRIMARY", ("id",), unique=True, primary=True), Key("u", ("u",), unique=True))
    columns = (Column("id", INT, nullable=False, auto_increment=True), *_COLUMNS)
    return Table(name, columns, (*keys, Key("ab", ("a", "b"), unique=True)), "utf8mb4", "utf8mb4_general_ci")


def in_words(table: Table, keys: int) -> Table:
    """Returns the table with a text as its primary key, and only its first `keys` keys."""
    key = Column("id", _FOLDING, nullable=False)
    return replace(
        table,
        name=replace(table.name, name=f"{table.name.name}_w{keys}"),
        columns=(key, *table.columns[1:]),
        keys=table.keys[:keys],
    )


WORDS = ("a", "A", "a ", "b", "c", "é", "E", "d")


def some_row(random: Random) -> Row:
    text = random.choice([None, "a", "A", "a ", "b", "c", "é"])
    return (text, random.choice([None, 1, 2]), random.choice([None, 1, 2]), random.randint(0, 9))


def compared(value: Any) -> Any:
    """Returns a value in a form that is equal if the server treats the values as equal."""
    return value.lower().rstrip(" ").replace("é", "e") if isinstance(value, str) else value


def collide(one: Row, other: Row) -> bool:
    """Returns whether the server treats two rows as equal in one of the keys."""
    mine, theirs = (tuple(map(compared, row)) for row in (one, other))
    return any(
        mine[begin:end] == theirs[begin:end] and None not in mine[begin:end] for begin, end in ((0, 1), (1, 2), (2, 4))
    )


def history(
    random: Random, length: int, *, key: bool, keys: Sequence[Any] = range(1, 7)
) -> tuple[list[Change], list[Row]]:
    """Returns changes that a source could have made, and its rows at the end."""
    rows: list[Row] = []
    changes: list[Change] = []
    while len(changes) < length:
        new = (random.choice(keys), *some_row(random)) if key else some_row(random)
        old = rows[random.randrange(len(rows))] if rows and random.random() < 0.65 else None
        if old is not None and random.random() < 0.35:
            rows.remove(old)
            changes.append((Op.DELETE, old, None))
            continue
        if key and old is not None and random.random() < 0.6:
            new = (old[0], *new[1:])
        left = [row for row in rows if row is not old]
        if key and any(collide(new, row) for row in left):
            continue
        if old is not None:
            rows.remove(old)
        rows.append(new)
        changes.append((Op.INSERT if old is None else Op.UPDATE, old, new))
    return changes, rows


def apply(
    session: TargetSession, table: Table, changes: Sequence[Change], cut: Callable[[], int], *, safe: bool = False
) -> None:
    first = 0
    while first < len(changes):
        part = changes[first : first + cut()]
        sides = [
            pa.array(
                [None if c[n] is None else dict(zip(table.arrow.names, c[n], strict=True)) for c in part], _image(table)
            )
            for n in (1, 2)
        ]
        lsns = pa.array([Lsn(0, 1, first + n).to_bytes() for n in range(len(part))], pa.binary(Lsn.SIZE))
        batch = ChangeBatch.of(table, lsns, pa.array([int(c[0]) for c in part], pa.int8()), *sides)
        session.begin()
        for each in net_changes([batch]):
            session.write(replace(each, safe=safe))
        session.commit()
        first += len(part)


def _image(table: Table) -> pa.StructType:
    return pa.struct(list(table.arrow))


def content(session: TargetSession, table: Table) -> list[Row]:
    return sorted((tuple(row.values()) for row in session.read_rows(table).to_pylist()), key=repr)


@pytest.mark.parametrize("kind", MYSQL_KINDS)
def test_any_history_in_any_batches(session: TargetSession, name: TableName, kind: str) -> None:
    del kind
    keyless = Table(replace(name, name=name.name + "_k"), _COLUMNS, (), "utf8mb4", "utf8mb4_general_ci")
    tables = keyed(name), keyless, in_words(keyed(name), 1), in_words(keyed(name), 3)
    for table in tables:
        create(session, table)
    for seed in range(8):
        for table in tables:
            random = Random(seed)
            keys = WORDS if table.identity and table.column("id").type == _FOLDING else range(1, 7)
            changes, rows = history(random, 30, key=bool(table.identity), keys=keys)
            apply(session, table, [(Op.DELETE, row, None) for row in content(session, table)], lambda: 100)
            apply(session, table, changes, lambda random=random: random.randint(1, 8))
            assert content(session, table) == sorted(rows, key=repr), seed
            if table.identity:
                again = changes[random.randrange(len(changes)) :]
                apply(session, table, again, lambda random=random: random.randint(1, 8), safe=True)
                assert content(session, table) == sorted(rows, key=repr), seed
