"""Any part of a run publishes the warehouse, one part at a time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyiceberg")

from pidts.model import Transient
from pidts.task.config.task_file import TaskConfig, load_parts
from pidts.task.operate import publications
from pidts.task.operate.publications import Publications, PublishingTurns

TASK = """\
name: to-hive
task-mode: all
target-database: {type: hive, warehouse: warehouse}
mysql-instances:
  - {source-id: a, from: {host: 127.0.0.1, port: 1, user: nobody}, block-allow-list: ours}
  - {source-id: b, from: {host: 127.0.0.1, port: 2, user: nobody}, block-allow-list: ours}
block-allow-list: {ours: {do-dbs: [shop]}}
"""
SECONDS = 20.0


@pytest.fixture
def parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[TaskConfig, ...]:
    monkeypatch.setattr(publications, "_LOOK_SECONDS", 0.01)
    (tmp_path / "task.yaml").write_text(TASK)
    found = load_parts(tmp_path / "task.yaml")
    session = found[0].target.server.connect()
    session.meta.prepare()  # type: ignore[attr-defined] - that of a warehouse
    session.close()
    return found


def wait_for(what: Callable[[], bool]) -> None:
    until = time.monotonic() + SECONDS
    while not what():
        assert time.monotonic() < until
        time.sleep(0.01)


def test_the_second_part_publishes_while_the_first_one_is_not_there(
    parts: tuple[TaskConfig, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []
    monkeypatch.setattr(publications, "_publish", lambda of, _session: seen.append(of))
    second = Publications(parts[1], lambda: parts, PublishingTurns())
    wait_for(lambda: bool(seen))
    second.close()
    assert seen[0] == parts


def test_parts_never_publish_at_the_same_time(parts: tuple[TaskConfig, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    busy, calls = threading.Lock(), []

    def publish(*_: Any) -> None:
        assert busy.acquire(blocking=False)
        time.sleep(0.02)
        calls.append(threading.get_ident())
        busy.release()

    monkeypatch.setattr(publications, "_publish", publish)
    turns = PublishingTurns()
    both = [Publications(part, lambda: parts, turns) for part in parts]
    wait_for(lambda: len(calls) > 5)
    stop = threading.Event()
    stop.set()
    for each in both:
        each.finish(stop)
    assert turns.failed_at is None


def test_a_failed_publication_is_not_tried_again_at_once_by_another_part(
    parts: tuple[TaskConfig, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []

    def publish(*_: Any) -> None:
        calls.append(1)
        raise Transient("metastore-lost", "it does not answer")

    monkeypatch.setattr(publications, "_publish", publish)
    turns = PublishingTurns()
    both = [Publications(part, lambda: parts, turns) for part in parts]
    wait_for(lambda: bool(calls))
    time.sleep(0.3)
    assert len(calls) == 1
    assert turns.failed_at is not None
    turns.failed_at -= 60
    wait_for(lambda: len(calls) == 2)
    for each in both:
        each.close()
