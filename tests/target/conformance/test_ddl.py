"""Schema changes are made once, together with every worker's checkpoint, wherever they are interrupted."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest
from tests.crashes import ProcessDied
from tests.target.conformance.conftest import MYSQL_KINDS
from tests.target.conformance.samples import create, write
from tests.values_target import ValuesTarget

from pidts.apply import Committer, DdlRunner, Outcome, Retry, SchemaChange, Target
from pidts.model import (
    Column,
    ColumnType,
    Fenced,
    Halted,
    Kind,
    RowsUnknown,
    SourceTablesKey,
    Table,
    TableName,
    Transient,
)
from pidts.schema import apply, classify
from pidts.schema.statement_time import StatementTime
from pidts.target import IcebergTarget
from pidts.target.postgres import PostgresTarget

from .breaking import Breaking
from .samples import INT, change, checkpoint, lsn, table, text

Structures = dict[TableName, Table]
EXECUTED_AT = StatementTime(1_700_000_000)


def runner(target: Any, task: str, epoch: int) -> DdlRunner:
    return DdlRunner(target, task, "s", epoch, retry=Retry(attempts=4), sleep=lambda _: None)


def claimed(target: Target, task: str, workers: int = 2) -> int:
    session = target.connect()
    rows = session.meta.checkpoints.claim(task, "s", workers, checkpoint(100))
    session.close()
    return rows[0].epoch


def schema_change(
    sql: str, known: Structures, name: TableName, executed_at: StatementTime = EXECUTED_AT
) -> SchemaChange:
    """Returns a change as the planner makes it: the statement, and the structures before and after it."""
    statement = classify(sql, name.schema)
    changed = apply(statement, known, {name.schema: ("utf8mb4", "utf8mb4_bin")})
    before = {each: known.get(each) for each in {*changed, *statement.tables}}
    after: Mapping[TableName, Table | None] = {each: changed.get(each, known.get(each)) for each in before}
    return SchemaChange(
        statement=statement, text=sql, before=before, after=after, structures=changed, executed_at=executed_at
    )


class AlteredTarget:
    """A target, and the structures of the source, both changed by one statement at a time."""

    def __init__(self, target: Target, task: str, name: TableName, *tables: Table) -> None:
        self.target, self.task, self.name = target, task, name
        self.known: Structures = {}
        self.made: set[TableName] = set()
        self.place = 100
        self.epoch = claimed(target, task)
        session = target.connect()
        for structure in tables:
            create(session, structure)
            self.known[structure.name] = structure
        session.close()

    def ddl(self, sql: str, through: Any = None, **more: Any) -> Outcome:
        made = schema_change(sql, self.known, self.name, **more)
        outcome = runner(through or self.target, self.task, self.epoch).run(made, lsn(self.place + 10))
        for each, structure in made.structures.items():
            self.known.pop(each, None)
            if structure is not None:
                self.known[each] = structure
        self.made |= made.structures.keys()
        self.place += 10
        return outcome

    def write(self, structure: Table, *rows: tuple[Any, ...], worker: int = 0) -> None:
        """Writes rows without moving the checkpoints, which all workers share here."""
        session = self.target.connect()
        write(session, change(structure, upserts=rows))
        session.close()

    def rows(self, name: TableName | None = None) -> list[dict[str, Any]]:
        session = self.target.connect()
        found = session.read_rows(self.known[name or self.name]).to_pylist()
        session.close()
        return found

    def check(self) -> None:
        """Checks that target and record have the source's structures, and that the journal says that all is done."""
        session = self.target.connect()
        for structure in self.known.values():
            assert session.schema.misfits(structure) == [], structure.name
            found = session.schema.structure(structure.name)
            assert found is not None
            assert {c.name for c in found.columns} == {c.name for c in structure.columns}
        saved = session.meta.structures.load(self.task, SourceTablesKey("s"))
        assert {each: saved.get(each) for each in self.made} == {each: self.known.get(each) for each in self.made}
        journal = session.meta.journal.read(self.task, "s", lsn(self.place))
        assert journal is not None
        assert time.time() - 60 < journal.saved_at < time.time() + 5
        session.close()
        assert runner(self.target, self.task, self.epoch).is_done(lsn(self.place))


