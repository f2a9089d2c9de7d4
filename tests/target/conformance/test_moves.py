"""The record of moved keys is written in the transaction of their rows, whatever names the keys and members have."""

from __future__ import annotations

from decimal import Decimal

import pytest

from pidts.apply import Target, TargetSession
from pidts.apply.merge.moved_rows import key_names
from pidts.model import ColumnType, Kind, Lsn, MovedKey, TableName

from .samples import INT, checkpoint, lsn, rows, table, text

pytestmark = pytest.mark.repeats("mysql56", "mysql97")
LANDED, OTHER = TableName("Shop", "ä'`\"\\%s"), TableName("shop", "other")
A, B, LONG = TableName("s_1", "t"), TableName("s_1", "T"), TableName("ü" * 64, "\N{GRINNING FACE}" * 64)
EVERYTHING = [(A, "1|", 10), (B, "1|", 20), (LONG, "1|", 30), (A, "2|", 40)]


def moved(*entries: tuple[TableName, str, int]) -> list[MovedKey]:
    return [MovedKey(member, key, lsn(offset)) for member, key, offset in entries]


def found(
    session: TargetSession, task: str, *keys: str, target_table: TableName = LANDED
) -> list[tuple[TableName, str, int]]:
    entries = session.meta.moves.find(task, "s", target_table, keys or ("1|", "2|"))
    return sorted((one.member, one.key, one.lsn.offset) for one in entries)


def committed(session: TargetSession, task: str) -> None:
    session.begin()
    session.meta.moves.add(task, "s", LANDED, moved(*EVERYTHING))
    session.commit()


def test_only_the_transaction_itself_sees_what_it_has_recorded(target: Target, task: str) -> None:
    session, other = target.connect(), target.connect()
    assert not session.meta.moves.any(task, "s", LANDED)
    session.begin()
    session.meta.moves.add(task, "s", LANDED, moved(*EVERYTHING))
    assert found(session, task) == sorted(EVERYTHING)
    assert found(other, task) == []
    session.meta.moves.remove(task, "s", LANDED, B, ["1|", "2|", "3|"])
    session.meta.moves.add(task, "s", LANDED, moved((A, "1|", 50)))
    changed = sorted([(A, "1|", 50), (LONG, "1|", 30), (A, "2|", 40)])
    assert found(session, task) == changed
    session.rollback()
    assert found(session, task) == []
    committed(session, task)
    assert found(other, task) == sorted(EVERYTHING)
    assert found(other, task, "2|", "3|") == [(A, "2|", 40)]
    assert other.meta.moves.any(task, "s", LANDED)
    session.close()
    other.close()


def test_tasks_sources_and_tables_have_each_their_own(target: Target, task: str) -> None:
    session = target.connect()
    committed(session, task)
    session.begin()
    session.meta.moves.add(task, "other", LANDED, moved((A, "1|", 1)))
    session.meta.moves.add(task, "s", OTHER, moved((A, "1|", 2)))
    session.commit()
    assert session.meta.moves.target_tables(task, "s") == sorted([LANDED, OTHER])
    session.begin()
    session.meta.moves.forget(task, "s", LANDED)
    assert session.meta.moves.target_tables(task, "s") == [OTHER]
    session.commit()
    assert found(session, task) == []
    assert found(session, task, target_table=OTHER) == [(A, "1|", 2)]
    assert session.meta.moves.target_tables(task, "other") == [LANDED]
    session.close()


def test_members_get_other_names_all_at_once(target: Target, task: str) -> None:
    """Two tables swap their names; and a table gets the name of a dropped table, which still has entries."""
    session = target.connect()
    committed(session, task)
    session.begin()
    session.meta.moves.rename(task, "s", {A: B, B: A})
    assert found(session, task) == sorted([(B, "1|", 10), (A, "1|", 20), (LONG, "1|", 30), (B, "2|", 40)])
    session.meta.moves.rename(task, "s", {LONG: A, TableName("x", "y"): B})
    session.meta.moves.rename(task, "s", {})
    session.commit()
    assert found(session, task) == sorted([(B, "1|", 10), (A, "1|", 30), (B, "2|", 40)])
    session.close()


