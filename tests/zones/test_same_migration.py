"""All zones run the same migration at the same time: each finds the migrations of the others done, and continues."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest
from structlog.testing import capture_logs
from tests.crashes import ProcessDied
from tests.target.conformance.breaking import Breaking
from tests.target.conformance.samples import INT, lsn, table, text
from tests.target.conformance.test_ddl import AlteredTarget, runner, schema_change

from pidts.apply import Outcome
from pidts.login import Mode, Tls
from pidts.model import Halted, Table, TableName
from pidts.sandbox import Server
from pidts.target.mysql import MySqlTarget

pytestmark = pytest.mark.repeats("mysql56")

RunSql = Callable[..., list[tuple[Any, ...]]]


class Zone:
    """A zone whose programs run a migration, and a task that carries another zone's migration."""

    def __init__(self, server: Server, database: str, run_sql: RunSql) -> None:
        self.target = MySqlTarget(
            server.host, server.port, server.user, server.password, tls=Tls(Mode.DISABLED), zone="a"
        )
        with closing(self.target.connect()) as session:
            session.meta.prepare()
        self.sql = lambda text_: run_sql(server, text_, database=database)
        made: Table = table(TableName(database, "t"), {"id": INT, "v": INT, "w": text()}, unique=["v"])
        self.altered = AlteredTarget(self.target, f"t{database}", made.name, made)
        self.sql("INSERT INTO t VALUES (1, 1, 'one'), (2, NULL, NULL)")

    def ddl(self, statement: str, through: Any = None, *, between_zones: bool = True) -> Outcome:
        """Runs a statement as a task that has read it in another zone's log does."""
        altered = self.altered
        change = schema_change(statement, altered.known, altered.name)
        change = replace(change, between_zones=between_zones)
        outcome = runner(through or self.target, altered.task, altered.epoch).run(change, lsn(altered.place))
        assert isinstance(outcome, Outcome)
        return outcome

    def structures(self) -> list[tuple[Any, ...]]:
        """Returns the definitions of all tables."""
        return [self.sql(f"SHOW CREATE TABLE {name}")[0] for (name,) in self.sql("SHOW TABLES")]


@pytest.fixture
def zone(mysql_like: Server, database: str, run_sql: RunSql) -> Zone:
    return Zone(mysql_like, database, run_sql)


NOT_SHOWN = (
    "the table's structure does not show whether programs of this zone have also made this schema change. If they have, "
    "it is now made a second time. Compare the zones (pidts verify TASK)"
)
MADE = [
    "ALTER TABLE t ADD COLUMN c INT",
    "ALTER TABLE t ADD COLUMN c INT NOT NULL DEFAULT 7",
    "ALTER TABLE t ADD COLUMN c INT NOT NULL DEFAULT 7 AFTER id, ADD COLUMN d VARCHAR(9) DEFAULT 'x', ALGORITHM=COPY",
    "ALTER TABLE t ADD COLUMN c INT, DROP COLUMN w",
    "ALTER TABLE t DROP COLUMN w",
    "ALTER TABLE t MODIFY COLUMN w VARCHAR(80)",
    "ALTER TABLE t CHANGE COLUMN w x VARCHAR(80)",
    "ALTER TABLE t ADD INDEX i (w)",
    "ALTER TABLE t ADD UNIQUE KEY i (w)",
    "ALTER TABLE t DROP INDEX u_0",
    "ALTER TABLE t ALTER COLUMN v SET DEFAULT 5",
    "ALTER TABLE t COMMENT 'x'",
    "ALTER TABLE t RENAME TO r",
    "CREATE INDEX i ON t (w)",
    "CREATE TABLE n (id INT PRIMARY KEY, v INT)",
    "DROP TABLE t",
    "RENAME TABLE t TO r",
]


@pytest.mark.parametrize("statement", MADE)
def test_a_migration_that_the_zone_has_made_itself_is_done(zone: Zone, statement: str) -> None:
    zone.sql(statement)
    before = zone.structures()
    assert zone.ddl(statement) is Outcome.APPLIED
    assert zone.structures() == before
    assert runner(zone.target, zone.altered.task, zone.altered.epoch).is_done(lsn(zone.altered.place))


@pytest.mark.parametrize("statement", MADE[:1] + MADE[3:5] + MADE[7:8] + MADE[12:13])
def test_a_migration_that_the_zone_makes_at_the_same_moment_is_done(zone: Zone, statement: str) -> None:
    """The zone's own statement comes after the task has checked, and before the task sends its statement."""
    made: list[str] = []

    def meanwhile(point: str) -> None:
        if point == "execute:before" and not made:
            made.append(point)
            zone.sql(statement)

    through = Breaking(zone.target)
    through.watch = meanwhile
    assert zone.ddl(statement, through) is Outcome.APPLIED
    assert made