@pytest.fixture
def altered(target: Target, task: str, name: TableName) -> AlteredTarget:
    return AlteredTarget(target, task, name, table(name, {"id": INT, "v": INT, "w": text()}))


def test_columns_come_change_and_go(altered: AlteredTarget) -> None:
    name = altered.name
    altered.write(altered.known[name], (1, 10, "a"), (2, 20, None))
    for sql in (
        "ALTER TABLE {t} ADD COLUMN a INT NOT NULL DEFAULT 7 AFTER id, ADD COLUMN b VARCHAR(20) NOT NULL COMMENT 'it''s'",
        "ALTER TABLE {t} MODIFY v BIGINT UNSIGNED NULL, DROP COLUMN w",
        "ALTER TABLE {t} CHANGE v amount DECIMAL(30,2) NULL DEFAULT 1.50",
        "ALTER TABLE {t} ADD COLUMN e ENUM('x','y') NOT NULL, ADD COLUMN s SET('p','q') NOT NULL DEFAULT 'p,q'",
        "ALTER TABLE {t} MODIFY e ENUM('x','y','z') NOT NULL",
        "ALTER TABLE {t} ADD COLUMN d DATETIME NOT NULL DEFAULT CURRENT_TIMESTAMP, ADD UNIQUE KEY ua (amount), ADD KEY kb (b, a)",
        "ALTER TABLE {t} DROP KEY ua, DROP KEY kb, COMMENT = 'new'",
    ):
        assert altered.ddl(sql.format(t=f"`{name.name}`")) is Outcome.APPLIED
        altered.check()
    rows = altered.rows()
    for row in rows:
        row["amount"], row["d"] = str(row["amount"]), str(row["d"])
    fixed = {"a": 7, "b": "", "e": "x", "s": "p,q", "d": "2023-11-14 22:13:20"}
    if not isinstance(altered.target, ValuesTarget):
        assert rows == [{"id": 1, "amount": "10.00", **fixed}, {"id": 2, "amount": "20.00", **fixed}]
    altered.write(
        altered.known[name],
        *[tuple({**row, "id": 3, "amount": None, "e": "z", "d": 0}.values()) for row in rows[:1]],
    )


def test_names_may_be_swapped(altered: AlteredTarget) -> None:
    t = altered.name.name
    altered.write(altered.known[altered.name], (1, 10, "a"))
    altered.ddl(f"ALTER TABLE `{t}` CHANGE v w INT NULL, CHANGE w v VARCHAR(40) NULL")
    altered.check()
    row = altered.rows()[0]
    assert (row["v"], row["w"]) == ("a", 10)


def test_tables_are_created_renamed_emptied_and_dropped(altered: AlteredTarget) -> None:
    t = altered.name.name
    one, two = TableName(altered.name.schema, t + "_1"), TableName(altered.name.schema, t + "_2")
    altered.ddl(
        f"CREATE TABLE `{one.name}` (id INT AUTO_INCREMENT PRIMARY KEY, u VARCHAR(20) UNIQUE, t TEXT, KEY (u, id), "
        "j JSON, dt DATE NOT NULL, ts TIMESTAMP NULL) COMMENT='a ''table'''"
    )
    altered.check()
    altered.ddl(f"CREATE TABLE `{two.name}` LIKE `{altered.name.name}`")
    altered.write(altered.known[two], (5, 5, "five"))
    altered.ddl(f"RENAME TABLE `{one.name}` TO `{t}_3`, `{two.name}` TO `{one.name}`")
    altered.check()
    assert [row["id"] for row in altered.rows(one)] == [5]
    altered.ddl(f"TRUNCATE TABLE `{one.name}`")
    assert altered.rows(one) == []
    altered.ddl(f"DROP TABLE `{one.name}`, `{t}_3`")
    session = altered.target.connect()
    assert session.schema.structure(one) is None
    session.close()
    altered.check()


