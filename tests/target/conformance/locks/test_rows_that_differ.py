"""The value that a server returns equals the written value; a value that another program has written there does not.

With PIDTS_EXAMPLES=100000, this number of random rows is compared on each server.
"""

from __future__ import annotations

import json
import os
import random
import string
import uuid
from collections.abc import Callable, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.target.conformance.samples import EXTREMES, INT, array, change, create, every_type, rows, table, text, write

from pidts.apply import ApplyRules, TargetSession, prepared
from pidts.apply.locks.divergence import Divergence, Presence, compared
from pidts.apply.locks.key_rows import read_key_rows
from pidts.model import (
    ChangeBatch,
    Column,
    ColumnType,
    Kind,
    Lsn,
    OnDivergence,
    Op,
    Table,
    TableName,
    calendar,
    change_schema,
)
from pidts.reduce import NetChange
from pidts.reduce.column_presence import column_presence

pytestmark = pytest.mark.repeats("values-journaled", "mysql56", "mysql97")

ROWS = int(os.environ.get("PIDTS_EXAMPLES", "0")) or 400


def logged(
    structure: Table, op: Op, before: pa.Table | None, after: pa.Table | None, partial: Sequence[bytes] | None = None
) -> ChangeBatch:
    """Returns one change for each row."""
    size = len(next(each for each in (before, after) if each is not None))
    lsns = pa.array([Lsn(0, 1, 1000 + place).to_bytes() for place in range(size)], pa.binary(Lsn.SIZE))
    fields = change_schema(structure)
    images = [
        pa.nulls(size, fields.field(side).type)
        if image is None
        else pa.StructArray.from_arrays([c.combine_chunks() for c in image.columns], fields=list(structure.arrow))
        for side, image in (("before", before), ("after", after))
    ]
    parts = None if partial is None else pa.array(partial, pa.binary())
    return ChangeBatch.of(structure, lsns, pa.array([int(op)] * size, pa.int8()), *images, parts)


def found(session: TargetSession, batch: ChangeBatch, presence: Sequence[Presence] = ()) -> Divergence | None:
    session.begin()
    try:
        return compared(session, read_key_rows(session, batch), presence, None).divergence()
    finally:
        session.rollback()


def keys(differing: Divergence | None) -> list[Any]:
    if differing is None:
        return []
    return differing.events.keys.take(pa.array(differing.keys)).column(0).to_pylist()


def moved_on(structure: Table, before: pa.Table) -> pa.Table:
    """Returns the rows as an update leaves them. The update's value is in no row of the target."""
    last = structure.columns[-1].name
    assert last == "v"
    return before.set_column(len(structure.columns) - 1, last, pa.array([-7] * len(before), pa.int32()))


def every_type_and(name: TableName) -> Table:
    made = every_type(name)
    return replace(made, columns=(*made.columns, Column("v", INT)))


def test_a_difference_in_any_column_is_found_and_no_other(session: TargetSession, name: TableName) -> None:
    structure = every_type_and(name)
    create(session, structure)
    low, high = ([pair[side] for pair in EXTREMES.values()] for side in (0, 1))
    nulls = [None] * len(EXTREMES)
    before = rows(structure, [1, *low, 0], [2, *high, 0], [3, *nulls, 0])
    write(session, NetChange(structure, change(structure).deletes, before, change(structure).counts))
    after = moved_on(structure, before)
    assert found(session, logged(structure, Op.UPDATE, before, after)) is None
    assert found(session, logged(structure, Op.DELETE, before, None)) is None
    assert found(session, logged(structure, Op.INSERT, None, before)) is None, "applied before"
    # Each row occurs three times: one statement names the rows that have another row's value in a column.
    thrice = rows(
        structure, *([3 * other + at, *row, 0] for other in range(3) for at, row in enumerate((low, high, nulls), 4))
    )
    write(session, NetChange(structure, change(structure).deletes, thrice, change(structure).counts))
    for place, column in enumerate(structure.columns[1:], 1):
        values = thrice.column(place).combine_chunks()
        planted = pa.concat_arrays([values.slice(other, 1) for other in range(3) for _ in range(3)])
        wrong = thrice.set_column(place, structure.arrow.field(place), planted)
        here = {at + 4 for at in range(9) if not values.slice(at, 1).equals(planted.slice(at, 1))}
        differing = found(session, logged(structure, Op.UPDATE, wrong, moved_on(structure, wrong)))
        assert set(keys(differing)) == here, column.name
        assert set(keys(found(session, logged(structure, Op.DELETE, wrong, None)))) == here, column.name


