"""`pidts locks` lists, shows and resolves locked rows, while the task runs and while it does not."""

from __future__ import annotations

import io
import json
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.target.conformance.locks.test_row_locks import Task, put
from tests.target.conformance.samples import INT, create, table, text

from pidts.cli.app import run_command
from pidts.login import Mode, Tls
from pidts.model import Op, Table, TableName
from pidts.target import MySqlTarget


class Shop:
    """A task file, its target, and a table with three locked rows."""

    def __init__(self, server: Any, folder: Path, database: str) -> None:
        place = {"host": server.host, "port": server.port, "user": server.user, "password": server.password}
        self.target = MySqlTarget(**place, tls=Tls(Mode.DISABLED))
        self.name = f"locks-{database}"
        self.file = folder / "shop.yaml"
        one = {"source-id": "s", "from": place}
        task = {
            "name": self.name,
            "task-mode": "all",
            "target-database": {"type": "mysql", **place},
            "mysql-instances": [one],
            "pidts": {"on-divergence": "lock"},
        }
        self.file.write_text(yaml.safe_dump(task))
        self.table: Table = table(TableName(database, "t"), {"id": INT, "s": text(), "v": INT})
        with closing(self.target.connect()) as session:
            session.meta.prepare()
            create(session, self.table)
            put(session, self.table, *((key, "theirs", key) for key in (1, 2, 3)))
        running = Task(self.target, self.name)
        changes = [(Op.UPDATE, (key, "ours", key), (key, "ours", 10 * key)) for key in (1, 2)]
        running.apply(self.table, *changes, (Op.DELETE, (3, None, 3), None))

    def rows(self) -> list[tuple[Any, ...]]:
        with closing(self.target.connect()) as session:
            return sorted(tuple(row.values()) for row in session.read_rows(self.table).to_pylist())


@pytest.fixture
def shop(mariadb: Any, database: str, tmp_path: Path) -> Shop:
    return Shop(mariadb, tmp_path, database)


