"""A session reads the copy progress of checkpoints once, and finds rows that were altered by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from pidts.model import Checkpoint, Lsn
from pidts.target.checkpoint_row import written_progress
from pidts.target.checkpoints import CheckpointRecord

PROGRESS = '{"copy": [["s", "t", {"reads": 1}]], "held": [], "run": 1, "dealing": ""}'


class Rows:
    """Answers the queries of a record with one worker's row, and counts the rows that were read whole."""

    def __init__(self) -> None:
        self.row = Checkpoint(task="t", source="s", worker=0, lsn=Lsn(0, 1, 100), batch=3, epoch=2, copy=PROGRESS)
        self.text = written_progress(self.row)
        self.whole = 0
        self.record = CheckpointRecord(self.answer)

    def answer(self, sql: str, values: Sequence[Any]) -> tuple[list[tuple[Any, ...]], int]:
        assert sql.endswith(" LOCKED")
        assert list(values) == ["t", "s"]
        row = self.row
        known = (row.task, row.source, row.worker, row.batch, str(row.lsn), row.gtid, row.position, row.epoch)
        if "LEFT(copy_progress, 48)" in sql:
            return [(*known, self.text[:48])], 1
        self.whole += 1
        return [(*known, self.text, datetime(2026, 11, 28, tzinfo=UTC))], 1

    def places(self) -> Checkpoint:
        (found,) = self.record._places("t", "s", lock="LOCKED")
        return found


def test_a_row_is_read_whole_only_if_it_has_new_values() -> None:
    rows = Rows()
    assert [rows.places() for _ in range(3)] == [replace(rows.row, copy="")] * 3
    assert rows.whole == 1
    rows.row = replace(rows.row, batch=4)
    rows.text = written_progress(rows.row)
    assert [rows.places() for _ in range(2)] == [replace(rows.row, copy="")] * 2
    assert rows.whole == 2


def test_a_place_that_was_altered_by_hand_is_found_in_a_known_row() -> None:
    rows = Rows()
    assert rows.places().altered == ""
    rows.row = replace(rows.row, lsn=Lsn(0, 1, 50))
    assert [rows.places().altered for _ in range(2)] == [
        "its values do not match the digest that is stored with them"
    ] * 2
    assert rows.whole == 2


def test_a_text_that_was_altered_by_hand_is_found_when_the_row_is_read_whole() -> None:
    rows = Rows()
    rows.text = rows.text.replace('"reads": 1', '"reads": 2')
    assert rows.places().altered
