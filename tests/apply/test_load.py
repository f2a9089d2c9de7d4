"""A chunk that is loaded in advance never restores a deleted row, wherever a loader dies or pauses."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.crashes import ProcessDied
from tests.examples import examples
from tests.target.conformance.samples import create
from tests.values_target import ValuesTarget

from pidts.apply import LoadRequest, load_chunk, load_whole
from pidts.model import Checkpoint, Column, ColumnType, Fenced, Key, Kind, Lsn, Table, TableName, Transient
from pidts.reduce import Counts, NetChange

TABLE = Table(
    TableName("d", "t"),
    (Column("id", ColumnType(Kind.INT), nullable=False), Column("v", ColumnType(Kind.INT))),
    (Key("PRIMARY", ("id",), unique=True, primary=True),),
)
POINTS = ("begin", "lock_shared", "load", "commit:before", "commit:after")
ROWS = pa.table({"id": pa.array(range(5), pa.int32()), "v": pa.array([1] * 5, pa.int32())})


def made(name):
    target = ValuesTarget(name)
    target.forget()
    session = target.connect()
    create(session, TABLE)
    start = Checkpoint(task="t", source="s", worker=0, lsn=Lsn(0, 1, 100))
    return target, session, session.meta.checkpoints.claim("t", "s", 2, start)[0]


def delete(target, key, place):
    """Applies the DELETE of a row, together with a checkpoint at or after it."""
    session = target.connect()
    session.begin()
    row = session.meta.checkpoints.lock("t", "s", key % 2)
    gone = pa.table({"id": pa.array([key], pa.int32())})
    session.write(NetChange(TABLE, gone, TABLE.arrow.empty_table(), Counts(deleted=1)))
    session.meta.checkpoints.save(replace(row, lsn=Lsn(0, 1, place)))
    session.commit()


@pytest.mark.parametrize("load", [load_chunk, partial(load_whole, result=str)])
def test_a_run_that_was_taken_over_loads_nothing(load):
    """The replaced run may be at the same place as its successor: only their epochs differ."""
    target, session, start = made("load-taken-over")
    session.meta.checkpoints.claim("t", "s", 2, start)
    asked = LoadRequest("t", "s", start.epoch, start.batch, start.lsn)
    with pytest.raises(Fenced, match="fenced"):
        load(session, asked, TABLE, [ROWS])
    assert not target.store.content(TABLE.name)


@pytest.mark.parametrize("kind", [ProcessDied, Transient])
@pytest.mark.parametrize("point", POINTS)
def test_wherever_it_breaks_all_rows_are_in_or_none_and_nothing_stays_held(point, kind):
    target, _, start = made("load-breaks")

    def hook(reached):
        if reached == point:
            target.store.hook = None
            raise kind("gone", "gone") if kind is Transient else kind

    target.store.hook = hook
    asked = LoadRequest("t", "s", start.epoch, start.batch, start.lsn)
    with pytest.raises(kind):
        load_chunk(target.connect(), asked, TABLE, [ROWS])
    there = len(target.store.content(TABLE.name))
    assert there == (5 if point == "commit:after" else 0)
    delete(target, 3, 101)
    again = target.connect()
    with pytest.raises(Transient, match="chunk-too-late"):
        load_chunk(again, asked, TABLE, [ROWS])
    assert load_chunk(again, replace(asked, low=Lsn(0, 1, 101)), TABLE, [ROWS]) is not bool(there)


STEPS = st.lists(st.sampled_from(["read", "load", "late", "delete", "take over"]), max_size=12)


@settings(max_examples=examples(80), deadline=None)
@given(STEPS)
def test_a_row_that_the_log_removed_is_never_brought_back(steps):
    """Readers pause after they have read rows, and load the rows at any later time.

    Meanwhile the log deletes one of these rows.
    """
    target, session, start = made("load-late")
    place, epoch, gone = start.lsn.offset, start.epoch, set()
    asleep, there = [], set()
    for step in steps:
        if step == "read":
            keep = [key not in gone for key in range(5)]
            asleep.append((epoch, place, ROWS.filter(pa.array(keep))))
        elif step == "delete" and len(gone) < 5:
            place += 10
            delete(target, len(gone), place)
            there.discard(len(gone))
            gone.add(len(gone))
        elif step == "take over":
            epoch = session.meta.checkpoints.claim("t", "s", 2, start)[0].epoch
        elif asleep and step in ("load", "late"):
            its_epoch, low, rows = asleep.pop(0 if step == "late" else -1)
            asked = LoadRequest("t", "s", its_epoch, 0, Lsn(0, 1, low))
            if its_epoch != epoch:
                with pytest.raises(Fenced, match="fenced"):
                    load_chunk(target.connect(), asked, TABLE, [rows])
            elif low < place:
                with pytest.raises(Transient, match="chunk-too-late"):
                    load_chunk(target.connect(), asked, TABLE, [rows])
            else:
                new = not there & set(rows["id"].to_pylist())
                assert load_chunk(target.connect(), asked, TABLE, [rows]) is new
                there |= set(rows["id"].to_pylist())
        assert {key for (key,) in target.store.content(TABLE.name)} == there
