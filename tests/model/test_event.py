"""A change event has an image, and nobody can change the event."""

from __future__ import annotations

from dataclasses import FrozenInstanceError

import pytest

from pidts.model import DataChange, Lsn, SchemaEvent, TableName


def change(**images: dict[str, int] | None) -> DataChange:
    return DataChange(lsn=Lsn(0, 1, 4), prev_lsn=Lsn(0, 1, 0), source_zone_id=1, table=TableName("d", "t"), **images)


def test_a_change_without_any_image_is_none():
    with pytest.raises(ValueError, match="without any image"):
        change(old_data=None, new_data=None)


def test_changes_do_not_change():
    made = change(old_data=None, new_data={"a": 1})
    with pytest.raises(FrozenInstanceError):
        made.new_data = {}
    with pytest.raises(FrozenInstanceError):
        made.lsn = Lsn(0, 0, 0)


def test_statements_do_not_change():
    event = SchemaEvent(lsn=Lsn(0, 1, 9), prev_lsn=Lsn(0, 1, 4), source_zone_id=1, schema="d", statement="DROP TABLE t")
    with pytest.raises(FrozenInstanceError):
        event.statement = ""