UNKEYED = {Kind.TINYTEXT, Kind.TEXT, Kind.MEDIUMTEXT, Kind.LONGTEXT, Kind.GEOMETRY, Kind.VECTOR}
UNKEYED |= {Kind.TINYBLOB, Kind.BLOB, Kind.LONGBLOB}
MORE: dict[str, tuple[Any, ...]] = {
    "c_inet6": (
        "f9ee:1:ffff:1:ffff:18f4::1",
        "::1:2:3:4:5:6:7",
        "1:2:3:4:5:6:7::",
        "1:2:0:4:5::8",
        "::1",
        "::5",
        "::1234",
        "::0.1.0.0",
        "::0.1.0.5",
        "::1.2.3.4",
        "::ffff:1.2.3.4",
        "::ffff:0.0.0.0",
        "::fffe:102:304",
        "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
    ),
    "c_varchar": ("a", "A", "é", "e\u0301", "\t", "\\", '"', "NULL", "{}"),
    "c_set": ("a", "c"),
    "c_varbinary": (b"\0", b"\\x", b"abc"),
    "c_double": (0.0, 0.1, 5e-324),
    "c_time6": (0, -86_400_000_000),
}


def test_rows_of_any_key_are_found_and_changed_and_removed(session: TargetSession, name: TableName, task: str) -> None:
    rules = ApplyRules(task=task, source="s", on_divergence=OnDivergence.LOCK)
    for column in every_type(name).columns:
        if column.type.kind in UNKEYED:
            continue
        kind = replace(column.type, length=100) if column.name == "c_varchar" else column.type
        columns = {column.name: kind, "v": INT}
        structure = table(TableName(name.schema, f"k{name.name[-10:]}{column.name}"), columns, key=[column.name])
        create(session, structure)
        values = dict.fromkeys((*EXTREMES.get(column.name, (-(2**63), 0, 2**63 - 1)), *MORE.get(column.name, ())))
        before = rows(structure, *([value, 0] for value in values))
        after = moved_on(structure, before)
        write(session, NetChange(structure, change(structure).deletes, before, change(structure).counts))
        for batch, left in (
            (logged(structure, Op.UPDATE, before, after), [-7] * len(values)),
            (logged(structure, Op.DELETE, after, None), []),
        ):
            session.begin()
            for net in prepared(session, [batch], rules):
                session.write(net)
            session.commit()
            assert session.meta.row_locks.read(task, "s", structure.name) == [], column.name
            assert session.read_rows(structure)["v"].to_pylist() == left, column.name


def test_rows_that_are_missing_or_were_there_already(session: TargetSession, name: TableName) -> None:
    structure = table(name, {"id": INT, "s": text(), "v": INT})
    create(session, structure)
    write(session, change(structure, upserts=[(1, "a", 0), (2, "b", 0)]))
    before = rows(structure, [1, "a", 0], [2, "B", 0], [3, "c", 0])
    update = found(session, logged(structure, Op.UPDATE, before, moved_on(structure, before)))
    assert update is not None
    assert keys(update) == [2, 3]
    assert update.why(0) == "the target's row has other values in s"
    assert update.why(1) == "the target does not have the row"
    assert keys(found(session, logged(structure, Op.DELETE, before, None))) == [2], "what is gone is gone"
    insert = found(session, logged(structure, Op.INSERT, None, before))
    assert insert is not None
    assert keys(insert) == [2]
    assert insert.why(0) == "the target already has a row of this key, with other values"


def test_images_in_part_are_compared_by_what_they_show(session: TargetSession, name: TableName) -> None:
    structure = table(name, {"id": INT, "s": text(), "v": INT})
    create(session, structure)
    write(session, change(structure, upserts=[(1, "a", 0), (2, "b", 0)]))
    before = rows(structure, [1, None, None], [2, "B", None])
    after = rows(structure, [None, None, -7], [None, None, -7])
    update = logged(structure, Op.UPDATE, before, after, [bytes([0b001, 0b100]), bytes([0b011, 0b100])])
    wider = table(TableName(name.schema, "wider"), {"id": INT, "a": INT, "b": INT, "c": INT})
    columns = column_presence(logged(wider, Op.DELETE, rows(wider, [1, None, None, None]), None, [b"\1"]))
    of_another = Presence(pa.array([Lsn(0, 2, 0).to_bytes()], pa.binary(Lsn.SIZE)), columns)
    of_this = Presence(update.rows.column("lsn"), column_presence(update))
    presence = [of_another, of_this]
    for order in (presence, presence[::-1]):
        differing = found(session, update, order)
        assert keys(differing) == [2], "the first tells its key alone, the second a text that is another"
        assert differing is not None
        assert differing.why(0) == "the target's row has other values in s"


