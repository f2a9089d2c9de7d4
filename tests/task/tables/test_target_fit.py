"""Rows of the target are removed only if it is certain that the source does not have them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa
import pytest
from tests.target.conformance.samples import create
from tests.values_target import ValuesTarget
from tests.values_target.session import ValuesSession

from pidts.model import Column, ColumnType, Key, Kind, Table, TableName
from pidts.plan import CopyMode
from pidts.rules import ColumnMapping, EventFilter, FilterRule, RouteRule, Routes, Rules
from pidts.task.tables.merged import own_shards
from pidts.task.tables.target_fit import fit_of

COLUMNS = (Column("id", ColumnType(Kind.BIGINT), nullable=False), Column("n", ColumnType(Kind.BIGINT)))
TABLE = Table(TableName("shop_1", "cart"), COLUMNS, (Key("PRIMARY", ("id",), unique=True, primary=True),))


@pytest.fixture
def session() -> Iterator[ValuesSession]:
    target = ValuesTarget("fit under rules")
    session = target.connect()
    for name in (TABLE.name, TableName("shop", "cart")):
        made = TABLE.renamed(name)
        create(session, made)
        session.begin()
        assert session.load(made, pa.table([[1], [2]], schema=made.arrow))
        session.commit()
    yield session
    session.close()
    target.forget()


@pytest.mark.parametrize(
    ("rules", "mode"),
    [
        (Rules(), CopyMode.REPAIR),
        (Rules(routes=Routes((RouteRule("shop_*", "", "shop"),))), CopyMode.REPAIR),
        (Rules(events=EventFilter((FilterRule("shop_1", "", ("all ddl",), (), "Ignore"),))), CopyMode.ADD),
        (Rules(events=EventFilter((FilterRule("shop_1", "", ("alter table",), (), "Ignore"),))), CopyMode.REPAIR),
        (Rules(events=EventFilter((FilterRule("shop_1", "", ("delete",), (), "Ignore"),))), CopyMode.ADD),
        (Rules(mappings=(ColumnMapping("shop_1", "", "n", "partition id", ("1", "", "")),)), CopyMode.REPAIR),
        (Rules(mappings=(ColumnMapping("shop_1", "", "id", "partition id", ("1", "", "")),)), CopyMode.ADD),
    ],
    ids=[
        "no rules",
        "route",
        "DDL ignored, TRUNCATE with it",
        "ALTER ignored",
        "deletes ignored",
        "another column mapped",
        "key mapped",
    ],
)
def test_a_table_with_rows_is_repaired_or_only_added_to(session: ValuesSession, rules: Rules, mode: CopyMode) -> None:
    fit = fit_of(session, TABLE, rules, copies=True, may_have_rows=True)
    assert (fit.problem, fit.mode) == ("", mode)


def test_merged_tables_without_a_key_get_the_advice_to_get_a_key(session: ValuesSession) -> None:
    keyless = [Table(TableName(schema, "cart"), COLUMNS) for schema in ("shop_1", "shop_2")]
    rules = Rules(routes=Routes((RouteRule("shop_*", "", "shop"),)))
    fit = fit_of(session, keyless[0], rules, copies=True, other_shards=own_shards(rules, keyless, begun=False))
    assert "without a key" in fit.problem
    assert fit.fix.startswith("Add a primary key to these tables on their sources")


def test_a_plain_column_does_not_get_values_that_the_source_computes_from_its_counter(session: ValuesSession) -> None:
    def with_code(name: str, *, of_target: bool) -> Table:
        code = Column("code", ColumnType(Kind.BIGINT), generated=of_target, computed="(`id` + 1) VIRTUAL")
        counter = replace(COLUMNS[0], auto_increment=True)
        return replace(TABLE.renamed(TableName("shop", name)), columns=(counter, COLUMNS[1], code))

    create(session, with_code("plain", of_target=False))
    create(session, with_code("generated", of_target=True))
    fits = {
        name: fit_of(session, with_code(name, of_target=True), Rules(), copies=True)
        for name in ("plain", "generated", "missing")
    }
    wrong = "the source computes code from the AUTO_INCREMENT column. MariaDB writes wrong values"
    assert fits["plain"].problem.startswith(wrong)
    assert fits["missing"].problem.startswith(wrong)
    assert "with a generated column there" in fits["missing"].fix
    assert fits["generated"].problem == ""
