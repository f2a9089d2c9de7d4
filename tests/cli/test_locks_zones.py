"""`pidts locks resolve` between zones that feed each other: one command removes the locks of a row in all of them."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.target.conformance.locks.test_rivals import Task
from tests.target.conformance.locks.test_row_locks import Change, put
from tests.target.conformance.samples import INT, create, table, text

from pidts.cli.app import run_command
from pidts.model import Lsn, Op, RowLock, Table, TableName
from pidts.task.config.task_file import load_task

from .test_locks import said


class Pair:
    """Two zones. Each has locked a row that the other zone has changed."""

    def __init__(self, servers: dict[str, Any], folder: Path, database: str) -> None:
        places = {
            zone: {"host": server.host, "port": server.port, "user": server.user, "password": server.password}
            for zone, server in servers.items()
        }
        self.file = folder / "shop.yaml"
        task = {
            "name": f"locks-{database}",
            "block-allow-list": {"one": {"do-dbs": [database]}},
            "pidts": {"zones": {"servers": places, "feeds": "mesh", "rules": {"block-allow-list": "one"}}},
        }
        self.file.write_text(yaml.safe_dump(task))
        self.table: Table = table(TableName(database, "t"), {"id": INT, "s": text(), "v": INT})
        self.ids: dict[str, str] = {}
        self.configs = {name: load_task(folder / f"shop.yaml@{name}") for name in ("a-b", "b-a")}
        for name, config in self.configs.items():
            zone, other = name[-1], name[0]
            with closing(config.target.server.connect()) as session:
                session.meta.prepare()
                create(session, self.table)
                put(session, self.table, (1, f"of {zone}", 1), (2, f"of {zone}", 2))
            running = Task(config.target.server, config.name, other, other)  # type: ignore[arg-type]
            changes: list[Change] = [(Op.UPDATE, (key, "both", key), (key, f"of {other}", key)) for key in (1, 2)]
            running.apply(self.table, *changes)
            self.be_at(name, Lsn(0, 999, 4))

    def be_at(self, name: str, lsn: Lsn) -> None:
        """Sets a task to a place of its source's log far after the log's end, so that nothing is left to read."""
        config = self.configs[name]
        with closing(config.target.server.connect()) as session:
            session.begin()
            for row in session.meta.checkpoints.read(config.name, config.source.source_id):
                session.meta.checkpoints.lock(row.task, row.source, row.worker)
                session.meta.checkpoints.save(replace(row, lsn=lsn))
            session.commit()

    def locks(self, name: str) -> list[RowLock]:
        """Returns the locks of one direction."""
        config = self.configs[name]
        with closing(config.target.server.connect()) as session:
            return session.meta.row_locks.read(config.name, config.source.source_id, self.table.name)

    def rows(self, zone: str) -> list[tuple[Any, ...]]:
        config = next(config for name, config in self.configs.items() if name.endswith(zone))
        with closing(config.target.server.connect()) as session:
            return [tuple(row.values()) for row in session.read_rows(self.table).to_pylist()]

    def locked(self, capsys: pytest.CaptureFixture[str]) -> dict[str, list[str]]:
        found = {}
        for name in self.configs:
            listed = said(capsys, "locks", "list", f"{self.file}@{name}")
            found[name] = sorted(one["key"] for one in listed["locks"])
            self.ids = {one["key"]: one["id"] for one in listed["locks"]}
        return found


@pytest.fixture
def pair(mariadb: Any, mysql97: Any, database: str, run_sql: Any, tmp_path: Path) -> Pair:
    run_sql(mysql97, f"CREATE DATABASE IF NOT EXISTS {database}")
    return Pair({"a": mariadb, "b": mysql97}, tmp_path, database)


def test_one_command_ends_the_locks_of_both_zones(pair: Pair, capsys: pytest.CaptureFixture[str]) -> None:
    assert pair.locked(capsys) == {"a-b": ["id=1", "id=2"], "b-a": ["id=1", "id=2"]}
    words = ["locks", "resolve", f"{pair.file}@a-b", pair.ids["id=1"]]
    preview = said(capsys, *words, "--take", "source", "--dry-run")
    assert [(one["zone"], one["from"], one["columns"][1]["outcome"]) for one in preview["rows"]] == [
        ("a", "b", "'of a'"),
        ("b", "a", "'of a'"),
    ]
    assert pair.locked(capsys)["a-b"] == ["id=1", "id=2"]
    assert said(capsys, *words, "--take", "source")["resolved"]
    assert pair.locked(capsys) == {"a-b": ["id=2"], "b-a": ["id=2"]}
    assert [zone[0] for zone in (pair.rows("a"), pair.rows("b"))] == [(1, "of a", 1)] * 2
    said(capsys, "locks", "resolve", f"{pair.file}@a-b", pair.ids["id=2"], "--take", "keep", "--yes")
    assert pair.locked(capsys) == {"a-b": [], "b-a": []}
    assert pair.rows("a") == pair.rows("b") == [(1, "of a", 1), (2, "of b", 2)]


def test_no_lock_is_resolved_while_changes_are_in_progress(pair: Pair, capsys: pytest.CaptureFixture[str]) -> None:
    pair.locked(capsys)
    pair.be_at("a-b", Lsn(0, 1, 200))
    words = ["locks", "resolve", f"{pair.file}@a-b", pair.ids["id=1"], "--take", "source", "--yes"]
    assert said(capsys, *words, code=3)["error"]["code"] == "zone-behind"
    assert pair.locked(capsys) == {"a-b": ["id=1", "id=2"], "b-a": ["id=1", "id=2"]}


def test_the_lock_of_one_zone_can_be_resolved_alone(pair: Pair, capsys: pytest.CaptureFixture[str]) -> None:
    pair.locked(capsys)
    words = ["locks", "resolve", f"{pair.file}@a-b", pair.ids["id=1"], "--take", "source", "--only-here", "--yes"]
    assert run_command(words) == 0
    capsys.readouterr()
    assert pair.locked(capsys) == {"a-b": ["id=2"], "b-a": ["id=1", "id=2"]}


def test_a_lock_ends_alone_where_the_zones_no_longer_all_feed_each_other(
    pair: Pair, capsys: pytest.CaptureFixture[str]
) -> None:
    pair.locked(capsys)
    config = pair.configs["a-b"]
    with closing(config.target.server.connect()) as session:
        place = config.name, config.source.source_id
        session.begin()
        found = session.meta.row_locks.lock(*place, pair.table.name, [lock.id for lock in pair.locks("a-b")])
        session.meta.row_locks.change(*place, [replace(one, winner="a") for one in found])
        session.commit()
    said_ = yaml.safe_load(pair.file.read_text())
    said_["pidts"]["zones"]["servers"]["a"]["read-only"] = True
    said_["pidts"]["zones"]["feeds"] = {"a": ["b"]}
    said_["pidts"]["zones"]["servers"]["b"]["read-only"] = True
    pair.file.write_text(yaml.safe_dump(said_))
    words = ["locks", "resolve", f"{pair.file}@a-b", pair.ids["id=1"], "--take", "keep", "--yes"]
    assert said(capsys, *words, code=3)["error"]["code"] == "lock-being-resolved"
    assert run_command([*words, "--only-here"]) == 0
    assert "a command had begun to give all zones the row of zone a" in capsys.readouterr().err
    assert [lock.shown for lock in pair.locks("a-b")] == ["id=2"]


def test_a_file_of_zones_lists_the_locks_of_all_directions(pair: Pair, capsys: pytest.CaptureFixture[str]) -> None:
    found = said(capsys, "locks", "list", pair.file)
    assert found["locked_rows"] == 4
    listed = {one["direction"]: [lock["key"] for lock in one["locks"]] for one in found["directions"]}
    assert listed == {"a-b": ["id=1", "id=2"], "b-a": ["id=1", "id=2"]}
    assert run_command(["locks", "list", str(pair.file)]) == 0
    text_ = capsys.readouterr().out
    for name in ("a-b", "b-a"):
        assert f"{pair.table.name} (source {name[0]}, direction {name}): 2 locked rows" in text_