def said(capsys: pytest.CaptureFixture[str], *words: object, code: int = 0) -> dict[str, Any]:
    assert run_command([*map(str, words), "--json"]) == code
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_rows_are_listed_shown_and_resolved(shop: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    listed = said(capsys, "locks", "list", shop.file)
    assert (listed["locked_rows"], [one["locked_rows"] for one in listed["tables"]]) == (3, [3])
    ids = {one["key"]: one["id"] for one in listed["locks"]}
    shown = said(capsys, "locks", "show", shop.file, ids["id=1"])
    assert {"name": "s", "source": "'ours'", "target": "'theirs'", "outcome": "'ours'"} in shown["columns"]
    assert [one["op"] for one in shown["changes"]] == ["update"]
    gone = said(capsys, "locks", "show", shop.file, ids["id=3"])
    assert {"name": "s", "source": "NULL", "target": "'theirs'", "outcome": None} in gone["columns"]

    preview = said(capsys, "locks", "resolve", shop.file, ids["id=1"], "--take", "target", "--dry-run")
    assert (preview["resolved"], len(preview["rows"]), shop.rows()[0]) == (False, 1, (1, "theirs", 1))
    assert said(capsys, "locks", "resolve", shop.file, ids["id=1"], "--take", "target")["resolved"]
    assert shop.rows()[0] == (1, "theirs", 10)
    said(capsys, "locks", "resolve", shop.file, ids["id=2"][:8], "--set", "s=mine=yours", "--set", "v=NULL", "--yes")
    assert shop.rows()[1] == (2, "mine=yours", None)
    said(capsys, "locks", "resolve", shop.file, "--table", shop.table.name, "--all", "--take", "source", "--yes")
    assert [row[0] for row in shop.rows()] == [1, 2]
    assert said(capsys, "locks", "list", shop.file)["locked_rows"] == 0


def test_people_read_it_too(shop: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["locks", "list", str(shop.file)]) == 0
    listed = capsys.readouterr().out
    assert f"{shop.table.name} (source s): 3 locked rows" in listed
    id_ = listed.splitlines()[1].split()[0]
    assert run_command(["locks", "show", str(shop.file), id_]) == 0
    assert "'theirs'" in capsys.readouterr().out
    assert run_command(["locks", "resolve", str(shop.file), id_, "--take", "source", "--dry-run"]) == 0
    shown = capsys.readouterr().out
    assert "1 row would be resolved. To resolve, repeat the command without --dry-run." in shown
    assert shown.count("  held: ") == 1


def test_a_table_whose_name_has_a_line_end_is_one_line(
    shop: Shop, capsys: pytest.CaptureFixture[str], database: str
) -> None:
    other = table(TableName(database, "two\nlines"), {"id": INT, "v": INT})
    with closing(shop.target.connect()) as session:
        create(session, other)
        put(session, other, (1, 7))
    Task(shop.target, shop.name).apply(other, (Op.UPDATE, (1, 8), (1, 9)))
    assert run_command(["locks", "list", str(shop.file)]) == 0
    assert f"{database}.two\\nlines (source s): 1 locked row\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["0"], "usage"),
        (["--take", "source"], "usage"),
        (["--take", "source", "--all"], "usage"),
        (["--take", "mine", "0"], "usage"),
        (["--set", "s", "0"], "usage"),
        (["--take", "target", "--set", "s=1", "0"], "usage"),
    ],
)
def test_a_wrong_command_is_reported_before_anything_is_read(
    words: list[str], code: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert run_command(["locks", "resolve", str(tmp_path / "nowhere.yaml"), *words, "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["error"]["code"] == code


def test_rows_of_two_tables_that_have_one_id(shop: Shop, capsys: pytest.CaptureFixture[str], database: str) -> None:
    other = table(TableName(database, "an other"), {"id": INT, "v": INT})
    with closing(shop.target.connect()) as session:
        create(session, other)
        put(session, other, (1, 7))
    Task(shop.target, shop.name).apply(other, (Op.UPDATE, (1, 1), (1, 2)))
    capsys.readouterr()  # Drops the log line about the locked row.
    ids = [one["id"] for one in said(capsys, "locks", "list", shop.file)["locks"] if one["key"] == "id=1"]
    short = ids[0].partition("@")[0]
    assert ids == [f"{short}@{other.name}", f"{short}@{shop.table.name}"], "the listed ids are not ambiguous"
    only = said(capsys, "locks", "list", shop.file, "--table", other.name)["locks"]
    assert [one["id"] for one in only] == ids[:1], "also if the list has only one of the tables"
    refused = said(capsys, "locks", "resolve", shop.file, short, "--take", "source", "--yes", code=2)
    assert refused["error"]["todo"] == f"Write more of the id: '{ids[0]}', {ids[1]}"
    for words in ([short, "--table", other.name], [ids[0]], [ids[0], "--table", other.name]):
        assert said(capsys, "locks", "show", shop.file, *words)["table"] == str(other.name)
    done = said(capsys, "locks", "resolve", shop.file, ids[0], "--take", "source", "--yes")
    assert [one["table"] for one in done["rows"]] == [str(other.name)]
    left = [one["id"] for one in said(capsys, "locks", "list", shop.file)["locks"]]
    assert len(left) == 3
    assert short in left, "no other row has this id any more"
    assert said(capsys, "locks", "show", shop.file, ids[1])["key"] == "id=1", "an id that was listed before"


def test_rows_of_two_sources_that_have_one_id(shop: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    """Without the source in the id, no id would name one of them."""
    task = yaml.safe_load(shop.file.read_text())
    task["mysql-instances"].append({**task["mysql-instances"][0], "source-id": "s2"})
    shop.file.write_text(yaml.safe_dump(task))
    with closing(shop.target.connect()) as session:
        (lock, *_) = session.meta.row_locks.some(
            shop.name, "s", shop.table.name, session.meta.row_locks.ids(shop.name, "s", shop.table.name)
        )
        held = list(session.meta.row_locks.held(shop.name, "s", shop.table.name, {lock.id}))
        session.begin()
        session.meta.row_locks.add(shop.name, "s2", [lock])
        session.meta.row_locks.hold(shop.name, "s2", shop.table.name, held)
        session.commit()
    ids = [one["id"] for one in said(capsys, "locks", "list", shop.file)["locks"] if one["key"] == lock.shown]
    assert ids == [f"{lock.id[:12]}@{source}:{shop.table.name}" for source in ("s", "s2")]
    assert said(capsys, "locks", "show", shop.file, ids[1])["source"] == "s2"


def test_an_unknown_id(shop: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    found = said(capsys, "locks", "show", shop.file, "zzz", code=2)
    assert found["error"]["code"] == "no-such-locked-row"
    assert found["error"]["what"] == "no locked row has an id that begins with 'zzz'"
    assert found["error"]["todo"].endswith(f"already. To see the locked rows: pidts locks list {shop.file}")


def test_the_beginning_of_several_ids(shop: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    changes = [(Op.UPDATE, (key, "ours", key), (key, "ours", 10 * key)) for key in range(4, 24)]
    with closing(shop.target.connect()) as session:
        put(session, shop.table, *((key, "theirs", key) for key in range(4, 24)))
    Task(shop.target, shop.name).apply(shop.table, *changes)
    capsys.readouterr()  # Drops the log line about the locked rows.
    ids = [one["id"] for one in said(capsys, "locks", "list", shop.file)["locks"]]
    several = [one for one in ids if one[0] == max("0123456789abcdef", key=[each[0] for each in ids].count)]
    assert 1 < len(several) <= 5
    found = said(capsys, "locks", "show", shop.file, several[0][0], code=2)["error"]
    assert found["what"] == f"{len(several)} locked rows have an id that begins with {several[0][0]!r}"
    assert sorted(found["todo"].removeprefix("Write more of the id: ").split(", ")) == sorted(several)


def test_a_column_that_the_table_does_not_have(shop: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    id_ = said(capsys, "locks", "list", shop.file)["locks"][0]["id"]
    for name, what in (("nonesuch", "it is not a column of the table"), ("id", "it is part of the table's key")):
        error = said(capsys, "locks", "resolve", shop.file, id_, "--set", f"{name}=1", code=2)["error"]
        assert error["what"] == f"{name} cannot be set: {what}"
        assert error["todo"] == "These columns can be set: s, v"


def test_values_may_come_from_a_file_or_the_standard_input(
    shop: Shop, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ids = {one["key"]: one["id"] for one in said(capsys, "locks", "list", shop.file)["locks"]}
    one, two = ids["id=1"], ids["id=2"]
    values = tmp_path / "values.json"
    values.write_text('{"s": "NULL", "v": "7"}')
    said(capsys, "locks", "resolve", shop.file, one, "--values", values, "--yes")
    monkeypatch.setattr("sys.stdin", io.StringIO('{"s": null}'))
    said(capsys, "locks", "resolve", shop.file, two, "--values", "-", "--yes")
    assert shop.rows()[:2] == [(1, "NULL", 7), (2, None, 20)]
    for wrong in ("[]", '{"v": 7}', "{"):
        values.write_text(wrong)
        assert said(capsys, "locks", "resolve", shop.file, one, "--values", values, code=2)["error"]["code"] == "usage"
