"""`pidts status` learns what the last run on this machine has ended with, whatever the target can record."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pidts.model import Fenced, Halted, PidtsError, Where
from pidts.task.operate.run_end import last_end, remembered_end

DAMAGED = Halted("target-damaged", "a file is missing", where=Where(file="/w/t.parquet"), todo="Restore it")


def config(relay: Path) -> Any:
    return SimpleNamespace(name="shop", relay=relay)


def end(relay: Path, error: PidtsError) -> None:
    with pytest.raises(type(error)), remembered_end(config(relay)):
        raise error


def test_the_error_is_remembered_until_the_next_run_begins(tmp_path: Path) -> None:
    end(tmp_path, DAMAGED)
    found = last_end(config(tmp_path), time.time())
    assert found is not None
    assert (found.needs_operator, found.text) == (True, "[target-damaged] a file is missing (/w/t.parquet)")
    assert found.to_json() | {"at": 0} == {"at": 0, "exit_code": 5, **DAMAGED.to_json()}
    with remembered_end(config(tmp_path)):
        assert last_end(config(tmp_path), 0) is None
    assert last_end(config(tmp_path), 0) is None
    assert not list(tmp_path.iterdir())


def test_a_run_elsewhere_that_has_moved_on_makes_it_old(tmp_path: Path) -> None:
    end(tmp_path, DAMAGED)
    assert last_end(config(tmp_path), time.time() + 120) is None


def test_a_run_that_was_taken_over_has_not_ended_the_task(tmp_path: Path) -> None:
    end(tmp_path, Fenced("fenced", "another run has it"))
    assert last_end(config(tmp_path), 0) is None


def test_a_file_that_nobody_understands_says_nothing(tmp_path: Path) -> None:
    (tmp_path / "shop.ended").write_text("[]")
    assert last_end(config(tmp_path), 0) is None


def test_where_the_relay_s_folder_cannot_be_written_the_error_itself_arrives(tmp_path: Path) -> None:
    end(tmp_path / "absent", DAMAGED)
    assert last_end(config(tmp_path / "absent"), 0) is None