@pytest.mark.parametrize("statement", [MADE[1], MADE[3]])
def test_a_task_that_dies_anywhere_finds_it_done(zone: Zone, statement: str) -> None:
    zone.sql(statement)
    for broken in itertools.count():
        through = Breaking(zone.target, broken)
        try:
            zone.ddl(statement, through)
        except ProcessDied:
            continue
        break
    assert broken > 3
    assert zone.sql("SELECT id FROM t ORDER BY id") == [(1,), (2,)]


@pytest.mark.parametrize(
    ("own", "statement"),
    [
        ("ALTER TABLE t ADD COLUMN c INT NOT NULL DEFAULT 8", "ALTER TABLE t ADD COLUMN c INT NOT NULL DEFAULT 7"),
        ("ALTER TABLE t ADD COLUMN c INT NULL", "ALTER TABLE t ADD COLUMN c INT NOT NULL DEFAULT 7"),
        ("ALTER TABLE t ADD COLUMN c INT DEFAULT 1", "ALTER TABLE t ADD COLUMN c INT DEFAULT 1, ADD COLUMN d INT"),
        ("ALTER TABLE t ADD COLUMN c SMALLINT", "ALTER TABLE t ADD COLUMN c INT"),
        ("ALTER TABLE t ADD INDEX i (v)", "ALTER TABLE t ADD INDEX i (w)"),
        ("ALTER TABLE t ADD UNIQUE KEY i (w(5))", "ALTER TABLE t ADD UNIQUE KEY i (w(9))"),
        (
            "ALTER TABLE t ADD COLUMN c TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP",
            "ALTER TABLE t ADD COLUMN c TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP",
        ),
    ],
)
def test_another_migration_is_not_taken_for_it(zone: Zone, own: str, statement: str) -> None:
    zone.sql(own)
    before = zone.structures()
    with pytest.raises(Halted):
        zone.ddl(statement)
    assert zone.structures() == before


def test_a_column_that_is_created_anew_is_not_taken_for_made(zone: Zone) -> None:
    zone.sql("ALTER TABLE t ALTER COLUMN w SET DEFAULT 'five'")
    with capture_logs() as logs:
        zone.ddl("ALTER TABLE t DROP COLUMN w, ADD COLUMN w VARCHAR(40) DEFAULT 'five'")
    assert zone.sql("SELECT w FROM t") == [("five",), ("five",)]
    assert [one["event"] for one in logs if one["log_level"] == "warning"] == [NOT_SHOWN]


def test_tables_with_equal_structures_are_exchanged_with_a_warning(zone: Zone) -> None:
    zone.sql("CREATE TABLE other LIKE t")
    other = TableName(zone.altered.name.schema, "other")
    zone.altered.known[other] = zone.altered.known[zone.altered.name].renamed(other)
    with capture_logs() as logs:
        zone.ddl("RENAME TABLE t TO x, other TO t, x TO other")
    assert zone.sql("SELECT COUNT(*) FROM other") == [(2,)]
    assert [one["event"] for one in logs if one["log_level"] == "warning"] == [NOT_SHOWN]


@pytest.mark.parametrize("statement", [*MADE[:6], "RENAME TABLE t TO r"])
def test_visible_changes_are_made_without_a_warning(zone: Zone, statement: str) -> None:
    with capture_logs() as logs:
        zone.ddl(statement)
    assert [one["event"] for one in logs if one["log_level"] == "warning"] == []


def test_a_generated_column_is_not_taken_for_made(zone: Zone) -> None:
    if zone.sql("SELECT VERSION()")[0][0].startswith("5.6"):
        pytest.skip("MySQL 5.6 has none")
    zone.sql("DELETE FROM t")
    zone.sql("ALTER TABLE t ADD COLUMN g INT AS (v * 3)")
    with pytest.raises(Halted):
        zone.ddl("ALTER TABLE t ADD COLUMN g INT AS (v * 2)")


def test_a_task_of_no_zone_halts(zone: Zone) -> None:
    zone.sql(MADE[0].replace("INT", "INT DEFAULT 1"))
    with pytest.raises(Halted):
        zone.ddl(MADE[0].replace("INT", "INT DEFAULT 1"), between_zones=False)