SMALL = {
    "null and empty": (None, ""),
    "case": ("a", "A"),
    "trailing space": ("a", "a "),
    "accent": ("e", "é"),
    "composed": ("é", "e\u0301"),
}


@pytest.mark.parametrize("collation", ["utf8mb4_bin", "utf8mb4_general_ci"])
@pytest.mark.parametrize("pair", list(SMALL))
def test_texts_that_a_collation_may_hold_equal_differ(
    session: TargetSession, name: TableName, pair: str, collation: str
) -> None:
    kind = ColumnType(Kind.VARCHAR, length=40, charset="utf8mb4", collation=collation)
    structure = table(name, {"id": INT, "s": kind, "v": INT})
    create(session, structure)
    one, other = SMALL[pair]
    write(session, change(structure, upserts=[(1, one, 0), (2, other, 0)]))
    before = rows(structure, [1, other, 0], [2, other, 0])
    assert keys(found(session, logged(structure, Op.UPDATE, before, moved_on(structure, before)))) == [1]


def test_documents_are_compared_by_what_they_say(session: TargetSession, name: TableName) -> None:
    structure = table(name, {"id": INT, "j": ColumnType(Kind.JSON), "v": INT})
    create(session, structure)
    texts = ['{"b": 1, "a": [1.5, true, null, "x"]}', "[1]", '"1"', "1", "true"]
    write(session, change(structure, upserts=[(at, each, 0) for at, each in enumerate(texts)]))
    spelt = ['{"a":[1.50,true,null,"\\u0078"],"b":1}', "[ 1 ]", ' "1"', "1.0", "true"]
    same = rows(structure, *([at, each, 0] for at, each in enumerate(spelt)))
    assert found(session, logged(structure, Op.DELETE, same, None)) is None
    others = ['{"a":[1.5,true,null],"b":1}', "[1, 1]", "1", '"1"', "1"]
    wrong = rows(structure, *([at, each, 0] for at, each in enumerate(others)))
    assert keys(found(session, logged(structure, Op.DELETE, wrong, None))) == [0, 1, 2, 3, 4]


def test_unreal_dates_are_equal_to_what_the_target_makes_of_them(
    session: TargetSession, name: TableName, kind: str
) -> None:
    structure = table(name, {"id": INT, "d": ColumnType(Kind.DATE), "t": ColumnType(Kind.DATETIME, fsp=6), "v": INT})
    create(session, structure)
    zero, odd = calendar.days(0, 0, 0), calendar.days(2024, 0, 15)
    before = rows(structure, [1, zero, calendar.microseconds(zero, 0), 0], [2, odd, 0, 0], [3, 10, 5, 0])
    write(session, NetChange(structure, change(structure).deletes, before, change(structure).counts))
    assert found(session, logged(structure, Op.DELETE, before, None)) is None
    real = rows(structure, [1, 0, 0, 0], [2, 0, 0, 0], [3, zero, 5, 0])
    assert keys(found(session, logged(structure, Op.DELETE, real, None))) == [1, 2, 3]
    if kind not in ("postgres", "iceberg"):
        other = rows(structure, [1, odd, calendar.microseconds(zero, 0), 0], [2, None, 0, 0], [3, 10, 5, 0])
        assert keys(found(session, logged(structure, Op.DELETE, other, None))) == [1, 2]


RANDOM: dict[Kind, Callable[[random.Random, ColumnType], Any]] = {
    Kind.FLOAT: lambda chance, _: float(np.float32(chance.choice([chance.gauss(0, 1), chance.gauss(0, 1e30), 0.1]))),
    Kind.DOUBLE: lambda chance, _: chance.choice([chance.gauss(0, 1), chance.gauss(0, 1e300), 1 / 3, -0.0]),
    Kind.BIT: lambda chance, kind: chance.getrandbits(kind.length or 1),
    Kind.YEAR: lambda chance, _: chance.randrange(1901, 2156),
    Kind.DATE: lambda chance, _: chance.randrange(calendar.days(1000, 1, 1), calendar.days(9999, 12, 31)),
    Kind.TIME: lambda chance, kind: _fraction(chance, kind, 838 * 3600, signed=True),
    Kind.DATETIME: lambda chance, kind: _fraction(chance, kind, 200_000_000_000),
    Kind.TIMESTAMP: lambda chance, kind: _fraction(chance, kind, 2**31 - 1) or 1_000_000,
    Kind.ENUM: lambda chance, kind: chance.choice(kind.labels or ("",)),
    Kind.SET: lambda chance, kind: ",".join(each for each in kind.labels or () if chance.random() < 0.5),
    Kind.UUID: lambda chance, _: str(uuid.UUID(int=chance.getrandbits(128), version=4)),
    Kind.INET4: lambda chance, _: ".".join(str(chance.randrange(256)) for _ in range(4)),
    Kind.INET6: lambda chance, _: chance.choice(["::1", "fe80::1", "2001:db8::ff00:42:8329", "::ffff:10.0.0.1"]),
    Kind.VECTOR: lambda chance, _: np.array([chance.gauss(0, 1) for _ in range(3)], "<f4").tobytes(),
    Kind.JSON: lambda chance, _: json.dumps(_document(chance, 3)),
}
WORDS = [*string.printable.replace("\r", ""), " ", "  ", "é", "表", "🙂", "ß", "\\", "'", '"', "%s", "NULL", "\\N"]


