"""A cutover uses a run of the task that has just begun on this machine, and does not end because of it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.values_target import ValuesTarget

from pidts.model import Lsn, PidtsError, PrecheckFailed, TableName
from pidts.task.cutover.drain import _await
from pidts.verify import NotCaughtUp

TABLE, END = TableName("shop", "t"), Lsn(0, 1, 100)


class CatchUp:
    """Says that the target lacks the table, for the first `waits` times."""

    def __init__(self, waits: int) -> None:
        self.left = waits

    def await_target(self, table: TableName, end: Lsn) -> NotCaughtUp | None:
        assert (table, end) == (TABLE, END)
        self.left -= 1
        return NotCaughtUp() if self.left >= 0 else None


def drained(folder: Path, waits: int, run_once: Callable[[], None], start_seconds: float = 30.0) -> None:
    part: Any = SimpleNamespace(name="t", source=SimpleNamespace(source_id="s"), relay=folder, shell_path="t.yaml")
    catch_up: Any = CatchUp(waits)
    with closing(ValuesTarget("drained").connect()) as target:
        _await(part, target, catch_up, TABLE, END, threading.Event(), run_once, start_seconds)


def refused() -> None:
    raise PidtsError("already-running", "process 7 on this machine runs the task t already")


def test_a_run_that_has_just_begun_brings_the_changes(tmp_path: Path) -> None:
    drained(tmp_path, 2, refused)


def test_the_cutover_runs_the_task_itself_if_the_other_run_ends(tmp_path: Path) -> None:
    answers: list[Callable[[], None]] = [refused, lambda: None]
    drained(tmp_path, 2, lambda: answers.pop(0)())  # noqa: PLW0108 - a new function each time
    assert not answers


def test_a_run_that_never_shows_itself_is_named(tmp_path: Path) -> None:
    with pytest.raises(PrecheckFailed, match="a process on this machine runs the task"):
        drained(tmp_path, 1000, refused, 0.1)


def test_another_error_of_the_run_ends_the_wait(tmp_path: Path) -> None:
    def fails() -> None:
        raise PidtsError("no-privilege", "the account may not read")

    with pytest.raises(PidtsError, match="may not read"):
        drained(tmp_path, 2, fails)
