"""A row of `pidts_meta` that somebody has changed by hand ends in an error that names it, or is not accepted."""

from __future__ import annotations

import itertools
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace

import pyarrow as pa
import pytest

from pidts.apply import Target, TargetSession
from pidts.apply.checkpoint import demand_unaltered
from pidts.apply.locks.held_changes import held_batch, lock_ids
from pidts.apply.locks.known_locks import KnownLocks, form_start
from pidts.apply.uncopied_keys import packed, unpacked
from pidts.model import (
    CommandKind,
    Cutover,
    DdlCommand,
    DdlJournal,
    Halt,
    Halted,
    HeldChanges,
    MovedKey,
    RangeOwner,
    RowLock,
    Shadow,
    SourceTablesKey,
    Table,
    TableName,
    Tombstones,
)
from pidts.target import IcebergTarget
from pidts.target.meta_schema import META_TABLES

from .samples import INT, checkpoint, create, lsn, table, text

pytestmark = pytest.mark.repeats("mysql56", "mysql97")

T = TableName("shop", "orders")
KEY = "k" * 8
OWNER = RangeOwner(schema="shop", table="altered", zone="a", origin="a", to="a", settled=True, number=1, ranges="[]")
TYPED = {"worker", "batch", "epoch", "updated_at", "step", "number", "taken", "buried_at"}
"""Columns with a type of the server, which refuses other values."""
FREE = {
    *("ddl_journal.statement", "tombstone.version_value", "tombstone.source", "moved.member_schema"),
    *("moved.member_name", "range_owner.range_key", "structure.lsn", "note.told", "row_lock.lsn"),
    # A changed key is the key of another row: the task finds no such row.
    *(f"{name}.{column}" for name in META_TABLES for column in ("task", "table_schema", "table_name", "row_key")),
    *("checkpoint.source", "ddl_journal.source", "note.source", "halt.source", "ddl_order.source", "shadow.source"),
    *("moved.source", "reread.source", "row_lock.source", "held_change.source", "locked_structure.source"),
    *("safe_range.source", "structure.source", "ddl_journal.lsn", "ddl_order.lsn", "halt.place"),
    *("locked_structure.digest",),
}
"""Columns in which any text is valid, and columns of keys."""
FITTING = {("ddl_journal.before_change", "{}"), ("checkpoint.copy_progress", "")}
"""Garbage that is valid. An earlier version wrote an empty copy progress if nothing was copied."""
UNREAD = {"locked_form", "early_removal", "left_out"}
"""Meta tables with digests and numbers only. The first two have tests of their own."""


