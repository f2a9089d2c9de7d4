"""A ddl command about a schema change is carried out once, wherever the run is interrupted."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.values_target import ValuesTarget

from pidts.apply import Outcome, Superseded, Target
from pidts.model import DdlOrder, Halt, Halted, OrderKind, SourceTablesKey, TableName
from pidts.schema import apply, classify
from pidts.target import IcebergTarget

from .breaking import Breaking, Died
from .samples import INT, lsn, table
from .test_ddl import World, claimed, runner, schema_change

pytestmark = pytest.mark.repeats("mysql56", "mysql97")

AT = lsn(110)


class Desk(World):
    """A table `t`, a source that adds a column `late` to it, and an operator who gives another statement for the
    target.
    """

    def __init__(self, target: Target, task: str, name: TableName) -> None:
        super().__init__(target, task, name, table(name, {"id": INT}))
        self.sql = f"ALTER TABLE `{name.name}` ADD COLUMN late INT"

    def words(self, sql: str) -> tuple[str, ...]:
        """Returns a statement in the target's own language."""
        statement = classify(sql, self.name.schema)
        session = self.target.connect()
        after = apply(statement, self.known, {})
        made = session.schema.ddl_statements(statement, self.known, after).statements
        session.close()
        return made

    def give(self, kind: OrderKind, *statements: str) -> None:
        session = self.target.connect()
        session.begin()
        session.meta.orders.give(self.task, "s", DdlOrder(lsn=AT, kind=kind, statements=statements))
        session.commit()
        session.close()

    def order(self) -> DdlOrder | None:
        session = self.target.connect()
        found = session.meta.orders.find(self.task, "s", AT)
        session.close()
        return found

    def carry_out(self, through: object = None) -> Outcome:
        """Makes the change as a run does, with the ddl commands that are in force now."""
        made = replace(schema_change(self.sql, self.known, self.name), order=self.order())
        return runner(through or self.target, self.task, self.epoch).run(made, AT)

    def columns(self) -> list[str]:
        session = self.target.connect()
        found = session.schema.structure(self.name)
        session.close()
        return [column.name for column in found.columns]

    def recorded(self) -> list[str]:
        session = self.target.connect()
        found = session.meta.structures.load(self.task, SourceTablesKey("s"))
        session.close()
        return [column.name for column in found[self.name].columns]


@pytest.fixture
def desk(target: Target, task: str, name: TableName) -> Desk:
    return Desk(target, task, name)


def instead(desk: Desk) -> str:
    (sql,) = desk.words(f"ALTER TABLE `{desk.name.name}` ADD COLUMN other BIGINT")
    return sql


@pytest.mark.parametrize(
    ("kind_of_order", "columns"),
    [
        (OrderKind.SKIP, ["id"]),
        (OrderKind.REPLACE, ["id", "other"]),
        (OrderKind.INJECT, ["id", "other", "late"]),
        (OrderKind.REVERT, ["id", "late"]),
    ],
)
def test_the_target_does_as_ordered_and_the_record_follows_the_source(
    desk: Desk, kind_of_order: OrderKind, columns: list[str]
) -> None:
    if isinstance(desk.target, ValuesTarget | IcebergTarget) and kind_of_order is OrderKind.INJECT:
        # On these targets, a statement names a whole structure. A warehouse keeps the columns that it does not name.
        columns = ["id", "late"] if isinstance(desk.target, ValuesTarget) else ["id", "late", "other"]
    desk.give(kind_of_order, *([instead(desk)] if kind_of_order in {OrderKind.REPLACE, OrderKind.INJECT} else []))
    assert desk.carry_out() is Outcome.APPLIED
    assert desk.columns() == columns
    assert desk.recorded() == ["id", "late"]
    assert desk.order().taken
    assert desk.carry_out() is Outcome.ALREADY


