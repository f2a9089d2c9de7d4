"""MySQL and MariaDB: rows of tables without a key are inserted and removed by the number of equal rows and by exact
values.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from itertools import groupby
from typing import Any

import pyarrow as pa
import pytest
from tests.target.conformance.conftest import MYSQL_KINDS
from tests.target.conformance.samples import EXTREMES, INT, create, every_type, rows, table, text

from pidts.apply import TargetSession
from pidts.model import Column, ColumnType, Halted, Kind, Table, TableName, calendar
from pidts.reduce import Counts, NetChange

pytestmark = pytest.mark.parametrize("kind", MYSQL_KINDS)


def keyless(name: TableName, columns: Mapping[str, ColumnType]) -> Table:
    return Table(name, tuple(Column(c, kind) for c, kind in columns.items()), charset="utf8mb4")


def write(
    session: TargetSession,
    structure: Table,
    deletes: Sequence[tuple[Sequence[Any], int]] = (),
    upserts: Sequence[Sequence[Any]] = (),
) -> None:
    gone = rows(structure, *(row for row, _ in deletes))
    times = pa.array([number for _, number in deletes], pa.int64())
    session.begin()
    try:
        session.write(NetChange(structure, gone, rows(structure, *upserts), Counts(), times=times))
        session.commit()
    except BaseException:
        session.rollback()
        raise


def content(session: TargetSession, structure: Table) -> list[tuple[Any, ...]]:
    return sorted((tuple(row.values()) for row in session.read_rows(structure).to_pylist()), key=repr)


def test_a_row_of_every_type_is_found_by_its_values(session: TargetSession, name: TableName) -> None:
    typed = every_type(name)
    structure = create(
        session, replace(typed, columns=tuple(replace(c, nullable=True) for c in typed.columns), keys=())
    )
    assert session.schema.misfits(structure) == []
    low, high = ([7, *(pair[side] for pair in EXTREMES.values())] for side in (0, 1))
    nulls = [None] * len(low)
    write(session, structure, upserts=[low, high, nulls, low, nulls])
    assert session.count(name) == 5
    write(session, structure, [(low, 2), (nulls, 1)], [high])
    assert session.read_rows(structure)["id"].to_pylist() in ([7, None, 7], [7, 7, None], [None, 7, 7])
    write(session, structure, [(high, 2), (nulls, 1)])
    assert session.count(name) == 0


@pytest.mark.parametrize(
    "value", [b"\xed\xa2\x90", b"\xff\x00\xc3", "漢".encode() * 90], ids=["surrogate", "binary", "long"]
)
def test_bytes_that_are_no_text_do_not_prevent_rows_from_being_counted(
    session: TargetSession, name: TableName, value: bytes
) -> None:
    """The server names a column of a result after its expression, which may have any bytes."""
    structure = create(session, keyless(name, {"v": ColumnType(Kind.VARBINARY, length=300)}))
    kept = [value + bytes([number]) for number in range(4)]
    write(session, structure, upserts=[[one] for one in kept * 2])
    write(session, structure, [([one], 1) for one in kept])
    assert content(session, structure) == sorted(((one,) for one in kept), key=repr)


PAIRS: list[tuple[ColumnType, Any, Any]] = [
    (text(), "a", "a "),
    (ColumnType(Kind.VARCHAR, length=9, charset="utf8mb4", collation="utf8mb4_general_ci"), "a", "A"),
    (ColumnType(Kind.TEXT, charset="utf8mb4", collation="utf8mb4_general_ci"), "e", "é"),
    (ColumnType(Kind.VARCHAR, length=9, charset="latin1", collation="latin1_swedish_ci"), "ä", "Ä"),
    (ColumnType(Kind.VARBINARY, length=9), b"a", b"a "),
    (ColumnType(Kind.BLOB), b"\x00", b"\x00\x00"),
    (ColumnType(Kind.FLOAT), 0.10000000149011612, 0.10000000894069672),
    (ColumnType(Kind.DOUBLE), 0.1, 0.10000000000000002),
    (ColumnType(Kind.DECIMAL, precision=40, scale=20), "0.00000000000000000001", "0.00000000000000000002"),
    (ColumnType(Kind.BIT, length=12), 4094, 4095),
    (ColumnType(Kind.BIGINT, unsigned=True), 2**64 - 2, 2**64 - 1),
    (ColumnType(Kind.ENUM, labels=("a", "b"), charset="utf8mb4", collation="utf8mb4_bin"), "", None),
    (ColumnType(Kind.SET, labels=("a", "b"), charset="utf8mb4", collation="utf8mb4_bin"), "", "a"),
    (ColumnType(Kind.DATE), calendar.days(0, 0, 0), calendar.days(2024, 0, 15)),
    (ColumnType(Kind.DATETIME, fsp=6), calendar.microseconds(calendar.days(2023, 2, 31), 5), 5),
    (ColumnType(Kind.TIMESTAMP, fsp=6), calendar.microseconds(calendar.days(0, 0, 0), 0), 1_000_001),
    (ColumnType(Kind.TIME, fsp=6), -1, 1),
    (ColumnType(Kind.YEAR), 1901, None),
    (ColumnType(Kind.JSON), '{"a": 1}', '{"a": 1.0}'),
    (ColumnType(Kind.JSON), '["A"]', '["a"]'),
    (ColumnType(Kind.JSON), '{"p": 12345678901234567890.12}', '{"p": 12345678901234567890.13}'),
]


def check_a_nearly_equal_row_stays(session: TargetSession, name: TableName, pair: tuple[ColumnType, Any, Any]) -> None:
    """Checks that one of two rows can be removed alone, even if some comparison treats them as equal."""
    kind, first, second = pair
    structure = create(session, keyless(name, {"v": kind}))
    if kind.kind is Kind.DECIMAL:
        first, second = pa.array([first, second]).cast(kind.arrow).to_pylist()
    write(session, structure, upserts=[[first], [second], [first]])
    write(session, structure, [([first], 2)])
    left = session.read_rows(structure)["v"].combine_chunks()
    assert left.equals(rows(structure, [second])["v"].combine_chunks())
    with pytest.raises(Halted, match="row-missing"):
        write(session, structure, [([first], 1)])


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: f"{pair[0].kind}-{pair[1]!r}")
def test_a_row_that_is_nearly_the_same_stays(
    session: TargetSession, name: TableName, pair: tuple[ColumnType, Any, Any]
) -> None:
    check_a_nearly_equal_row_stays(session, name, pair)


def test_fewer_copies_than_recorded_halt_and_the_row_is_named(session: TargetSession, name: TableName) -> None:
    structure = create(session, keyless(name, {"a": INT, "b": text()}))
    write(session, structure, upserts=[[1, "x"], [2, "it's"]])
    with pytest.raises(Halted, match="1 of 2 copies") as error:
        write(session, structure, [([1, "x"], 1), ([2, "it's"], 2)], [[3, "new"]])
    assert (error.value.code, error.value.where.table) == ("row-missing", str(name))
    assert "a=2, b='it\\'s'" in error.value.where.key
    assert content(session, structure) == [(1, "x"), (2, "it's")]


def test_a_key_that_only_the_target_has_refuses_the_second_copy(session: TargetSession, name: TableName) -> None:
    create(session, table(name, {"a": INT, "b": INT}, key=["a"]))
    structure = keyless(name, {"a": INT, "b": INT})
    assert session.schema.misfits(structure) == []
    write(session, structure, upserts=[[1, 1], [2, 2]])
    with pytest.raises(Halted, match="target-refused"):
        write(session, structure, upserts=[[1, 1]])
    write(session, structure, [([1, 1], 1)], [[1, 5]])
    assert content(session, structure) == [(1, 5), (2, 2)]


def test_many_rows_go_together_and_each_as_often_as_recorded(session: TargetSession, name: TableName) -> None:
    structure = create(session, keyless(name, {"n": INT, "t": text(), "d": ColumnType(Kind.DATE)}))
    zero = calendar.days(0, 0, 0)
    there = [(number % 50 or None, f"t{number}'\\", zero) for number in range(250)]
    write(session, structure, upserts=[row for number, row in enumerate(there) for _ in range(1 + number % 3)])
    write(session, structure, [(row, 1 + number % 2) for number, row in enumerate(there) if number % 3])
    left = {(row[1], len(list(rows))) for row, rows in groupby(_plain(session, structure))}
    assert left == {(row[1], count) for number, row in enumerate(there) if (count := _left(number)) > 0}
    with pytest.raises(Halted, match="0 of 1 copies") as error:
        write(session, structure, [(there[0], 1), ((1, "never", zero), 1), (there[3], 1)])
    assert error.value.where.key == "n=1, t='never', d='0000-00-00'"


def _left(number: int) -> int:
    return 1 + number % 3 - (1 + number % 2 if number % 3 else 0)


def _plain(session: TargetSession, structure: Table) -> list[tuple[Any, ...]]:
    found = session.read_rows(structure).select(["n", "t"])
    return sorted((tuple(row.values()) for row in found.to_pylist()), key=repr)


def numbered(session: Any, name: TableName, *values: tuple[int, str]) -> Table:
    """Creates a table with these rows, which has no index. From now on, the session writes no row events."""
    structure = create(session, keyless(name, {"n": INT, "t": text()}))
    write(session, structure, upserts=values)
    session._events._is_off = True
    return structure


def test_rows_with_different_numbers_are_removed_in_a_few_statements(session: Any, name: TableName) -> None:
    structure = numbered(session, name, *((number, "x") for number in range(2000)))
    before = session.trips
    write(session, structure, [((number, "x"), 1) for number in range(1000)])
    assert session.trips - before < 8
    assert content(session, structure) == sorted(((number, "x") for number in range(1000, 2000)), key=repr)


TEXTS = ["a", "A", "a ", "", "ä", "Ä", "ss", "ß", "e", "é", "o'\\"]
CHARSETS = [
    ("utf8mb4", "utf8mb4_general_ci"),
    ("utf8mb4", "utf8mb4_bin"),
    ("utf8", "utf8_general_ci"),
    ("latin1", "latin1_swedish_ci"),
    ("latin1", "latin1_german2_ci"),
]


@pytest.mark.parametrize("gone", [slice(0, 11), slice(0, 11, 2), slice(1, 11, 3)])
@pytest.mark.parametrize(("charset", "collation"), CHARSETS)
def test_many_rows_of_texts_are_removed_exactly(
    session: TargetSession, name: TableName, charset: str, collation: str, gone: slice
) -> None:
    texts = [*TEXTS, "漢", "😀"] if charset == "utf8mb4" else TEXTS
    kind = ColumnType(Kind.VARCHAR, length=9, charset=charset, collation=collation)
    structure = create(session, keyless(name, {"v": kind, "w": text()}))
    write(session, structure, upserts=[(one, other) for one in texts for other in ("x", "X", "x")])
    wanted = [(one, other) for one in texts[gone] for other in ("x", "X")]
    write(session, structure, [((one, other), 1) for one, other in wanted])
    kept = [(one, other) for one in texts for other in ("x", "X", "x")]
    for row in wanted:
        kept.remove(row)
    assert content(session, structure) == sorted(kept, key=repr)


OTHER_COLLATIONS = {
    "utf8mb4": (
        "utf8mb4_0900_ai_ci",
        "utf8mb4_turkish_ci",
        "utf8mb4_general_nopad_ci",
        "utf8mb4_uca1400_ai_ci",
    ),
    "gbk": ("gbk_chinese_ci",),
    "sjis": ("sjis_japanese_ci",),
    "utf16": ("utf16_unicode_ci",),
    "latin1": ("latin1_bin",),
}
CODECS = {"utf8mb4": "utf-8", "sjis": "shift_jis", "utf16": "utf-16"}


@pytest.mark.parametrize("collation", [one for each in OTHER_COLLATIONS.values() for one in each])
def test_many_rows_of_texts_in_further_collations_are_removed_exactly(
    session: Any, name: TableName, collation: str
) -> None:
    if not session.rows("SELECT 1 FROM information_schema.collations WHERE collation_name = %s", (collation,)):
        pytest.skip(f"the server has no {collation}")
    (charset,) = (charset for charset, each in OTHER_COLLATIONS.items() if collation in each)
    codec, texts = CODECS.get(charset, charset), []
    for one in (*TEXTS, "I", "i", "ı", "İ", "ae", "æ", "漢", "ж", "Ж", "a\t", "\u200d", "oe", "ö"):  # noqa: RUF001 - on purpose
        with suppress(UnicodeEncodeError):
            one.encode(codec)
            texts.append(one)
    kind = ColumnType(Kind.VARCHAR, length=9, charset=charset, collation=collation)
    structure = create(session, keyless(name, {"v": kind, "w": text()}))
    every = [(one, other) for one in texts for other in ("x", "X", "x")]
    write(session, structure, upserts=every)
    wanted = [(one, other) for one in texts[::2] for other in ("x", "X")]
    write(session, structure, [((one, other), 1) for one, other in wanted])
    for row in wanted:
        every.remove(row)
    assert content(session, structure) == sorted(every, key=repr)


@pytest.mark.parametrize(
    ("of_labels", "values"),
    [(Kind.ENUM, ("a", "B", "c", "2", "1", "")), (Kind.SET, ("a", "B", "a,B", "c", "B,2", "1", "2,1", ""))],
)
@pytest.mark.parametrize("collation", ["utf8mb4_general_ci", "utf8mb4_bin"])
def test_many_rows_of_labels_are_removed_exactly(
    session: TargetSession, name: TableName, of_labels: Kind, values: tuple[str, ...], collation: str
) -> None:
    """Labels that look like numbers are not the labels' places."""
    labelled = ColumnType(of_labels, labels=("a", "B", "c", "2", "1"), charset="utf8mb4", collation=collation)
    structure = create(session, keyless(name, {"v": labelled, "w": text()}))
    every = [(one, other) for one in (*values, None) for other in ("x", "X", "x")]
    write(session, structure, upserts=every)
    for gone in (values[::2], (*values[1::2], None)):
        wanted = [(one, other) for one in gone for other in ("x", "X")]
        write(session, structure, [(row, 1) for row in wanted])
        for row in wanted:
            every.remove(row)
        assert content(session, structure) == sorted(every, key=repr)