@pytest.fixture(params=["mariadb", "postgres", "iceberg"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def make_records(session: TargetSession, task: str) -> None:
    meta, structure = session.meta, table(T, {"id": INT})
    meta.checkpoints.claim(task, "s", 1, checkpoint(100, gtid="0-1-2", position="bin.000001:100"))
    session.begin()
    meta.structures.save(task, SourceTablesKey("s"), lsn(1), {T: structure})
    journal = DdlJournal(task=task, source="s", lsn=lsn(1), statement="", rendered=("x",), step=0)
    meta.journal.write(journal)
    meta.safe_range.save(task, "s", lsn(1))
    meta.halts.save(task, "s", Halt(tables=(T,), lsn=lsn(1), code="c", what="w"))
    meta.ddl_commands.give(task, "s", DdlCommand(lsn=lsn(1), kind=CommandKind.REPLACE, statements=("x",)))
    meta.shadows.save(task, "s", {T: Shadow(structure)})
    meta.rereads.add(task, "s", T, lsn(1), packed(structure.arrow.empty_table()))
    meta.moves.add(task, "s", T, [MovedKey(T, KEY, lsn(1))])
    meta.cutovers.replace(task, None, Cutover())
    meta.cutovers.save_structures(task, [structure])
    meta.range_owners.save(OWNER)
    meta.row_locks.add(task, "s", [lock(structure)])
    meta.row_locks.hold(task, "s", T, [HeldChanges(KEY, lsn(1), "{}")])
    session.commit()


def lock(structure: Table) -> RowLock:
    key = packed(structure.arrow.empty_table())
    return RowLock(table=structure, id=KEY, key=key, shown="1", origin=T, lsn=lsn(1), why="w", since=1.0)


def error_of(target: Target, read: Callable[[TargetSession], object]) -> Halted | None:
    with closing(target.connect()) as session:
        try:
            read(session)
        except Halted as error:
            return error
    return None


def read_checkpoint(session: TargetSession, task: str) -> None:
    for row in session.meta.checkpoints.read(task, "s"):
        demand_unaltered(row)


def read_held(session: TargetSession, task: str) -> None:
    for one in session.meta.row_locks.held(task, "s", T, [KEY]):
        held_batch(lock(table(T, {"id": INT})), one)


READ: dict[str, Callable[[TargetSession, str], object]] = {
    "checkpoint": read_checkpoint,
    "structure": lambda session, task: session.meta.structures.load(task, SourceTablesKey("s")),
    "ddl_journal": lambda session, task: session.meta.journal.read(task, "s", lsn(1)),
    "safe_range": lambda session, task: session.meta.safe_range.read(task, "s"),
    "halt": lambda session, task: session.meta.halts.read(task, "s"),
    "ddl_order": lambda session, task: session.meta.ddl_commands.read(task, "s"),
    "shadow": lambda session, task: session.meta.shadows.load(task, "s"),
    "reread": lambda session, task: [
        unpacked(keys, "reread") for _, keys in session.meta.rereads.read(task, "s", T, lsn(0), 9)
    ],
    "moved": lambda session, task: session.meta.moves.find(task, "s", T, [KEY]),
    "cutover": lambda session, task: session.meta.cutovers.read(task),
    "range_owner": lambda session, _: session.meta.range_owners.read(),
    "row_lock": lambda session, task: session.meta.row_locks.read(task, "s", T),
    "locked_structure": lambda session, task: session.meta.row_locks.read(task, "s", T),
    "held_change": read_held,
    "tombstone": lambda session, _: session.meta.tombstones.read(T, [KEY]),
    "note": lambda session, task: session.meta.notes.read(task, SourceTablesKey("s"), T),
}


def row_of(record: str, task: str) -> str:
    """Returns the condition for the row of a meta table."""
    return {
        "range_owner": f"range_key = '{OWNER.id}'",
        "tombstone": f"table_name = '{T.name}' AND row_key = '{KEY}'",
    }.get(record, f"task = '{task}'")


COLUMNS = [
    f"{name}.{column.split()[0]}"
    for name, meta_table in META_TABLES.items()
    for column in f"{meta_table.key}, {meta_table.values}".split(", ")
    if name in READ and column and column.split()[0] not in TYPED
]


@pytest.mark.parametrize("place", [one for one in COLUMNS if one not in FREE])
def test_no_garbage_is_read(kind: str, target: Target, task: str, place: str, request: pytest.FixtureRequest) -> None:
    record, column = place.split(".")
    with closing(target.connect()) as session:
        make_records(session, task)
        if record == "tombstone":  # a tombstone belongs to no task, so only the test that removes it makes one
            session.begin()
            session.meta.tombstones.write(T, Tombstones(pa.array([KEY]), pa.array(["1"]), "s", pa.array([str(lsn(1))])))
            session.commit()
    try:
        for garbage in ("", "x", "5", "null", "{}", "[5]", '"x"'):
            if (place, garbage) in FITTING:
                continue
            sql = f"UPDATE pidts_meta.{record} SET {column} = '{garbage}' WHERE {row_of(record, task)}"
            change_by_hand(kind, target, sql, request)
            error = error_of(target, lambda session: READ[record](session, task))
            assert error is not None, f"{garbage!r} is accepted"
            assert error.code == ("checkpoint-altered" if record == "checkpoint" else "record-altered")
            assert record in error.what
            assert error.todo
    finally:  # other tests read these tables on the same server
        change_by_hand(kind, target, f"DELETE FROM pidts_meta.{record} WHERE {row_of(record, task)}", request)


def test_settled_keys_are_forgotten_without_a_record_that_cannot_be_read(
    kind: str, target: Target, task: str, request: pytest.FixtureRequest
) -> None:
    """Otherwise its keys would be lost: a text such as '' sorts before all places."""
    with closing(target.connect()) as session:
        make_records(session, task)
    change_by_hand(kind, target, f"UPDATE pidts_meta.reread SET lsn = '' WHERE task = '{task}'", request)
    with closing(target.connect()) as session:
        session.begin()
        session.meta.rereads.add(task, "s", T, lsn(2), "keys")
        session.commit()
        session.begin()
        session.meta.rereads.forget(task, "s", T, lsn(5))
        session.commit()
        with pytest.raises(Halted) as caught:
            session.meta.rereads.read(task, "s", T, lsn(5), 9)
    assert caught.value.code == "record-altered"


def test_an_altered_tombstone_is_named_with_its_key(kind: str, target: Target, request: pytest.FixtureRequest) -> None:
    name = TableName("shop", "altered_tombstone")
    texts = [pa.array(one) for one in (["a", "b"], ["1", "1"], [str(lsn(1))] * 2)]
    with closing(target.connect()) as session:
        session.meta.prepare()
        session.begin()
        session.meta.tombstones.write(name, Tombstones(texts[0], texts[1], "s", texts[2]))
        session.commit()
    where = "table_schema = 'shop' AND table_name = 'altered_tombstone'"
    try:
        change_by_hand(
            kind, target, f"UPDATE pidts_meta.tombstone SET lsn = 'x' WHERE {where} AND row_key = 'b'", request
        )
        error = error_of(target, lambda session: session.meta.tombstones.read(name, ["a", "b"]))
        assert error is not None
        assert "row_key = 'b'" in error.what
        assert "delete only this row" in error.todo
        change_by_hand(kind, target, f"DELETE FROM pidts_meta.tombstone WHERE {where} AND row_key = 'b'", request)
        with closing(target.connect()) as session:
            assert [one.key for one in session.meta.tombstones.read(name, ["a", "b"])] == ["a"]
    finally:
        change_by_hand(kind, target, f"DELETE FROM pidts_meta.tombstone WHERE {where}", request)


@pytest.mark.parametrize("kind", ["mariadb", "postgres"])
@pytest.mark.parametrize(
    "change",
    [*(f"SET form = '{garbage}'" for garbage in ("", "x", "5", "null", "{}", "%")), "DELETE"],
    ids=itertools.count(),
)
def test_a_lock_whose_form_was_altered_is_not_overlooked(
    kind: str, target: Target, task: str, name: TableName, change: str, request: pytest.FixtureRequest
) -> None:
    """Its row would get changes although it is locked, if the source spells its key in another way."""
    structure = table(name, {"id": text(), "v": INT})
    key = pa.table({"id": ["a"]}, schema=pa.schema([structure.arrow.field("id")]))
    (id_,) = lock_ids(key)
    with closing(target.connect()) as session:
        create(session, structure)
        start = form_start(session, structure)
        session.begin()
        one = replace(lock(structure), id=id_, key=packed(key), form=start + id_[len(start) :])
        session.meta.row_locks.add(task, "s", [one])
        session.commit()
    assert known(target, task, structure, key) == [id_]
    where = f"WHERE task = '{task}'"
    sql = f"DELETE FROM pidts_meta.locked_form {where}"
    change_by_hand(
        kind, target, sql if change == "DELETE" else f"UPDATE pidts_meta.locked_form {change} {where}", request
    )
    with pytest.raises(Halted, match=f"row_key = '{id_}' of pidts_meta.locked_form cannot be read") as caught:
        known(target, task, structure, key)
    assert caught.value.code == "record-altered"
    assert f"table_name = '{name.name}'" in caught.value.what


def known(target: Target, task: str, structure: Table, key: pa.Table) -> list[str]:
    with closing(target.connect()) as session:
        session.begin()
        try:
            return KnownLocks(session, task, "s", structure, any_=True).locks_of(key)
        finally:
            session.rollback()


@pytest.mark.parametrize("kind", ["mariadb", "postgres"])
@pytest.mark.parametrize("change", ["removed_at = 5", "removed_at = -1", "noted_at = -1", "noted_at = 5"])
def test_an_early_removal_with_an_altered_time_is_not_overlooked(
    kind: str, target: Target, task: str, change: str, request: pytest.FixtureRequest
) -> None:
    """With the time 5, an INSERT would count as later, and a row that another zone has deleted would come back."""
    name = TableName("shop", task[-30:])
    with closing(target.connect()) as session:
        session.begin()
        session.meta.early_removals.add(task, "s", name, {KEY: 1_700_000_000, "other": 0})
        session.commit()
        assert {one.key for one in session.meta.early_removals.of_all_tasks(name, [KEY, "other"])} == {KEY, "other"}
    where = f"WHERE table_name = '{name.name}'"
    change_by_hand(kind, target, f"UPDATE pidts_meta.early_removal SET {change} {where} AND row_key = '{KEY}'", request)
    try:
        for read in (
            lambda session: session.meta.early_removals.of_all_tasks(name, [KEY]),
            lambda session: session.meta.early_removals.of_other_tasks("another", "s", name, [KEY]),
        ):
            error = error_of(target, read)
            assert error is not None
            assert error.code == "record-altered"
            assert f"table_name = '{name.name}', row_key = '{KEY}', task = '{task}'" in error.what
        with closing(target.connect()) as session:
            assert session.meta.early_removals.any_since(name, 2_000_000_000_000)
    finally:
        change_by_hand(kind, target, f"DELETE FROM pidts_meta.early_removal {where}", request)


def change_by_hand(kind: str, target: Target, sql: str, request: pytest.FixtureRequest) -> None:
    if isinstance(target, IcebergTarget):
        with closing(sqlite3.connect(f"{target.warehouse}/catalog.db")) as catalog, catalog:
            catalog.execute(sql.replace("pidts_meta.", "pidts_meta_"))
    else:
        request.getfixturevalue("run_sql")(request.getfixturevalue(kind), sql)


def test_each_meta_table_is_tried() -> None:
    assert META_TABLES.keys() - READ.keys() == {*UNREAD, "switch_structure"}