def test_thousands_of_keys(target: Target, task: str) -> None:
    session = target.connect()
    keys = [f"{number}|" for number in range(2500)]
    session.begin()
    session.meta.moves.add(task, "s", LANDED, moved(*((A, key, place) for place, key in enumerate(keys))))
    session.meta.moves.remove(task, "s", LANDED, A, keys[:2100])
    session.commit()
    assert [key for _, key, _ in found(session, task, *keys)] == sorted(keys[2100:])
    session.close()


def test_keys_of_every_kind_are_distinguished(target: Target, task: str) -> None:
    """The keys have bars, trailing spaces, upper and lower case, long texts, bytes that are not text, and signed zeros."""
    kinds = {"s": text(300), "b": ColumnType(Kind.VARBINARY, length=20), "f": ColumnType(Kind.DOUBLE)}
    structure = table(LANDED, kinds, key=tuple(kinds))
    texts = [
        ("a|", b"b"),
        ("a", b"|b"),
        ("a", b"b"),
        ("A", b"b"),
        ("a ", b"b"),
        ("ü" * 300, b"\0"),
        ("\\", b""),
        ("", b""),
    ]
    texts += [("é", b""), ("e", b""), ("\0", b"\xff"), ("a|b|c", b""), ("x" * 299, b""), ("x" * 300, b"")]
    names = key_names(rows(structure, *((s, b, 1.5) for s, b in texts)))
    assert len(set(names)) == len(texts)
    session = target.connect()
    session.begin()
    session.meta.moves.add(task, "s", LANDED, moved(*((A, key, place) for place, key in enumerate(names))))
    session.commit()
    assert {key: place for _, key, place in found(session, task, *names)} == {k: p for p, k in enumerate(names)}
    session.close()


def test_a_key_has_one_name_in_columns_of_any_width() -> None:
    """The key column of one shard has the larger type already."""
    for narrow, wide, values in (
        (INT, ColumnType(Kind.BIGINT, unsigned=True), (1, 0)),
        (decimal(9, 2), decimal(40, 20), ("1.10", "0.00", "1200.00")),
        (ColumnType(Kind.DECIMAL, precision=9), decimal(20, 8), ("100", "0")),
        (ColumnType(Kind.FLOAT), ColumnType(Kind.DOUBLE), (1.5, 0.0, 1e10)),
    ):
        columns = [
            rows(table(LANDED, {"id": kind}), *([as_of(kind, value)] for value in values)) for kind in (narrow, wide)
        ]
        first, second = map(key_names, columns)
        assert first == second
        assert len(set(first)) == len(values)


def decimal(precision: int, scale: int) -> ColumnType:
    return ColumnType(Kind.DECIMAL, precision=precision, scale=scale)


def as_of(kind: ColumnType, value: object) -> object:
    return Decimal(str(value)) if kind.kind is Kind.DECIMAL else value


def test_a_task_that_begins_knows_nothing_of_an_earlier_one(target: Target, task: str) -> None:
    session = target.connect()
    committed(session, task)
    session.meta.checkpoints.claim(task, "s", 1, checkpoint(100))
    assert session.meta.moves.target_tables(task, "s") == []
    committed(session, task)
    session.meta.checkpoints.claim(task, "s", 2, checkpoint(100))
    assert found(session, task) == sorted(EVERYTHING), "with another number of workers, too"
    session.close()


def test_places_are_exact(target: Target, task: str) -> None:
    session = target.connect()
    place = Lsn(9999, 2**32 - 1, 10**12 - 1, 2**32 - 1)
    session.begin()
    session.meta.moves.add(task, "s", LANDED, [MovedKey(A, "1|", place)])
    session.commit()
    assert session.meta.moves.find(task, "s", LANDED, ["1|"]) == [MovedKey(A, "1|", place)]
    session.close()
