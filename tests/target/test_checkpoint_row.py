"""The row of a checkpoint shows whether a task has written it and nothing has changed it since."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pidts.model import Checkpoint, Lsn, TableName
from pidts.plan import CopyState, PlanState
from pidts.target.checkpoint_row import read_progress, written_progress

LSN = Lsn(0, 7, 420)
HELD = PlanState(LSN, {TableName("a", "t"): CopyState()}).copy_json(3, "x")
ROW = Checkpoint(
    task="t", source="s", worker=1, batch=9, lsn=LSN, gtid="0-1-5", position="bin.000007:420", epoch=2, copy=HELD
)


def stored(row: Checkpoint) -> Checkpoint:
    return replace(row, copy=written_progress(row))


@pytest.mark.parametrize("copy", ["", "{}", HELD, '{"done": ["\u00e4"]}'])
def test_a_row_is_read_as_it_was_written(copy: str) -> None:
    row = replace(ROW, copy=copy)
    assert stored(row).copy != copy
    assert read_progress(stored(row)) == row
    assert read_progress(stored(row)).altered == ""
    assert read_progress(replace(stored(row), epoch=5)).altered == "", "a run that takes over writes the epoch alone"


@pytest.mark.parametrize(
    "change",
    [
        {"lsn": Lsn(0, 7, 4)},
        {"lsn": Lsn(0, 7, 999)},
        {"gtid": "0-1-3"},
        {"position": "bin.000007:4"},
        {"lsn": Lsn(0, 7, 4), "gtid": "0-1-1", "position": "bin.000007:4"},
        {"batch": 8},
        {"worker": 0},
        {"copy": written_progress(ROW).replace('"dealing": "x"', '"dealing": "y"')},
    ],
)
def test_any_value_that_was_changed_by_hand_is_noticed(change: dict[str, object]) -> None:
    for row in (ROW, replace(ROW, copy="")):
        if row.copy or "copy" not in change:
            assert "digest" in read_progress(replace(stored(row), **change)).altered  # type: ignore[arg-type]


def test_a_row_of_the_version_before_is_believed_unless_its_parts_contradict_each_other() -> None:
    assert read_progress(ROW) == ROW
    for row in (ROW, replace(ROW, copy=""), replace(ROW, position=""), replace(ROW, lsn=Lsn(0, 7, 500, 3))):
        assert read_progress(row).altered == ""
    assert "is later in the log than its Lsn" in read_progress(replace(ROW, lsn=Lsn(0, 7, 4))).altered


def test_the_version_before_reads_what_this_one_writes() -> None:
    for copy in ("", HELD):
        row = replace(ROW, copy=copy)
        assert PlanState.from_checkpoint(LSN, written_progress(row)) == PlanState.from_checkpoint(LSN, copy)
