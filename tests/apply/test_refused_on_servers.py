"""If a real target refuses a row of a merged table, the row and its shard are found whatever the server's message is."""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace

import pytest

from pidts.apply import ApplyRules, Committer, Target
from pidts.batch.applying import apply
from pidts.batch.blobs import Blob
from pidts.batch.workers import Commit
from pidts.model import ChangeBatch, Checkpoint, Column, ColumnType, Halted, Key, Kind, Lsn, Op, Table, TableName
from pidts.reduce import net_changes
from pidts.rules import Rules
from pidts.rules.event_filter import EventFilter, FilterRule

from .table_history import Row, batch_of
from .test_on_servers import create, target_on

_numbers = itertools.count(int(time.time()) % 1_000_000 * 1000)
INT = ColumnType(Kind.BIGINT)
TEXT = ColumnType(Kind.VARCHAR, length=100, charset="utf8mb4", collation="utf8mb4_bin")
KEYS = (Key("PRIMARY", ("part", "id"), unique=True, primary=True),)
COLUMNS = (Column("id", INT, nullable=False), Column("part", TEXT, nullable=False), Column("v", TEXT), Column("n", INT))
SHARDS = {name: TableName("shop", f"t_{name}") for name in ("a", "b", "c")}
ROWS = 40


@dataclass
class MergedTable:
    """A merged table with three shards, and a committer."""

    target: Target
    kind: str
    filters: Rules = field(default_factory=Rules)

    def __post_init__(self) -> None:
        self.name = TableName(f"refused_{next(_numbers)}", "t")
        self.table = Table(self.name, COLUMNS, KEYS)
        self.other = replace(self.table, name=TableName(self.name.schema, "o"))
        self.session = self.target.connect()
        self.session.meta.prepare()
        create(self.session, self.table)
        create(self.session, self.other)
        start = Checkpoint(task=self.name.schema, source="s1", worker=0, lsn=Lsn(0, 1, 0))
        (self.at,) = self.session.meta.checkpoints.claim(start.task, "s1", 1, start)

    def sql(self, statement: str) -> None:
        """Runs a statement on the target, in a transaction of its own."""
        self.session.execute(statement.format(f"{self.name.schema}.t"))

    def changes(self, shard: str, bad: Row | None = None, count: int = ROWS) -> ChangeBatch:
        """Returns changes of many rows of one shard; the target refuses the row that gets the values `bad`."""
        rows = [{"id": number, "part": shard, "v": "x", "n": number} for number in range(1, count + 1)]
        if bad is not None:
            rows[ROWS // 2] |= bad
        batch = batch_of(
            self.table, [(Op.INSERT, None, row) for row in rows], start=self.at.lsn.offset + ord(shard) * ROWS
        )
        return ChangeBatch(self.table, batch.rows, SHARDS[shard])

    def refused(self, *batches: ChangeBatch) -> Halted:
        with pytest.raises(Halted) as caught:
            self.apply(*batches)
        return caught.value

    def apply(self, *batches: ChangeBatch) -> None:
        rules = ApplyRules(task=self.at.task, source="s1", merged=frozenset({self.name}), filters=self.filters)
        beside = replace(batches[0], table=self.other, rows=batches[0].rows.slice(0, 1), upstream=None)
        new = replace(self.at, lsn=Lsn(0, 1, self.at.lsn.offset + 100_000), batch=self.at.batch + 1)
        with Committer(self.target, self.at.task, "s1", self.at.epoch, rules=rules) as committer:
            blobs = [Blob(0, number, batch) for number, batch in enumerate([beside, *batches], 1)]
            apply(committer, Commit((self.at,), (new,)), 0, blobs)
        self.at = new

    def count(self) -> int:
        return self.session.count(self.name)


@pytest.fixture(params=["mariadb", "mysql97", "postgres"])
def merged_table(request: pytest.FixtureRequest) -> Iterator[MergedTable]:
    target = target_on(request.getfixturevalue(request.param))
    made = MergedTable(target, request.param)
    with closing(made.session):
        yield made
        with suppress(Halted):
            made.session.execute(f"DROP SCHEMA {made.name.schema}" + (" CASCADE" if made.kind == "postgres" else ""))


NARROWER = {"postgres": "ALTER TABLE {0} ALTER COLUMN v TYPE varchar(3)", None: "ALTER TABLE {0} MODIFY v VARCHAR(3)"}
SMALLER = {"postgres": "ALTER TABLE {0} ALTER COLUMN n TYPE smallint", None: "ALTER TABLE {0} MODIFY n SMALLINT"}
NOT_NULL = {"postgres": "ALTER TABLE {0} ALTER COLUMN n SET NOT NULL", None: "ALTER TABLE {0} MODIFY n BIGINT NOT NULL"}
CHECKED = {None: "ALTER TABLE {0} ADD CONSTRAINT odd CHECK (n <> 666)"}
UNIQUE = {None: "CREATE UNIQUE INDEX by_n ON {0} (part, n)"}


@pytest.mark.parametrize(
    ("made", "bad", "says"),
    [
        (CHECKED, {"n": 666}, "odd"),
        (NARROWER, {"v": "longer"}, ""),
        (SMALLER, {"n": 1 << 40}, "out of range"),
        (NOT_NULL, {"n": None}, "null"),
        (UNIQUE, {"n": 7}, "unique"),
    ],
    ids=["check", "text", "number", "null", "unique"],
)
def test_one_row_of_one_shard(merged_table: MergedTable, made: dict[str | None, str], bad: Row, says: str) -> None:
    merged_table.sql(made.get(merged_table.kind, made[None]))
    error = merged_table.refused(merged_table.changes("a"), merged_table.changes("b", bad), merged_table.changes("c"))
    assert error.code == "target-refused"
    assert says in error.what.lower()
    assert (error.where.source, error.where.table, error.todo != "") == ("s1", "shop.t_b", True)
    assert error.where.key in {"id=21, part='b'", "part='b', id=21"}
    assert merged_table.count() == 0
    merged_table.apply(merged_table.changes("a"), merged_table.changes("c"))
    assert merged_table.count() == 2 * ROWS
    alone = merged_table.refused(merged_table.changes("b", bad))
    assert (alone.where.table, alone.where.key) == ("shop.t_b", error.where.key)
    merged_table.apply(merged_table.changes("b"))
    assert merged_table.count() == 3 * ROWS


@pytest.mark.parametrize("merged_table", ["mariadb", "mysql97"], indirect=True)
@pytest.mark.parametrize("large", ["a", "c"])
def test_a_transaction_that_is_too_large_halts_only_its_largest_shard(merged_table: MergedTable, large: str) -> None:
    names = ("binlog_cache_size", "max_binlog_cache_size")
    usual = [merged_table.session.rows(f"SELECT @@{name}")[0][0] for name in names]

    def limit(*sizes: int) -> None:
        for name, size in zip(names, sizes, strict=True):
            merged_table.session.execute(f"SET GLOBAL {name} = {size}")

    all_of = {shard: merged_table.changes(shard, count=20_000 if shard == large else ROWS) for shard in SHARDS}
    limit(32 << 10, 64 << 10)
    try:
        error = merged_table.refused(*all_of.values())
        assert error.code == "transaction-too-large"
        assert (error.where.source, error.where.table, error.where.key) == ("s1", f"shop.t_{large}", "")
        assert merged_table.count() == 0
        merged_table.apply(*(batch for shard, batch in all_of.items() if shard != large))
        assert merged_table.count() == 2 * ROWS
    finally:
        limit(*usual)


def test_the_advice_removes_the_constraint(merged_table: MergedTable) -> None:
    merged_table.sql(CHECKED[None])
    follow_advice(merged_table, 666, r"ALTER TABLE .* DROP CONSTRAINT \W?odd\b\W?(?=;)")


@pytest.mark.parametrize("merged_table", ["postgres"], indirect=True)
def test_the_advice_removes_the_unique_index(merged_table: MergedTable) -> None:
    merged_table.sql(UNIQUE[None])
    follow_advice(merged_table, 7, r"DROP INDEX [^;]+(?=;)")


def test_the_advice_lets_the_column_have_null(merged_table: MergedTable) -> None:
    merged_table.sql(NOT_NULL.get(merged_table.kind, NOT_NULL[None]))
    if merged_table.kind == "postgres":
        return follow_advice(merged_table, None, r'ALTER TABLE .* ALTER COLUMN "n" DROP NOT NULL')
    place = f"`{merged_table.name.schema}`.`t`"
    error = merged_table.refused(merged_table.changes("b", {"n": None}))
    assert f"Column `n` of {place} on the target is NOT NULL" in error.todo
    assert f"ALTER TABLE {place} MODIFY `n` ... NULL" in error.todo
    return None


@pytest.mark.parametrize("filtered", ["t_b", "t_a"])
def test_a_filter_that_leaves_out_deletes_is_named_after_a_duplicate_value(
    merged_table: MergedTable, filtered: str
) -> None:
    merged_table.filters = Rules(events=EventFilter((FilterRule("shop", filtered, ("delete",), (), "Ignore"),)))
    merged_table.sql(UNIQUE[None])
    error = merged_table.refused(merged_table.changes("b", {"n": 7}))
    assert ("The task's filters leave out some changes of shop.t_b." in error.todo) == (filtered == "t_b")
    merged_table.sql(CHECKED[None])
    assert "filters" not in merged_table.refused(merged_table.changes("b", {"n": 666})).todo


def follow_advice(merged_table: MergedTable, n: int | None, advised: str) -> None:
    """Writes a row that is refused, runs the statement of the advice, and writes the row again."""
    bad = merged_table.changes("b", {"n": n})
    error = merged_table.refused(bad)
    found = re.search(advised, error.todo)
    assert found, error.todo
    merged_table.session.execute(found[0])
    merged_table.apply(bad)
    assert merged_table.count() == ROWS


def test_the_advice_after_a_load_names_the_constraint(merged_table: MergedTable) -> None:
    merged_table.sql(CHECKED[None])
    (rows,) = [change.upserts for change in net_changes([merged_table.changes("a", {"n": 666})])]
    merged_table.session.begin()
    with pytest.raises(Halted) as refused:
        merged_table.session.load(merged_table.table, rows)
    merged_table.session.rollback()
    assert re.search(r"CHECK constraint \W?odd\b", refused.value.todo), refused.value.todo


REFUSING = {"postgres": "RAISE EXCEPTION 'not today'", None: "SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'not today'"}
WRITING = {None: "INSERT INTO {1}.nowhere VALUES (1)"}


def make_trigger(merged_table: MergedTable, action: dict[str | None, str]) -> None:
    """Makes a trigger `odd` that does this before a row with the value 666 is inserted."""
    body = f"IF NEW.n = 666 THEN {action.get(merged_table.kind, action[None])}; END IF"
    statements = [f"CREATE TRIGGER {{1}}.odd BEFORE INSERT ON {{0}} FOR EACH ROW {body}"]
    if merged_table.kind == "postgres":
        function = f"BEGIN {body}; RETURN NEW; END"
        statements = [
            f"CREATE FUNCTION {{1}}.refuse() RETURNS trigger LANGUAGE plpgsql AS $${function}$$",
            "CREATE TRIGGER odd BEFORE INSERT ON {0} FOR EACH ROW EXECUTE FUNCTION {1}.refuse()",
            "ALTER TABLE {0} ENABLE ALWAYS TRIGGER odd",  # An administrator's session fires no other triggers.
        ]
    for statement in statements:
        merged_table.session.execute(statement.format(f"{merged_table.name.schema}.t", merged_table.name.schema))


@pytest.mark.parametrize("action", [REFUSING, WRITING], ids=["signal", "absent table"])
@pytest.mark.parametrize("is_load", [False, True], ids=["changes", "load"])
def test_the_advice_says_how_to_find_the_trigger(
    merged_table: MergedTable, action: dict[str | None, str], *, is_load: bool
) -> None:
    make_trigger(merged_table, action)
    bad = merged_table.changes("a", {"n": 666})
    if is_load:
        (rows,) = [change.upserts for change in net_changes([bad])]
        merged_table.session.begin()
        with pytest.raises(Halted) as refused:
            merged_table.session.load(merged_table.table, rows)
        merged_table.session.rollback()
        error = refused.value
    else:
        error = merged_table.refused(bad)
    assert "trigger of the target's table refuses the row" in error.todo
    if merged_table.kind == "postgres":
        assert "refuse() line 1" in error.todo
        assert "GRANT" not in error.todo  # The session has switched triggers off; this trigger always fires.
    else:
        listing = re.search(r"SHOW TRIGGERS FROM .*?(?= lists)", error.todo)
        assert listing, error.todo
        assert [row[0] for row in merged_table.session.shown(listing[0])] == ["odd"]


def test_a_structure_that_does_not_fit_is_no_rows_fault(merged_table: MergedTable) -> None:
    merged_table.sql("ALTER TABLE {0} DROP COLUMN n")
    error = merged_table.refused(merged_table.changes("a"), merged_table.changes("b"))
    assert (error.where.table, error.where.key) == (str(merged_table.name), "")


@pytest.mark.parametrize("merged_table", ["mariadb"], indirect=True)
def test_a_check_of_a_column_on_mariadb(merged_table: MergedTable) -> None:
    merged_table.sql("ALTER TABLE {0} MODIFY n BIGINT CHECK (n <> 666)")
    error = merged_table.refused(merged_table.changes("a", {"n": 666}))
    place = f"`{merged_table.name.schema}`.`t`"
    assert f"CHECK constraint of column `n` of {place} on the target" in error.todo
    assert f"ALTER TABLE {place} MODIFY `n`" in error.todo


ENFORCED = (
    "DO $$ DECLARE name text; BEGIN FOR name IN SELECT tgname FROM pg_trigger WHERE tgrelid = '{0}'::regclass LOOP "
    "EXECUTE format('ALTER TABLE {0} ENABLE ALWAYS TRIGGER %I', name); END LOOP; END $$"
)
"""Enforces the table's foreign keys in an administrator's session, too."""


@pytest.mark.parametrize("merged_table", ["postgres"], indirect=True)
@pytest.mark.parametrize(
    ("made", "bad", "says"),
    [
        (
            [
                "CREATE DOMAIN {1}.even AS bigint CONSTRAINT odd CHECK (value <> 666)",
                "ALTER TABLE {0} ALTER n TYPE {1}.even",
            ],
            {"n": 666},
            'CHECK constraint "odd" of the domain "{1}"."even"',
        ),
        (
            ["ALTER TABLE {0} ADD CONSTRAINT odd EXCLUDE USING btree ((abs(n)) WITH =)"],
            {"n": -7},
            'exclusion constraint "odd" of "{1}"."t"',
        ),
        (
            [
                "CREATE TABLE {1}.parents (id bigint PRIMARY KEY)",
                "INSERT INTO {1}.parents SELECT * FROM generate_series(1, 100)",
                "ALTER TABLE {0} ADD CONSTRAINT odd FOREIGN KEY (n) REFERENCES {1}.parents",
                ENFORCED,
            ],
            {"n": 666},
            'foreign key "odd" of "{1}"."t"',
        ),
        (
            [
                "CREATE TABLE {1}.parents (id bigint PRIMARY KEY)",
                "INSERT INTO {1}.parents SELECT * FROM generate_series(1, 100)",
                "ALTER TABLE {0} ADD CONSTRAINT odd FOREIGN KEY (n) REFERENCES {1}.parents DEFERRABLE INITIALLY DEFERRED",
                ENFORCED,
            ],
            {"n": 666},
            'foreign key "odd" of "{1}"."t"',
        ),
    ],
    ids=["domain", "exclusion", "foreign key", "deferred"],
)
def test_other_constraints_of_postgresql(merged_table: MergedTable, made: list[str], bad: Row, says: str) -> None:
    for statement in made:
        merged_table.session.execute(statement.format(f"{merged_table.name.schema}.t", merged_table.name.schema))
    error = merged_table.refused(merged_table.changes("a", bad))
    assert says.format("", merged_table.name.schema) in error.todo, error


def test_a_table_that_is_alone_is_reported_with_its_row(merged_table: MergedTable) -> None:
    merged_table.sql(CHECKED[None])
    batch = merged_table.changes("a", {"n": 666})
    error = merged_table.refused(replace(batch, upstream=None))
    assert (error.where.table, "id=21" in error.where.key) == (str(merged_table.name), True)