@pytest.mark.parametrize("labels", [Kind.ENUM, Kind.SET])
def test_labels_are_found_in_a_column_of_texts(session: TargetSession, name: TableName, labels: Kind) -> None:
    structure = create(session, keyless(name, {"v": text(), "w": text()}))
    every = [(one, other) for one in ("a", "A", "b") for other in ("x", "X", "x")]
    write(session, structure, upserts=every)
    written = ColumnType(labels, labels=("a", "A", "b"), charset="utf8mb4", collation="utf8mb4_bin")
    write(session, keyless(name, {"v": written, "w": text()}), [(("a", "x"), 2), (("b", "X"), 1)])
    for row in (("a", "x"), ("a", "x"), ("b", "X")):
        every.remove(row)
    assert content(session, structure) == sorted(every, key=repr)


def test_texts_are_found_in_a_column_with_another_charset(session: TargetSession, name: TableName) -> None:
    kind = ColumnType(Kind.VARCHAR, length=9, charset="latin1", collation="latin1_swedish_ci")
    structure = create(session, keyless(name, {"v": kind}))
    write(session, structure, upserts=[["é"], ["a"]])
    wide = ColumnType(Kind.VARCHAR, length=9, charset="utf8mb4", collation="utf8mb4_general_ci")
    with pytest.raises(Halted, match="row-missing"):
        write(session, keyless(name, {"v": wide}), [(["é"], 1), (["E"], 1)])
    write(session, keyless(name, {"v": wide}), [(["é"], 1), (["a"], 1)])
    assert session.count(name) == 0


