"""On a target of the source's product, the target computes a new generated column, for old and new rows."""

from __future__ import annotations

from collections.abc import Iterator

import pymysql
import pytest

from pidts.apply import Target
from pidts.login import Mode, Tls
from pidts.model import Halted, RowsUnknown, Table, TableName
from pidts.sandbox import Server
from pidts.schema import Dialect, apply, classify
from pidts.schema.statement_time import StatementTime
from pidts.target import MySqlTarget

pytestmark = pytest.mark.parametrize("kind", ["mysql97", "mariadb"])
PIPES_AS_CONCAT = 1 << 1


class Pair:
    """A table of the source and its target table, in two schemas of one server."""

    def __init__(self, server: Server, target: Target, schema: str) -> None:
        place = (server.host, server.port, server.user, server.password)
        self._user = pymysql.connect(
            host=place[0], port=place[1], user=place[2], password=place[3], autocommit=True, ssl_disabled=True
        )
        self.here, self.there = TableName(f"{schema}_s", "t"), TableName(f"{schema}_t", "t")
        self.source, self.target = MySqlTarget(*place, tls=Tls(Mode.DISABLED)).connect(), target.connect()
        self.run(*(f"CREATE DATABASE {name.schema} CHARSET utf8mb4" for name in (self.here, self.there)))
        self._dialect = Dialect.of(str(self.run("SELECT VERSION()")[0][0]))
        self.known: dict[TableName, Table] = {}

    def run(self, *statements: str) -> tuple[tuple[object, ...], ...]:
        with self._user.cursor() as cursor:
            for sql in statements:
                cursor.execute(sql)
            return tuple(cursor.fetchall())

    def follow(self, sql: str, sql_mode: int = 0, charset: str = "utf8mb4") -> None:
        """Runs `sql` for the table `{t}` in a session of this charset; the target makes the change under its own name."""
        self.run(f"SET NAMES {charset}")
        self._user.encoding = "utf8" if charset == "utf8mb4" else charset
        self.run(sql.format(t=self.here))
        self.run("SET NAMES utf8mb4")
        self._user.encoding = "utf8"
        dialect = self._dialect.under(sql_mode, utf8_literals=charset == "utf8mb4")
        statement = classify(sql.format(t=self.there), "x", dialect=dialect)
        changed = apply(statement, self.known, {}, dialect=dialect)
        before = {name: self.known.get(name) for name in changed}
        for each in self.target.schema.ddl_statements(
            statement, before, changed, StatementTime(1_700_000_000)
        ).statements:
            self.target.execute(each)
        self.known = {name: table for name, table in {**self.known, **changed}.items() if table is not None}

    def insert(self, columns: str, values: str) -> None:
        """Writes a row to both tables; the target's computed columns are not written."""
        self.run(*(f"INSERT INTO {name} ({columns}) VALUES {values}" for name in (self.here, self.there)))

    def rows(self, name: TableName) -> tuple[tuple[object, ...], ...]:
        return self.run(f"SELECT * FROM {name} ORDER BY 1")

    def close(self) -> None:
        self.run(*(f"DROP DATABASE {name.schema}" for name in (self.here, self.there)))
        for one in (self._user, self.source, self.target):
            one.close()


@pytest.fixture
def pair(target: Target, kind: str, request: pytest.FixtureRequest, name: TableName) -> Iterator[Pair]:
    made = Pair(request.getfixturevalue(kind), target, name.name[-24:])
    made.follow("CREATE TABLE {t} (id INT PRIMARY KEY, a INT, b VARCHAR(20), s TIMESTAMP NULL)")
    made.insert(
        "id, a, b, s", "(1, 10, 'X\\\\'), (2, NULL, 'y')".replace("),", ", '2024-05-01 00:30:00'),", 1)[:-1] + ", NULL)"
    )
    yield made
    made.close()


def test_the_target_computes_what_the_source_computes(pair: Pair) -> None:
    pair.follow(
        "ALTER TABLE {t} ADD g VARCHAR(60) AS (CONCAT_WS('\\\\', LOWER(`b`), IF(a > 5, 'it''s', a / 3))) STORED FIRST, "
        "ADD h INT GENERATED ALWAYS AS (LENGTH(b)) VIRTUAL, ADD KEY (h)"
    )
    pair.insert("id, a, b", "(3, 3, 'Zé')")
    assert pair.rows(pair.there) == pair.rows(pair.here)
    assert pair.target.schema.misfits(pair.known[pair.there]) == []
    pair.follow("ALTER TABLE {t} RENAME COLUMN h TO k")
    pair.insert("id, a, b", "(4, 4, 'four')")
    assert pair.rows(pair.there) == pair.rows(pair.here)


def test_bytes_of_a_session_in_utf8_are_the_same_here(pair: Pair) -> None:
    pair.follow(
        "ALTER TABLE {t} ADD g VARCHAR(60) AS (CONCAT(HEX('é'), b, 'é')) STORED, ADD c VARBINARY(9) DEFAULT 'é\\''"
    )
    assert pair.rows(pair.there) == pair.rows(pair.here)
    assert pair.rows(pair.there)[0][-1] == "é'".encode()