def test_primary_keys_change(altered: AlteredTarget) -> None:
    t = altered.name.name
    altered.write(altered.known[altered.name], (1, 10, "a"), (2, 20, "b"))
    altered.ddl(f"ALTER TABLE `{t}` MODIFY v INT NOT NULL, DROP PRIMARY KEY, ADD PRIMARY KEY (id, v)")
    altered.check()
    altered.ddl(f"ALTER TABLE `{t}` CHANGE id number INT NOT NULL")
    altered.check()
    altered.write(altered.known[altered.name], (1, 10, "c"), (1, 11, "d"))
    assert len(altered.rows()) == 3


def test_the_key_that_was_the_primary_key_is_made_once(altered: AlteredTarget) -> None:
    t = altered.name.name
    altered.ddl(
        f"ALTER TABLE `{t}` MODIFY v INT NOT NULL, DROP PRIMARY KEY, ADD PRIMARY KEY (v), ADD UNIQUE KEY u (id)"
    )
    altered.check()
    if isinstance(altered.target, PostgresTarget):
        with closing(altered.target.connect()) as session:
            shape = session.schema.shape(altered.name)
            assert shape is not None
            assert [key.columns for key in shape.keys if not key.primary] == [("id",)]


STATEMENTS = {
    "alter": "ALTER TABLE `{t}` ADD COLUMN late{n} INT NOT NULL DEFAULT 4",
    "rename": "RENAME TABLE `{t}` TO `{t}_x{n}`, `{t}_x{n}` TO `{t}`",
    "create": "CREATE TABLE `{t}_{n}` (id INT PRIMARY KEY)",
    "truncate": "TRUNCATE TABLE `{t}`",
}
ERRORS: dict[str, Callable[[], BaseException]] = {
    "process": ProcessDied,
    "connection": lambda: Transient("target-lost", "gone"),
}
# In memory, each case is interrupted at every point; on servers, where a schema change is slow, only at commits and
# statements.
CASES = [
    *((kind, verb, error) for kind in ("values", "values-journaled") for verb in STATEMENTS for error in ERRORS),
    *((kind, "rename", "process") for kind in ("postgres", "mariadb", "mysql97")),
    ("mysql97", "alter", "connection"),
    ("postgres", "alter", "connection"),
]


@pytest.mark.parametrize(("kind", "verb", "error"), CASES)
def test_wherever_it_breaks_the_next_attempt_makes_it_whole(
    target: Target, task: str, name: TableName, verb: str, error: str
) -> None:
    altered = AlteredTarget(target, task, name, table(name, {"id": INT}))
    dry = Breaking(target)
    altered.ddl(STATEMENTS[verb].format(t=name.name, n="dry"), dry)
    everywhere = isinstance(target, ValuesTarget)
    chosen = [n for n, point in enumerate(dry.points) if everywhere or point.split(":")[0] in ("commit", "execute")]
    assert len(chosen) >= 4
    for broken in chosen:
        watched = Breaking(target, broken, ERRORS[error])
        statement = STATEMENTS[verb].format(t=name.name, n=broken)
        try:
            assert altered.ddl(statement, watched) is Outcome.APPLIED
        except ProcessDied:
            altered.epoch = claimed(target, task)
            finished = broken == len(dry.points) - 1
            assert altered.ddl(statement) is (Outcome.ALREADY if finished else Outcome.APPLIED)
        assert len(watched.points) > broken
        altered.check()


def test_an_older_run_changes_nothing_any_more(altered: AlteredTarget) -> None:
    t = altered.name.name
    old = altered.epoch
    altered.epoch = claimed(altered.target, altered.task)
    altered.ddl(f"ALTER TABLE `{t}` ADD COLUMN fresh INT")
    late = schema_change(f"TRUNCATE TABLE `{t}`", altered.known, altered.name)
    altered.write(altered.known[altered.name], (1, 1, "a", 1))
    with pytest.raises(Fenced):
        runner(altered.target, altered.task, old).run(late, lsn(altered.place + 10))
    assert len(altered.rows()) == 1


