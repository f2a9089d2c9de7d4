"""Rows that a batch has locked and read are written correctly, whichever of their columns change."""

from __future__ import annotations

import random
from contextlib import closing
from typing import Any

import pytest
from tests.target.conformance.locks.test_row_locks import Change, Row, Task, content, locks, put
from tests.target.conformance.samples import INT, create, table, text

from pidts.apply import Target, TargetSession
from pidts.model import ColumnType, Halted, Kind, Op, Table, TableName
from pidts.target.postgres import connection, writer
from pidts.target.postgres.statement_pipeline import StatementPipeline, StatementResult

pytestmark = pytest.mark.repeats("mysql56", "mysql97")
ROWS = 1500
DOUBLE = ColumnType(Kind.DOUBLE)
COLUMNS = {"id": INT, "u": INT, "d": DOUBLE, "s": text(), **{f"c{number}": INT for number in range(8)}}


@pytest.fixture
def structure(target: Target, name: TableName) -> Table:
    made = table(name, COLUMNS, unique=["u"])
    with closing(target.connect()) as session:
        create(session, made)
    return made


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Returns the statements that PostgreSQL received while changes were written."""
    found: list[str] = []
    now = StatementPipeline.now

    def noted(self: StatementPipeline, sql: str, *values: Any, **more: Any) -> StatementResult:
        found.append(sql)
        return now(self, sql, *values, **more)

    monkeypatch.setattr(StatementPipeline, "now", noted)
    return found


def row(key: int) -> Row:
    return (key, key, 0.0, f"row {key}", *(key + number for number in range(8)))


def updates(sent: list[str], structure: Table) -> list[str]:
    return [sql for sql in sent if sql.startswith("UPDATE ") and structure.name.name in sql]


def changed(rows: dict[int, Row], chance: random.Random) -> list[Change]:
    """Returns changes of all kinds: to NULL and back, to a negative zero, values that move between rows, deleted and
    inserted rows.
    """
    made: list[Change] = []

    def become(key: int, after: Row | None) -> None:
        before = rows.get(key)
        op = Op.INSERT if before is None else Op.DELETE if after is None else Op.UPDATE
        made.append((op, before, after))
        rows.pop(key) if after is None else rows.update({key: after})

    for key in chance.sample(sorted(rows), len(rows) * 3 // 4):
        old = rows[key]
        match chance.randrange(8):
            case 0:
                become(key, None)
                if chance.random() < 0.5:
                    become(key, (key, old[1], 1.5, None, *old[4:]))
            case 1:
                become(key, (key, None, *old[2:]))
                become(key, (key, old[1], -0.0, "x", *old[4:]))
            case 2:
                new = max(rows) + 10_000
                become(key, (key, new, *old[2:]))
                become(new, (new, old[1], None, None, *old[4:]))
            case 3:
                become(key, (*old[:2], -0.0, *old[3:]))
            case _:
                become(key, (*old[:3], None if chance.random() < 0.1 else f"now {chance.random()}", *old[4:]))
    return made


def bits(rows: list[Row]) -> list[str]:
    return [repr(one) for one in rows]


def test_only_changed_columns_are_written_and_every_row_is_right(
    target: Target, session: TargetSession, task: str, structure: Table, kind: str, sent: list[str]
) -> None:
    rows = {key: row(key) for key in range(ROWS)}
    put(session, structure, *rows.values())
    running, chance = Task(target, task, expects=False), random.Random(7)
    for _ in range(3):
        sent.clear()
        running.apply(structure, *changed(rows, chance))
        wanted = [rows[key] for key in sorted(rows)]
        assert content(session, structure) == wanted
        if kind == "postgres":  # MySQL and MariaDB keep 0.0 if -0.0 is written over it.
            assert bits(content(session, structure)) == bits(wanted)
            (update,) = updates(sent, structure)
            assert '"c0"' not in update
            assert '"s" = ' in update
    assert locks(session, task, structure) == []


def test_a_row_that_differs_is_set_aside_among_many(
    target: Target, session: TargetSession, task: str, structure: Table
) -> None:
    rows = {key: row(key) for key in range(ROWS)}
    theirs = (*row(5)[:4], -1, *row(5)[5:])
    put(session, structure, *(theirs if key == 5 else one for key, one in rows.items()))
    ours = {key: (*one[:3], "ours", *one[4:]) for key, one in rows.items()}
    Task(target, task, expects=False).apply(structure, *((Op.UPDATE, rows[key], ours[key]) for key in rows))
    assert [one.shown for one in locks(session, task, structure)] == ["id=5"]
    assert content(session, structure) == [theirs if key == 5 else ours[key] for key in sorted(rows)]


@pytest.mark.parametrize("kind", ["postgres"])
@pytest.mark.parametrize(
    "made",
    [
        [
            "CREATE TRIGGER t BEFORE UPDATE ON {0} FOR EACH ROW EXECUTE FUNCTION suppress_redundant_updates_trigger()",
            "ALTER TABLE {0} ENABLE ALWAYS TRIGGER t",
        ],
        ["ALTER TABLE {0} ENABLE ROW LEVEL SECURITY"],
        ["CREATE TABLE {1} () INHERITS ({0})"],
    ],
    ids=["trigger", "policies", "child"],
)
def test_a_table_with_something_that_could_notice_is_written_row_by_row_as_a_whole(
    made: list[str],
    target: Target,
    session: TargetSession,
    task: str,
    structure: Table,
    sent: list[str],
) -> None:
    rows = {key: row(key) for key in range(ROWS)}
    put(session, structure, *rows.values())
    for sql in made:
        name = structure.name
        session.execute(sql.format(f'"{name.schema}"."{name.name}"', f'"{name.schema}"."{name.name}_child"'))
    ours = {key: (*one[:3], "ours", *one[4:]) for key, one in rows.items()}
    sent.clear()
    Task(target, task, expects=False).apply(structure, *((Op.UPDATE, rows[key], ours[key]) for key in rows))
    assert updates(sent, structure) == []


@pytest.mark.parametrize("kind", ["postgres"])
def test_where_triggers_fire_each_row_is_written_whole(
    target: Target,
    session: TargetSession,
    task: str,
    structure: Table,
    sent: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = {key: row(key) for key in range(ROWS)}
    put(session, structure, *rows.values())
    ours = {key: (*one[:3], "ours", *one[4:]) for key, one in rows.items()}
    # These are the settings for a user that may not disable triggers.
    settings = [one for one in connection._SETTINGS if "session_replication_role" not in one]
    monkeypatch.setattr(connection, "_SETTINGS", settings)
    sent.clear()
    Task(target, task, expects=False).apply(structure, *((Op.UPDATE, rows[key], ours[key]) for key in rows))
    assert updates(sent, structure) == []
    assert content(session, structure) == [ours[key] for key in sorted(rows)]


@pytest.mark.parametrize("kind", ["postgres"])
def test_a_row_that_the_server_does_not_update_halts_the_table(
    target: Target, session: TargetSession, task: str, structure: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = {key: row(key) for key in range(ROWS)}
    put(session, structure, *rows.values())
    place = f'"{structure.name.schema}"."{structure.name.name}"'
    nothing = f'"{structure.name.schema}".nothing_{structure.name.name[-9:]}'
    session.execute(f"CREATE FUNCTION {nothing}() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'")
    when = "WHEN (OLD.id = 7)"
    session.execute(f"CREATE TRIGGER t BEFORE UPDATE ON {place} FOR EACH ROW {when} EXECUTE FUNCTION {nothing}()")
    session.execute(f"ALTER TABLE {place} ENABLE ALWAYS TRIGGER t")
    monkeypatch.setattr(writer, "_IS_PLAIN", "SELECT %s::text IS NOT NULL")  # as if the trigger had been created later
    changes = [(Op.UPDATE, before, (*before[:3], "ours", *before[4:])) for before in rows.values()]
    with pytest.raises(Halted, match=f"{ROWS - 1} of {ROWS} rows") as found:
        Task(target, task, expects=False).apply(structure, *changes)
    assert found.value.code == "row-missing"
    assert content(session, structure) == list(rows.values())