def test_an_order_begins_anew_what_failed_and_another_order_replaces_it(desk: Desk) -> None:
    def refused() -> Halted:
        return Halted("target-refused", "no")

    dry = Breaking(desk.target)
    with pytest.raises(Halted) as caught:
        desk.carry_out(Breaking(desk.target, watch=lambda point: _refuse(point, refused)))
    assert caught.value.where.table == str(desk.name), "what is refused names the table"
    desk.give(OrderKind.REPLACE, "nonsense")
    with pytest.raises((Halted, ValueError)) as caught:
        desk.carry_out(dry)
    if isinstance(caught.value, Halted):
        assert (caught.value.code, caught.value.where.table) == ("order-refused", str(desk.name))
        assert "`pidts ddl replace`: nonsense: " in caught.value.what
    desk.give(OrderKind.REPLACE, instead(desk))
    assert (desk.order().taken, desk.order().number) == (False, 2)
    assert desk.carry_out() is Outcome.APPLIED
    assert desk.columns() == ["id", "other"]


def _refuse(point: str, error) -> None:
    if point == "execute:before":
        raise error()


def test_trouble_with_the_journal_names_no_table(desk: Desk) -> None:
    def watch(point: str) -> None:
        if point == "meta.journal.write:before":
            raise Halted("target-refused", "no such table")

    with pytest.raises(Halted) as caught:
        desk.carry_out(Breaking(desk.target, watch=watch))
    assert caught.value.where.table == ""


def test_a_command_that_was_replaced_is_not_begun(desk: Desk) -> None:
    desk.give(OrderKind.REPLACE, instead(desk))
    made = replace(schema_change(desk.sql, desk.known, desk.name), order=desk.order())
    desk.give(OrderKind.SKIP)
    assert runner(desk.target, desk.task, desk.epoch).run(made, AT) == Superseded()
    assert desk.columns() == ["id"]
    assert desk.carry_out() is Outcome.APPLIED
    assert desk.columns() == ["id"]


@pytest.mark.parametrize("kind", ["values", "values-journaled", "postgres", "mariadb"])
@pytest.mark.parametrize("kind_of_order", [OrderKind.REPLACE, OrderKind.INJECT])
def test_wherever_it_breaks_the_next_attempt_makes_it_whole(
    target: Target, task: str, name: TableName, kind_of_order: OrderKind
) -> None:
    dry = Breaking(target)
    first = Desk(target, task, name)
    first.give(kind_of_order, instead(first))
    first.carry_out(dry)
    wanted = first.columns()
    everywhere = isinstance(target, ValuesTarget)
    chosen = [n for n, point in enumerate(dry.points) if everywhere or point.split(":")[0] in ("commit", "execute")]
    assert len(chosen) >= 4
    for broken in chosen:
        desk = Desk(target, f"{task}-{broken}", TableName(name.schema, f"{name.name}_{broken}"))
        desk.give(kind_of_order, instead(desk))
        with pytest.raises(Died):
            desk.carry_out(Breaking(target, broken))
        desk.epoch = claimed(target, desk.task)
        desk.carry_out()
        assert desk.columns() == wanted, dry.points[broken]
        assert desk.recorded() == ["id", "late"]


def test_halts_are_reported_and_resolved(target: Target, task: str, name: TableName) -> None:
    session = target.connect()
    rows = Halt(tables=(name,), lsn=AT, code="target-refused", what='too "long": ä', todo="mend it")
    change = Halt(tables=(name, TableName("x", "y.z")), lsn=AT, statement="ALTER ...", code="c", what="w")
    for halt in (rows, change, replace(rows, what="once more")):
        session.meta.halts.save(task, "s", halt)
    found = session.meta.halts.read(task, "s")
    assert sorted(found, key=lambda halt: halt.statement) == [replace(rows, what="once more"), change]
    session.meta.halts.resolve(task, "s", [change.place])
    assert session.meta.halts.read(task, "s") == [replace(rows, what="once more")]
    session.meta.halts.resolve(task, "s")
    assert session.meta.halts.read(task, "s") == []
    session.close()


@pytest.mark.parametrize("clause", ["late INT NOT NULL DEFAULT 7", "late INT DEFAULT 7"])
def test_a_column_that_is_there_already_is_not_taken_for_the_new_one(desk: Desk, clause: str) -> None:
    """An operator has added the column by hand, and it is NULL in all rows."""
    session = desk.target.connect()
    for sql in desk.words(desk.sql):
        session.execute(sql)
    session.close()
    desk.write(desk.known[desk.name], (1,))
    desk.sql = f"ALTER TABLE `{desk.name.name}` ADD COLUMN {clause}"
    with pytest.raises(Halted) as raised:
        desk.carry_out()
    assert raised.value.code == "target-shape"