def test_a_take_over_does_not_wait_for_a_running_change_and_the_change_is_made_once(altered: AlteredTarget) -> None:
    """The old run is executing its statement when the new run takes over, writes rows and begins the same change."""
    if isinstance(altered.target, IcebergTarget):
        pytest.skip(
            "the catalog's database has one writer at a time: a take-over and a commit wait for a schema change"
        )
    t = altered.name.name
    took_over = []

    def watch(point: str) -> None:
        if point == "execute:after" and not took_over:
            took_over.append(claimed(altered.target, altered.task))
            with Committer(altered.target, altered.task, "s", took_over[0]) as writer:
                assert writer.commit(0, lsn(100), checkpoint(105), lambda _: [], has_rows=False) is Outcome.APPLIED

    with pytest.raises(Fenced):
        altered.ddl(f"ALTER TABLE `{t}` ADD COLUMN once INT", Breaking(altered.target, watch=watch))
    altered.epoch = took_over[0]
    assert altered.ddl(f"ALTER TABLE `{t}` ADD COLUMN once INT") is Outcome.APPLIED
    altered.check()


def test_rows_of_others_are_committed_while_a_change_runs(altered: AlteredTarget) -> None:
    """Even a change that is part of a transaction locks checkpoints only while it commits."""
    if isinstance(altered.target, IcebergTarget):
        pytest.skip(
            "the catalog's database has one writer at a time: a take-over and a commit wait for a schema change"
        )
    committed = []

    def watch(point: str) -> None:
        if point == "execute:after" and not committed:
            with Committer(altered.target, altered.task, "s", altered.epoch) as writer:
                committed.append(writer.commit(0, lsn(100), checkpoint(105), lambda _: [], has_rows=False))

    assert (
        altered.ddl(f"TRUNCATE TABLE `{altered.name.name}`", Breaking(altered.target, watch=watch)) is Outcome.APPLIED
    )
    assert committed == [Outcome.APPLIED]
    altered.check()


def test_a_table_that_exists_already_must_be_the_same(altered: AlteredTarget, name: TableName) -> None:
    other = TableName(name.schema, name.name + "_e")
    session = altered.target.connect()
    create(session, table(other, {"id": INT}))
    session.close()
    assert altered.ddl(f"CREATE TABLE `{other.name}` (id INT PRIMARY KEY)") is Outcome.APPLIED
    del altered.known[other]
    with pytest.raises(Halted, match="lacks column v"):
        altered.ddl(f"CREATE TABLE `{other.name}` (id INT PRIMARY KEY, v INT)")


@pytest.mark.parametrize("kind", ["postgres", "mariadb", "values"])
def test_a_new_table_halts_if_its_column_would_get_wrong_values_from_the_log(
    altered: AlteredTarget, name: TableName, kind: str
) -> None:
    def creates(suffix: str, expression: str, create: str = "CREATE TABLE") -> None:
        name = f"{altered.name.name}_{suffix}"
        altered.ddl(f"{create} `{name}` (id INT AUTO_INCREMENT PRIMARY KEY, v VARCHAR(20) AS ({expression}) VIRTUAL)")

    creates("f", "CONCAT('id', 1)")
    altered.check()
    for create_it in ("CREATE TABLE", "CREATE OR REPLACE TABLE"):
        with pytest.raises(Halted, match="computes v from the AUTO_INCREMENT column"):
            creates("g", "CONCAT('N', id)", create_it)
    session = altered.target.connect()
    assert session.schema.structure(TableName(name.schema, f"{altered.name.name}_g")) is None
    session.close()
    if kind == "postgres":  # PostgreSQL computes this column itself
        altered.ddl(
            f"CREATE TABLE `{altered.name.name}_h` (id INT AUTO_INCREMENT PRIMARY KEY, n BIGINT AS (id + 1) VIRTUAL)"
        )