def test_rows_of_a_table_without_an_index_are_removed_in_a_few_statements(session: Any, name: TableName) -> None:
    structure = create(session, keyless(name, {"v": text(), "w": text()}))
    every = [(f"v{number}", f"w{number % 3}") for number in range(1000)]
    write(session, structure, upserts=every)
    session._events._is_off = True
    before = session.trips
    write(session, structure, [(row, 1) for row in every])
    assert session.trips - before < 12
    assert session.count(name) == 0


def test_near_rows_that_the_source_keeps_stay(session: TargetSession, name: TableName) -> None:
    there = [(number % 300, "y" if number < 20 else "x") for number in range(900)]
    structure = numbered(session, name, *there)
    gone = [((number, "x"), 1 if number == 50 else 2) for number in range(300)]
    write(session, structure, gone)
    left = Counter(there) - Counter(dict(gone))
    assert Counter(content(session, structure)) == left
    with pytest.raises(Halted, match="1 of 2 copies"):
        write(session, structure, [((40, "x"), 2), ((50, "x"), 1), ((60, "x"), 1)])
    assert Counter(content(session, structure)) == left


def test_many_rows_with_the_same_number_are_not_read(session: Any, name: TableName) -> None:
    structure = numbered(session, name, *((number % 2, f"text {number}") for number in range(2500)))
    read, seen = session._writer._read, []
    session._writer._read = lambda *args: seen.append(read(*args)) or seen[-1]
    for first in (0, 100):
        write(session, structure, [((number % 2, f"text {number}"), 1) for number in range(first, first + 100)])
        assert [rows.num_rows for rows in seen] == [1401], "it is tried once, with a limit"
    assert session.count(name) == 2300


@pytest.mark.parametrize("numbers", [2, 300])
def test_the_server_does_not_send_more_near_rows_than_are_asked_for(
    session: Any, name: TableName, numbers: int
) -> None:
    structure = numbered(session, name, *((number % numbers, f"text {number}") for number in range(20_000)))
    before = received(session)
    write(session, structure, [((number % numbers, f"text {number}"), 1) for number in range(numbers)])
    assert received(session) - before < 200_000
    assert session.count(name) == 20_000 - numbers


def received(session: Any) -> int:
    return int(session.rows("SHOW SESSION STATUS LIKE 'Bytes_sent'")[0][1])


def test_a_row_that_another_application_inserts_meanwhile_is_not_removed(
    target: Any, session: Any, name: TableName
) -> None:
    structure = numbered(session, name, *((number, "x") for number in range(50)))
    read = session._writer._read

    def reading(*args: Any) -> pa.Table:
        found = read(*args)
        with closing(target.connect()) as other:
            write(other, structure, upserts=[(7, "x")])
        return found

    session._writer._read = reading
    with pytest.raises(Halted, match="another program has added rows meanwhile: 51 rows match 50 that"):
        write(session, structure, [((number, "x"), 1) for number in range(50)])
    assert session.count(name) == 51
