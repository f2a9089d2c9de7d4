"""The row of a checkpoint shows whether a task has written it and nothing has changed it since."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pidts.model import Checkpoint, LogFile, Lsn, TableName
from pidts.plan import CopyState, PlanState
from pidts.target.checkpoint_row import read_progress, written_progress

LSN = Lsn(0, 7, 420)
HELD = PlanState(LSN, {TableName("a", "t"): CopyState()}).copy_json(3, "x")
ROW = Checkpoint(
    task="t", source="s", worker=1, batch=9, lsn=LSN, gtid="0-1-5", position="bin.000007:420", epoch=2, copy=HELD
)


LOG_FILE = LogFile("bin.000007", 1_800_000_000, 33, 'mariadb server-id 7 at ["a"]')


def stored(row: Checkpoint) -> Checkpoint:
    return replace(row, copy=written_progress(row))


@pytest.mark.parametrize("log_file", [None, LOG_FILE])
@pytest.mark.parametrize("copy", ["", "{}", HELD, '{"done": ["\u00e4"]}'])
def test_a_row_is_read_as_it_was_written(copy: str, log_file: LogFile | None) -> None:
    row = replace(ROW, copy=copy, log_file=log_file)
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
        {"copy": written_progress(replace(ROW, log_file=LOG_FILE)).replace("18000", "18001")},
    ],
)
def test_any_value_that_was_changed_by_hand_is_noticed(change: dict[str, object]) -> None:
    for row in (ROW, replace(ROW, copy=""), replace(ROW, log_file=LOG_FILE)):
        if row.copy or "copy" not in change:
            assert "digest" in read_progress(replace(stored(row), **change)).altered  # type: ignore[arg-type]


def test_a_row_of_the_version_before_is_believed_unless_its_parts_contradict_each_other() -> None:
    assert read_progress(ROW) == ROW
    for row in (ROW, replace(ROW, copy=""), replace(ROW, position=""), replace(ROW, lsn=Lsn(0, 7, 500, 3))):
        assert read_progress(row).altered == ""
    assert "is later in the log than its Lsn" in read_progress(replace(ROW, lsn=Lsn(0, 7, 4))).altered


def test_an_unreadable_log_file_is_noticed() -> None:
    for text in (", 33,", '"mariadb'):
        row = stored(replace(ROW, log_file=LOG_FILE))
        assert "not readable" in read_progress(replace(row, copy=row.copy.replace(text, "x"))).altered


def test_the_log_file_is_stored_in_this_form() -> None:
    row = replace(ROW, copy="", log_file=replace(LOG_FILE, server="mysql 7d3c"))
    digest, text = written_progress(row)[:45], written_progress(row)[45:]
    assert digest == '{"digest": "' + "2d5f72635205f767a5823fac00496d42" + '"'
    assert text == (
        ', "log": ["bin.000007", 1800000000, 33, "mysql 7d3c"], "copy": [], "held": [], "run": 0, "dealing": ""}'
    )


def test_the_version_before_accepts_a_row_with_a_log_file() -> None:
    """That version computes the digest over the whole text, and keeps the text as the copy progress."""
    for copy in ("", HELD):
        text = written_progress(replace(ROW, copy=copy, log_file=LOG_FILE))
        rest = "{" + text[47:]
        assert written_progress(replace(ROW, copy=rest)) == text


@pytest.mark.parametrize("log_file", [None, LOG_FILE])
def test_the_version_before_reads_what_this_one_writes(log_file: LogFile | None) -> None:
    for copy in ("", HELD):
        row = replace(ROW, copy=copy, log_file=log_file)
        assert PlanState.from_checkpoint(LSN, written_progress(row)) == PlanState.from_checkpoint(LSN, copy)