@pytest.mark.parametrize("kind", ["postgres", "mariadb", "values"])
def test_an_alter_halts_if_a_column_would_get_wrong_values_from_the_log(altered: AlteredTarget, kind: str) -> None:
    counted, other = f"`{altered.name.name}_g`", f"`{altered.name.name}_h`"
    virtual = "VARCHAR(20) AS (CONCAT('N', id)) VIRTUAL"
    altered.ddl(f"CREATE TABLE {counted} (id INT AUTO_INCREMENT PRIMARY KEY, v INT)")
    altered.ddl(f"ALTER TABLE {counted} ADD COLUMN w VARCHAR(20) AS (CONCAT('N', 'v')) VIRTUAL")
    altered.ddl(f"CREATE TABLE {other} (id INT PRIMARY KEY, v {virtual}, w INT AS (id + 1) VIRTUAL)")
    altered.ddl(f"ALTER TABLE {other} MODIFY id BIGINT, RENAME COLUMN v TO u")
    if kind != "values":  # the target computes this column itself
        altered.ddl(f"ALTER TABLE {counted} ADD COLUMN x BIGINT AS (id + 1) VIRTUAL")
        altered.ddl(f"ALTER TABLE {counted} RENAME COLUMN x TO y")
        altered.check()
    with pytest.raises(Halted, match="computes z from the AUTO_INCREMENT column"):
        altered.ddl(f"ALTER TABLE {counted} ADD COLUMN z {virtual}")
    with pytest.raises(Halted, match=r"computes .*\bu\b"):
        altered.ddl(f"ALTER TABLE {other} MODIFY id BIGINT AUTO_INCREMENT")


@pytest.mark.parametrize("kind", ["postgres", "mariadb"])
def test_an_alter_of_a_table_with_rows_halts_for_wrong_values_before_anything_else(altered: AlteredTarget) -> None:
    counted = f"{altered.name.name}_g"
    altered.ddl(f"CREATE TABLE `{counted}` (id INT AUTO_INCREMENT PRIMARY KEY, v INT)")
    altered.write(altered.known[TableName(altered.name.schema, counted)], (7, 1))
    with pytest.raises(Halted, match="computes z from the AUTO_INCREMENT column") as halted:
        altered.ddl(f"ALTER TABLE `{counted}` ADD COLUMN z VARCHAR(20) AS (CONCAT('N', id)) VIRTUAL")
    assert not isinstance(halted.value, RowsUnknown), "a copy would make a plain column"


@pytest.mark.parametrize("kind", ["postgres"])
@pytest.mark.parametrize(
    "action", ["MODIFY id BIGINT AUTO_INCREMENT", "MODIFY x BIGINT AS (id + 2) VIRTUAL", "RENAME COLUMN id TO no"]
)
def test_an_alter_halts_if_the_target_would_no_longer_compute_the_column(altered: AlteredTarget, action: str) -> None:
    counted = f"`{altered.name.name}_g`"
    altered.ddl(f"CREATE TABLE {counted} (id INT AUTO_INCREMENT PRIMARY KEY, x BIGINT AS (id + 1) VIRTUAL)")
    with pytest.raises(Halted, match="computes x from the AUTO_INCREMENT column"):
        altered.ddl(f"ALTER TABLE {counted} {action}")


@pytest.mark.parametrize("kind", ["postgres"])
def test_a_column_that_becomes_plain_on_the_source_does_not_halt(altered: AlteredTarget) -> None:
    counted = f"`{altered.name.name}_g`"
    altered.ddl(f"CREATE TABLE {counted} (id INT AUTO_INCREMENT PRIMARY KEY, x BIGINT AS (id + 1) VIRTUAL)")
    altered.ddl(f"ALTER TABLE {counted} RENAME COLUMN x TO y")
    altered.ddl(f"ALTER TABLE {counted} DROP COLUMN y, ADD COLUMN z BIGINT")
    altered.check()