@pytest.mark.parametrize(
    "added", ["g VARCHAR(60) AS (HEX('é')) STORED", "c VARBINARY(9) DEFAULT 'é'", "c VARCHAR(9) DEFAULT _latin1'é'"]
)
def test_bytes_of_a_session_in_another_charset_halt(pair: Pair, added: str) -> None:
    with pytest.raises(Halted, match="ddl-not-translatable"):
        pair.follow(f"ALTER TABLE {{t}} ADD {added}", charset="latin1")
    pair.follow("ALTER TABLE {t} ADD d VARCHAR(9) DEFAULT 'é'", charset="latin1")
    assert [row[-1] for row in (*pair.rows(pair.here), *pair.rows(pair.there))] == ["é"] * 4


@pytest.mark.parametrize(
    ("expression", "sql_mode"),
    [("DATE(s)", 0), ("b", PIPES_AS_CONCAT), ("DATE_FORMAT('2024-05-01', '%M')", 0)],
)
def test_an_expression_that_depends_on_the_session_halts(pair: Pair, expression: str, sql_mode: int) -> None:
    before = pair.rows(pair.there)
    with pytest.raises(Halted, match="ddl-not-translatable"):
        pair.follow(f"ALTER TABLE {{t}} ADD g VARCHAR(60) AS ({expression}) VIRTUAL", sql_mode)
    assert pair.rows(pair.there) == before


def test_values_that_the_source_computes_anew_halt(pair: Pair) -> None:
    """The source writes none of these values to the log, and the target has plain values."""
    pair.follow("DROP TABLE {t}")
    pair.follow("CREATE TABLE {t} (id INT PRIMARY KEY, a DECIMAL(10,2), g DECIMAL(10,2) AS (a * 2) STORED)")
    pair.run(f"INSERT INTO {pair.here} (id, a) VALUES (1, 1.26)", f"INSERT INTO {pair.there} VALUES (1, 1.26, 2.52)")
    pair.follow("ALTER TABLE {t} MODIFY a DECIMAL(12,2)")
    assert pair.rows(pair.here) == pair.rows(pair.there)
    with pytest.raises(Halted, match="column g has values in existing rows") as error:
        pair.follow("ALTER TABLE {t} MODIFY a DECIMAL(12,1)")
    assert error.value.code == "ddl-not-translatable"
    assert [str(value) for value in pair.rows(pair.here)[0]] == ["1", "1.3", "2.60"]


def test_statements_to_complete_come_with_values_that_only_the_source_knows(pair: Pair) -> None:
    for sql in ("ALTER TABLE {t} ADD n INT AUTO_INCREMENT UNIQUE", "ALTER TABLE {t} ADD g YEAR AS (YEAR(s)) VIRTUAL"):
        with pytest.raises(RowsUnknown) as caught:
            pair.follow(sql)
        for each in caught.value.instead:
            pair.target.execute(each)
    assert len(pair.rows(pair.there)[0]) == len(pair.rows(pair.here)[0])


@pytest.mark.parametrize(
    "made",
    [
        "MODIFY COLUMN g VARCHAR(30) GENERATED ALWAYS AS (LOWER(b)) STORED",
        "CHANGE g g VARCHAR(30) GENERATED ALWAYS AS (LOWER(b)) STORED FIRST",
        "DROP g, ADD g VARCHAR(30) GENERATED ALWAYS AS (IF(s, LOWER(b), LOWER(b))) VIRTUAL, DROP KEY by_g, ADD KEY by_g (g)",
    ],
    ids=["modify", "change", "anew"],
)
def test_a_column_that_only_the_target_generates_stays_when_the_source_generates_it(pair: Pair, made: str) -> None:
    pair.follow("ALTER TABLE {t} ADD g VARCHAR(20), ADD KEY by_g (g)")
    pair.run(f"ALTER TABLE {pair.there} MODIFY g VARCHAR(20) GENERATED ALWAYS AS (UPPER(b)) STORED")
    pair.target.schema.forget()
    pair.follow(f"ALTER TABLE {{t}} {made}, ADD c INT DEFAULT 5")
    assert pair.run(f"SELECT id, g, c FROM {pair.here} ORDER BY id") == ((1, "x\\", 5), (2, "y", 5))
    assert pair.run(f"SELECT id, g, c FROM {pair.there} ORDER BY id") == ((1, "X\\", 5), (2, "Y", 5))
    pair.insert("id, b", "(3, 'Zz')")
    assert pair.run(f"SELECT g FROM {pair.there} WHERE id = 3") == (("ZZ",),)


@pytest.mark.parametrize(("change", "now"), [("MODIFY g", "g"), ("CHANGE g h", "h")])
def test_the_advice_about_a_new_expression_does_not_make_the_targets_column_plain(
    pair: Pair, change: str, now: str
) -> None:
    """Only a copy, which also writes the values, makes the column plain."""
    pair.follow("ALTER TABLE {t} ADD g VARCHAR(20) GENERATED ALWAYS AS (LOWER(b)) STORED")
    pair.target.schema.forget()
    with pytest.raises(RowsUnknown, match=f"column {now} has values") as caught:
        pair.follow(f"ALTER TABLE {{t}} {change} VARCHAR(20) GENERATED ALWAYS AS (UPPER(b)) STORED")
    assert f" `{now}` varchar(20)" in caught.value.instead[0]
    shown = caught.value.for_operator()
    assert (shown.code, shown.instead) == ("ddl-not-translatable", ())
    assert "expression that computes the source's values" in shown.todo
    assert "by hand, and then run: pidts ddl skip TASK --source SOURCE --at LSN --yes" in shown.todo
