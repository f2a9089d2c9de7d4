"""The end of a log is read across its older files, and new lines are read when they are written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pidts.service.task_log import LogTail, last_lines, schema_changes


def line(number: int, level: str = "info") -> str:
    return json.dumps({"event": f"e{number}", "level": level, "timestamp": f"2026-01-01T00:00:{number:02}Z"}) + "\n"


def events(lines: list[dict[str, Any]]) -> list[str]:
    return [one["event"] for one in lines]


def test_the_last_lines_come_in_their_order(tmp_path: Path) -> None:
    log = tmp_path / "task.log"
    (tmp_path / "task.log.1").write_text(line(1) + line(2, "warning"))
    log.write_text(line(3) + "no json\n[1]\n" + line(4, "error") + '{"half')
    assert events(last_lines(log, limit=10)) == ["e1", "e2", "e3", "e4"]
    assert events(last_lines(log, limit=2)) == ["e3", "e4"]
    assert events(last_lines(log, limit=10, level="warning")) == ["e2", "e4"]
    assert events(last_lines(log, limit=1, before="2026-01-01T00:00:03Z")) == ["e2"]
    assert last_lines(log, limit=1)[0] == {"ts": "2026-01-01T00:00:04Z", "level": "error", "event": "e4"}


def test_schema_changes_are_reported_the_newest_first(tmp_path: Path) -> None:
    log = tmp_path / "task.log"
    one = {
        "event": "schema change applied",
        "statement": "ALTER TABLE t ADD a INT",
        "timestamp": "2026-01-01T00:00:00Z",
    }
    two = one | {"event": "schema change skipped by a ddl command", "timestamp": "2026-01-01T00:00:01Z"}
    log.write_text("".join(json.dumps(each) + "\n" for each in (one, {"event": "schema change"}, two)) + line(3))
    found = schema_changes(log)
    assert [(change["at"], change["result"]) for change in found] == [
        (1767225601.0, "skipped by a ddl command"),
        (1767225600.0, "applied"),
    ]
    assert found[0]["statement"] == "ALTER TABLE t ADD a INT"


def test_blocks_end_within_lines(tmp_path: Path) -> None:
    log = tmp_path / "task.log"
    log.write_text(
        "".join(json.dumps({"event": f"e{n}", "x": "é" * 3000}, ensure_ascii=False) + "\n" for n in range(100))
    )
    assert events(last_lines(log, limit=1000)) == [f"e{n}" for n in range(100)]


def test_there_may_be_no_log(tmp_path: Path) -> None:
    assert last_lines(tmp_path / "task.log", limit=5) == []
    assert LogTail(tmp_path / "task.log").new_lines() == []


def test_new_lines_are_reported_once_also_in_a_new_file(tmp_path: Path) -> None:
    log = tmp_path / "task.log"
    log.write_text(line(1))
    tail = LogTail(log)
    assert tail.new_lines() == []
    with log.open("a") as file:
        file.write(line(2) + line(3)[:10])
    assert events(tail.new_lines()) == ["e2"]
    with log.open("a") as file:
        file.write(line(3)[10:])
    assert events(tail.new_lines()) == ["e3"]
    log.rename(tmp_path / "task.log.1")
    log.write_text(line(4))
    assert events(tail.new_lines()) == ["e4"]
    assert tail.new_lines() == []