@pytest.mark.parametrize("kind", ["postgres", "mariadb", "values"])
@pytest.mark.parametrize(
    "text",
    ["CREATE TABLE {} (id INT AUTO_INCREMENT PRIMARY KEY, {})", "ALTER TABLE {} MODIFY id INT AUTO_INCREMENT, ADD {}"],
)
def test_a_task_with_several_sources_halts_for_wrong_values_too(altered: AlteredTarget, text: str) -> None:
    """There, the target's structure has no expressions, since each source may have another one."""
    name = altered.name if text.startswith("ALTER") else TableName(altered.name.schema, f"{altered.name.name}_g")
    sql = text.format(f"`{name.name}`", "x BIGINT AS (id + 1) VIRTUAL")
    made = schema_change(sql, altered.known, altered.name)
    made = replace(made, after={each: table and table.of_any_shard for each, table in made.after.items()})
    with pytest.raises(Halted, match="computes x from the AUTO_INCREMENT column"):
        runner(altered.target, altered.task, altered.epoch).run(made, lsn(110))


@pytest.mark.parametrize("kind", ["mariadb"])
def test_a_generated_column_of_the_target_gets_right_values_unless_it_is_replaced(
    altered: AlteredTarget, name: TableName
) -> None:
    made = f"`{altered.name.name}_g` (id INT AUTO_INCREMENT PRIMARY KEY, {{}} VARCHAR(20) AS (CONCAT('N', id)) VIRTUAL)"
    session = altered.target.connect()
    session.execute(f"CREATE TABLE `{name.schema}`.{made.format('V')}")
    session.close()
    assert altered.ddl(f"CREATE TABLE {made.format('v')}") is Outcome.APPLIED
    with pytest.raises(Halted, match="computes v from the AUTO_INCREMENT column"):
        altered.ddl(f"CREATE OR REPLACE TABLE {made.format('v')}")


@pytest.mark.parametrize("kind", ["postgres", "mariadb"])
def test_values_that_only_the_source_knows_halt_it(altered: AlteredTarget) -> None:
    t = altered.name.name
    altered.ddl(f"ALTER TABLE `{t}` ADD COLUMN empty_is_fine TIMESTAMP(6) NULL DEFAULT CURRENT_TIMESTAMP(6)")
    altered.write(altered.known[altered.name], (1, 1, "a", None))
    with pytest.raises(Halted, match="ddl-not-translatable"):
        altered.ddl(f"ALTER TABLE `{t}` ADD COLUMN moment TIMESTAMP(6) NULL DEFAULT CURRENT_TIMESTAMP(6)")


@pytest.mark.parametrize("kind", MYSQL_KINDS)
def test_a_change_waits_for_the_one_that_a_lost_run_left_running(target: Target, task: str, name: TableName) -> None:
    altered = AlteredTarget(target, task, name, table(name, {"id": INT}))
    holder = target.connect()
    done = threading.Event()

    def release() -> None:
        done.wait(0.5)
        holder.close()

    with_lock = holder.meta.ddl_lock(task, f"s {lsn(altered.place + 10)}")
    with_lock.__enter__()
    thread = threading.Thread(target=release)
    thread.start()
    assert altered.ddl(f"ALTER TABLE `{name.name}` ADD COLUMN x INT") is Outcome.APPLIED
    thread.join()


@pytest.mark.parametrize("kind", ["postgres"])
def test_columns_are_named_in_what_is_left_out(target: Target, name: TableName) -> None:
    structure = table(name, {"id": INT, "g": ColumnType(Kind.INT), "e": text(5)})
    columns = (
        structure.columns[0],
        Column("g", INT, generated=True),
        Column("e", ColumnType(Kind.VARCHAR, length=5), default="(uuid())"),
    )
    session = target.connect()
    rendered = session.schema.create_statements(Table(name, columns, structure.keys))
    session.close()
    assert [note.split(":")[0] for note in rendered.notes] == ["column g", "column e"]


@pytest.mark.parametrize("kind", ["postgres", "mariadb", "mysql97"])
def test_a_key_over_a_part_of_a_text_is_no_obstacle(altered: AlteredTarget) -> None:
    one = TableName(altered.name.schema, altered.name.name + "_p")
    altered.ddl(f"CREATE TABLE `{one.name}` (id INT PRIMARY KEY, t TEXT, KEY (t(10)))")
    altered.write(altered.known[one], (1, "x" * 20_000), (2, "x" * 20_000))
    altered.check()
