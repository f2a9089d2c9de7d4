"""The images of a change event show what happened, and the change can be reversed."""

from __future__ import annotations

from dataclasses import FrozenInstanceError

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pidts.model import DataChange, Lsn, Op, SchemaEvent, TableName

rows = st.dictionaries(st.sampled_from("abc"), st.none() | st.integers() | st.text(max_size=3), min_size=1)
lsns = st.builds(Lsn, st.integers(0, 9), st.integers(0, 9), st.integers(0, 99), st.integers(0, 9))


@st.composite
def data_changes(draw):
    old, new = draw(st.none() | rows), draw(st.none() | rows)
    if old is None and new is None:
        new = draw(rows)
    return DataChange(
        lsn=draw(lsns),
        prev_lsn=draw(lsns),
        source_zone_id=draw(st.integers(0, 3)),
        is_retry=draw(st.booleans()),
        timestamp=draw(st.integers(0, 2**32)),
        gtid=draw(st.sampled_from(["", "0-1-2"])),
        table=TableName("d", "t"),
        old_data=old,
        new_data=new,
    )


@given(data_changes())
def test_taking_back_twice_changes_nothing(change):
    assert change.reversed().reversed() == change


@given(data_changes())
def test_taking_back_swaps_the_images_and_nothing_else(change):
    back = change.reversed()
    assert (back.old_data, back.new_data) == (change.new_data, change.old_data)
    assert (back.lsn, back.prev_lsn, back.table, back.gtid) == (change.lsn, change.prev_lsn, change.table, change.gtid)
    swapped = {Op.INSERT: Op.DELETE, Op.DELETE: Op.INSERT, Op.UPDATE: Op.UPDATE}
    assert back.op is swapped[change.op]


def test_a_change_without_any_image_is_none():
    with pytest.raises(ValueError, match="without any image"):
        DataChange(
            lsn=Lsn(0, 1, 4),
            prev_lsn=Lsn(0, 1, 0),
            source_zone_id=1,
            table=TableName("d", "t"),
            old_data=None,
            new_data=None,
        )


@given(data_changes())
def test_changes_do_not_change(change):
    with pytest.raises(FrozenInstanceError):
        change.new_data = {}
    with pytest.raises(FrozenInstanceError):
        change.lsn = Lsn(0, 0, 0)


def test_statements_do_not_change():
    event = SchemaEvent(lsn=Lsn(0, 1, 9), prev_lsn=Lsn(0, 1, 4), source_zone_id=1, schema="d", statement="DROP TABLE t")
    with pytest.raises(FrozenInstanceError):
        event.statement = ""