def _fraction(chance: random.Random, kind: ColumnType, seconds: int, *, signed: bool = False) -> int:
    unit = 10 ** (6 - kind.fsp)
    value = chance.randrange(seconds) * 1_000_000 + chance.randrange(0, 1_000_000, unit)
    return -value if signed and chance.random() < 0.5 else value


def _document(chance: random.Random, depth: int) -> Any:
    kind = chance.randrange(7 if depth else 5)
    if kind < 5:
        return [
            None,
            chance.random() < 0.5,
            chance.randrange(-(2**60), 2**60),
            chance.gauss(0, 1e10),
            _words(chance, 9),
        ][kind]
    if kind == 5:
        return [_document(chance, depth - 1) for _ in range(chance.randrange(4))]
    return {_words(chance, 4): _document(chance, depth - 1) for _ in range(chance.randrange(4))}


def _words(chance: random.Random, most: int) -> str:
    return "".join(chance.choices(WORDS, k=chance.randrange(most))).replace("\0", "")[:most]


def _value(chance: random.Random, column: Column) -> Any:
    kind = column.type
    if chance.random() < 0.1:
        return None
    if kind.kind in RANDOM:
        return RANDOM[kind.kind](chance, kind)
    if kind.is_integer:
        low, high = EXTREMES.get(column.name, (0, 9))
        return chance.choice([low, high, chance.randrange(low, high + 1)])
    if kind.kind is Kind.DECIMAL:
        digits = chance.randrange(10 ** (kind.precision or 10))
        return Decimal(digits).scaleb(-(kind.scale or 0)) * chance.choice([1, -1])
    if kind.kind is Kind.GEOMETRY:
        return EXTREMES[column.name][0]
    if kind.kind is Kind.BINARY:
        return chance.randbytes(kind.length or 1)
    if kind.is_bytes:
        return chance.randbytes(chance.randrange(40))
    said = _words(chance, 10 if kind.length in (10, 20) else 40)
    if kind.charset == "latin1":
        said = said.encode("latin-1", "ignore").decode("latin-1")
    return said.rstrip(" ") if kind.kind is Kind.CHAR else said


def random_rows(structure: Table, chance: random.Random, first: int, count: int) -> pa.Table:
    columns = [
        [*range(first, first + count)] if column.name == "id" else [_value(chance, column) for _ in range(count)]
        for column in structure.columns
    ]
    return pa.table([_array(v, k) for v, k in zip(columns, structure.arrow.types, strict=True)], schema=structure.arrow)


def _array(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    return pa.array(values).cast(kind) if pa.types.is_decimal(kind) and any(values) else array(values, kind)


def test_no_row_differs_from_itself(session: TargetSession, name: TableName) -> None:
    made = every_type_and(name)
    structure = replace(made, columns=(*made.columns[:-1], Column("c_json", ColumnType(Kind.JSON)), made.columns[-1]))
    create(session, structure)
    chance = random.Random(0)
    for first in range(0, ROWS, 2000):
        before = random_rows(structure, chance, first, min(2000, ROWS - first))
        write(session, NetChange(structure, change(structure).deletes, before, change(structure).counts))
        differing = found(session, logged(structure, Op.UPDATE, before, moved_on(structure, before)))
        if differing is not None:
            key = keys(differing)[0]
            there = session.read_rows(structure, keys=pa.table({"id": pa.array([key], pa.int64())}))
            names = [structure.columns[place].name for place in np.nonzero(differing.differs[0])[0]]
            wanted = before.filter(pa.compute.equal(before["id"], key))
            pytest.fail(f"{len(differing.keys)} rows: {wanted.select(names)} is {there.select(names)} there")
