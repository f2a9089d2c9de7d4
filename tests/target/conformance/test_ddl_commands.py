"""A ddl command about a schema change is carried out once, wherever the run is interrupted."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.crashes import ProcessDied
from tests.values_target import ValuesTarget

from pidts.apply import AttemptSuperseded, Outcome, Target
from pidts.model import CommandKind, DdlCommand, Halt, Halted, SourceTablesKey, TableName
from pidts.schema import apply, classify
from pidts.target import IcebergTarget

from .breaking import Breaking
from .samples import INT, lsn, table
from .test_ddl import AlteredTarget, claimed, runner, schema_change

pytestmark = pytest.mark.repeats("mysql56", "mysql97")

AT = lsn(110)


class OperatorWorld(AlteredTarget):
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

    def give(self, kind: CommandKind, *statements: str) -> None:
        session = self.target.connect()
        session.begin()
        session.meta.ddl_commands.give(self.task, "s", DdlCommand(lsn=AT, kind=kind, statements=statements))
        session.commit()
        session.close()

    def command(self) -> DdlCommand | None:
        session = self.target.connect()
        found = session.meta.ddl_commands.find(self.task, "s", AT)
        session.close()
        return found

    def carry_out(self, through: object = None) -> Outcome:
        """Makes the change as a run does, with the ddl commands that are in force now."""
        made = replace(schema_change(self.sql, self.known, self.name), command=self.command())
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
def altered(target: Target, task: str, name: TableName) -> OperatorWorld:
    return OperatorWorld(target, task, name)


def instead(altered: OperatorWorld) -> str:
    (sql,) = altered.words(f"ALTER TABLE `{altered.name.name}` ADD COLUMN other BIGINT")
    return sql


@pytest.mark.parametrize(
    ("kind_of_order", "columns"),
    [
        (CommandKind.SKIP, ["id"]),
        (CommandKind.REPLACE, ["id", "other"]),
        (CommandKind.INJECT, ["id", "other", "late"]),
        (CommandKind.REVERT, ["id", "late"]),
    ],
)
def test_the_target_follows_the_ddl_command_and_the_record_follows_the_source(
    altered: OperatorWorld, kind_of_order: CommandKind, columns: list[str]
) -> None:
    if isinstance(altered.target, ValuesTarget | IcebergTarget) and kind_of_order is CommandKind.INJECT:
        # On these targets, a statement names a whole structure. A warehouse keeps the columns that it does not name.
        columns = ["id", "late"] if isinstance(altered.target, ValuesTarget) else ["id", "late", "other"]
    altered.give(
        kind_of_order, *([instead(altered)] if kind_of_order in {CommandKind.REPLACE, CommandKind.INJECT} else [])
    )
    assert altered.carry_out() is Outcome.APPLIED
    assert altered.columns() == columns
    assert altered.recorded() == ["id", "late"]
    assert altered.command().taken
    assert altered.carry_out() is Outcome.ALREADY


def test_a_ddl_command_starts_a_failed_change_again_and_a_later_one_replaces_it(altered: OperatorWorld) -> None:
    def refused() -> Halted:
        return Halted("target-refused", "no")

    dry = Breaking(altered.target)
    with pytest.raises(Halted) as caught:
        altered.carry_out(Breaking(altered.target, watch=lambda point: _refuse(point, refused)))
    assert caught.value.where.table == str(altered.name), "what is refused names the table"
    altered.give(CommandKind.REPLACE, "nonsense")
    with pytest.raises((Halted, ValueError)) as caught:
        altered.carry_out(dry)
    if isinstance(caught.value, Halted):
        assert (caught.value.code, caught.value.where.table) == ("order-refused", str(altered.name))
        assert "`pidts ddl replace`: nonsense: " in caught.value.what
        assert caught.value.instead == (), "the refused statement is not advised again"
        assert "pidts ddl skip TASK" in caught.value.todo
    altered.give(CommandKind.REPLACE, instead(altered))
    assert (altered.command().taken, altered.command().number) == (False, 2)
    assert altered.carry_out() is Outcome.APPLIED
    assert altered.columns() == ["id", "other"]


def _refuse(point: str, error) -> None:
    if point == "execute:before":
        raise error()


def test_an_error_of_the_journal_names_no_table(altered: OperatorWorld) -> None:
    def watch(point: str) -> None:
        if point == "meta.journal.write:before":
            raise Halted("target-refused", "no such table")

    with pytest.raises(Halted) as caught:
        altered.carry_out(Breaking(altered.target, watch=watch))
    assert caught.value.where.table == ""


def test_a_command_that_was_replaced_is_not_begun(altered: OperatorWorld) -> None:
    altered.give(CommandKind.REPLACE, instead(altered))
    made = replace(schema_change(altered.sql, altered.known, altered.name), command=altered.command())
    altered.give(CommandKind.SKIP)
    assert runner(altered.target, altered.task, altered.epoch).run(made, AT) == AttemptSuperseded()
    assert altered.columns() == ["id"]
    assert altered.carry_out() is Outcome.APPLIED
    assert altered.columns() == ["id"]


@pytest.mark.parametrize("kind", ["values", "values-journaled", "postgres", "mariadb"])
@pytest.mark.parametrize("kind_of_order", [CommandKind.REPLACE, CommandKind.INJECT])
def test_wherever_it_breaks_the_next_attempt_makes_it_whole(
    target: Target, task: str, name: TableName, kind_of_order: CommandKind
) -> None:
    dry = Breaking(target)
    first = OperatorWorld(target, task, name)
    first.give(kind_of_order, instead(first))
    first.carry_out(dry)
    wanted = first.columns()
    everywhere = isinstance(target, ValuesTarget)
    chosen = [n for n, point in enumerate(dry.points) if everywhere or point.split(":")[0] in ("commit", "execute")]
    assert len(chosen) >= 4
    for broken in chosen:
        altered = OperatorWorld(target, f"{task}-{broken}", TableName(name.schema, f"{name.name}_{broken}"))
        altered.give(kind_of_order, instead(altered))
        with pytest.raises(ProcessDied):
            altered.carry_out(Breaking(target, broken))
        altered.epoch = claimed(target, altered.task)
        altered.carry_out()
        assert altered.columns() == wanted, dry.points[broken]
        assert altered.recorded() == ["id", "late"]


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
def test_a_column_that_is_there_already_is_not_taken_for_the_new_one(altered: OperatorWorld, clause: str) -> None:
    """An operator has added the column by hand, and it is NULL in all rows."""
    session = altered.target.connect()
    for sql in altered.words(altered.sql):
        session.execute(sql)
    session.close()
    altered.write(altered.known[altered.name], (1,))
    altered.sql = f"ALTER TABLE `{altered.name.name}` ADD COLUMN {clause}"
    with pytest.raises(Halted) as raised:
        altered.carry_out()
    assert raised.value.code == "target-shape"
