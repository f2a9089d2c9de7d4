"""A run stores why it is paused, and `status` reads this as long as the process of the run is the same."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pidts.model import Transient, Where
from pidts.task.config.task_file import TaskConfig
from pidts.task.operate.pause import Pause, PauseFile, stored_pauses

FULL = Pause(Transient("target-full", "no space", where=Where(table="a.t"), todo="Make room"), 100.0, 130.0)
HERE = os.getpid()


def config(relay: Path) -> TaskConfig:
    return cast("TaskConfig", SimpleNamespace(name="shop", relay=relay))


def stored(relay: Path, process: int = HERE) -> dict[str, dict[str, Any]]:
    return {source: pause.to_json() for source, pause in stored_pauses(config(relay), process).items()}


def test_the_pauses_of_a_run_are_stored_until_they_are_over(tmp_path: Path) -> None:
    with PauseFile(config(tmp_path)) as file:
        file.store({})
        assert (stored(tmp_path), list(tmp_path.iterdir())) == ({}, [])
        file.store({"one": FULL})
        assert stored(tmp_path) == {"one": FULL.to_json()}
        file.store({"two": FULL})
        assert list(stored(tmp_path)) == ["two"]
        file.store({})
        assert (stored(tmp_path), list(tmp_path.iterdir())) == ({}, [])
        file.store({"one": FULL})
    assert list(tmp_path.iterdir()) == []


def test_a_pause_is_stored_as_plain_values() -> None:
    assert FULL.to_json() == {
        "code": "target-full",
        "what": "no space",
        "where": {"table": "a.t"},
        "todo": "Make room",
        "since": 100.0,
        "next_attempt": 130.0,
    }


def test_the_pause_of_a_killed_run_is_not_the_pause_of_a_later_one(tmp_path: Path) -> None:
    PauseFile(config(tmp_path)).store({"one": FULL})
    assert stored(tmp_path, HERE + 1) == {}
    assert stored(tmp_path, 0) == {}


def test_a_run_with_the_process_id_of_a_killed_run_begins_without_its_pause(tmp_path: Path) -> None:
    """In a container, each run may have the same process id."""
    PauseFile(config(tmp_path)).store({"one": FULL})
    with PauseFile(config(tmp_path)) as file:
        file.store({})
        assert (stored(tmp_path), list(tmp_path.iterdir())) == ({}, [])


def test_a_disk_without_room_prevents_neither_the_run_nor_the_status(tmp_path: Path) -> None:
    file = PauseFile(config(tmp_path))
    file.store({"one": FULL})
    file._path.unlink()
    file._path.mkdir()  # nothing can be written here, as on a full disk
    file.store({"two": FULL})
    assert stored(tmp_path) == {}


@pytest.mark.parametrize(
    "text",
    ["[]", "{", f'{{"process": {HERE}}}', f'{{"process": {HERE}, "sources": {{"s": {{}}}}}}'],
    ids=["another type", "cut", "no sources", "no pause"],
)
def test_a_damaged_record_counts_as_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "shop.paused").write_text(text)
    assert stored(tmp_path) == {}
