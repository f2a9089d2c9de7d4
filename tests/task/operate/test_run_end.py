"""`pidts status` shows how the last run on this machine ended, even if the target could not record it."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pidts.model import Fenced, Halted, Where
from pidts.task.operate.run_end import has_recorded_end, last_end, remembered_end

DAMAGED = Halted("target-damaged", "a file is missing", where=Where(file="/w/t.parquet"), todo="Restore it")


def config(relay: Path) -> Any:
    return SimpleNamespace(name="shop", relay=relay)


def run(relay: Path, error: Exception, claimed: dict[str, int]) -> None:
    with remembered_end(config(relay)) as epochs:
        epochs.update(claimed)
        raise error


def end(relay: Path, error: Exception, claimed: dict[str, int] | None = None) -> None:
    with pytest.raises(type(error)):
        run(relay, error, claimed or {})


def test_the_error_is_remembered_until_the_next_run_begins(tmp_path: Path) -> None:
    end(tmp_path, DAMAGED)
    found = last_end(config(tmp_path), time.time(), {})
    assert found is not None
    assert (found.needs_operator, found.text) == (True, "[target-damaged] a file is missing (/w/t.parquet)")
    assert found.to_json() | {"at": 0} == {"at": 0, "exit_code": 5, **DAMAGED.to_json()}
    with remembered_end(config(tmp_path)):
        assert last_end(config(tmp_path), 0, {}) is None


def test_an_end_without_an_error_is_recorded_too(tmp_path: Path) -> None:
    with remembered_end(config(tmp_path)) as epochs:
        epochs["one"] = 7
    found = last_end(config(tmp_path), 0, {"one": 7})
    assert found is not None
    assert (found.is_failure, found.needs_operator) == (False, False)
    assert found.at == pytest.approx(time.time(), abs=20)
    assert last_end(config(tmp_path), 0, {"one": 8}) is None


def test_a_fault_of_the_program_is_an_end_with_an_error(tmp_path: Path) -> None:
    end(tmp_path, ZeroDivisionError("division by zero\nmore"), {"one": 7})
    assert has_recorded_end(config(tmp_path))
    found = last_end(config(tmp_path), 0, {"one": 7})
    assert found is not None
    assert (found.is_failure, found.exit_code) == (True, 1)
    assert found.text == "[unexpected] ZeroDivisionError: division by zero"
    assert found.error["todo"].startswith("This is a bug in pidts")


def test_a_run_elsewhere_makes_it_old(tmp_path: Path) -> None:
    """The other run has claimed the task since, even if it had nothing to commit."""
    end(tmp_path, DAMAGED, {"one": 7})
    later = time.time() + 120
    assert last_end(config(tmp_path), later, {"one": 7}) is not None
    assert last_end(config(tmp_path), 0, {"one": 8}) is None


def test_where_the_run_has_claimed_nothing_a_later_commit_makes_it_old(tmp_path: Path) -> None:
    end(tmp_path, DAMAGED)
    assert last_end(config(tmp_path), time.time(), {"one": 7}) is not None
    assert last_end(config(tmp_path), time.time() + 120, {"one": 7}) is None


def test_a_run_that_was_taken_over_has_not_ended_the_task(tmp_path: Path) -> None:
    end(tmp_path, Fenced("fenced", "another run has it"))
    assert last_end(config(tmp_path), 0, {}) is None


def test_an_unreadable_file_says_nothing(tmp_path: Path) -> None:
    (tmp_path / "shop.ended").write_text("[]")
    assert last_end(config(tmp_path), 0, {}) is None


def test_the_error_itself_arrives_where_it_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "relay").write_text("no folder")
    end(tmp_path / "relay", DAMAGED)
    assert last_end(config(tmp_path / "relay"), 0, {}) is None
