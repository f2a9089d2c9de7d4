"""One schema change of several shards: wherever the process dies, the target has it once, and all shards continue."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

import pytest
from tests.crashes import ProcessDied
from tests.target.conformance.samples import create
from tests.values_target import ValuesTarget

from pidts.apply import AttemptSuperseded, DdlRunner, MemberChange, OpenJournal, Outcome, Retry, SchemaChange
from pidts.model import (
    Checkpoint,
    Column,
    ColumnType,
    CommandKind,
    DdlCommand,
    DdlState,
    DroppedColumnsKey,
    Fenced,
    Halted,
    Key,
    Kind,
    Lsn,
    MergedTablesKey,
    SourceTablesKey,
    Table,
    TableName,
    Transient,
)
from pidts.schema import classify

T = TableName("all", "t")
KEY = (Key("PRIMARY", ("id",), unique=True, primary=True),)
ID = Column("id", ColumnType(Kind.INT), nullable=False)
BEFORE = Table(T, (ID,), KEY)
AFTER = Table(T, (ID, Column("c", ColumnType(Kind.INT))), KEY)
K, E = Column("k", ColumnType(Kind.INT)), Column("e", ColumnType(Kind.INT))
HAD, KEPT, HAS = (replace(BEFORE, columns=(ID, *more)) for more in ((K,), (K, E), (E,)))
SOURCES = ("a", "b", "c")
AT = {source: Lsn(0, 1, 100 * number) for number, source in enumerate(SOURCES, 1)}


def own(source: str) -> TableName:
    return TableName(f"shard_{source}", "t")


class MergedShards:
    """Three sources whose tables are merged into one table on the target."""

    def __init__(self, *, transactional: bool, table: Table = BEFORE) -> None:
        self.target = ValuesTarget("shared change", transactional_ddl=transactional)
        self.target.forget()
        self.epochs: dict[str, int] = {}
        self.executed: list[str] = []
        with closing(self.target.connect()) as session:
            create(session, table)
        self.claim()

    def claim(self, *sources: str) -> None:
        """Claims these sources for another attempt, or all sources for another process."""
        with closing(self.target.connect()) as session:
            for source in sources or SOURCES:
                start = Checkpoint(task="t", source=source, worker=0, lsn=Lsn(0, 1, 4))
                self.epochs[source] = session.meta.checkpoints.claim("t", source, 1, start)[0].epoch

    def runner(self, source: str) -> DdlRunner:
        retry = Retry(attempts=3)
        return DdlRunner(self.target, "t", source, self.epochs[source], retry=retry, sleep=lambda _: None)

    def change(self, leader: str, *others: str, command: DdlCommand | None = None) -> SchemaChange:
        return SchemaChange(
            statement=classify("ALTER TABLE t ADD c INT", "all"),
            text=f"of {leader}",
            before={T: BEFORE},
            after={T: AFTER},
            structures={own(leader): AFTER.renamed(own(leader))},
            shared=T,
            others=tuple(map(self.member_change, others)),
            records={MergedTablesKey(): {T: AFTER}, DroppedColumnsKey("b"): {own("b"): None}},
            command=command,
        )

    def member_change(self, source: str, command: DdlCommand | None = None) -> MemberChange:
        return MemberChange(
            source=source,
            epoch=self.epochs[source],
            lsn=AT[source],
            text=f"of {source}",
            structures={own(source): AFTER.renamed(own(source))},
            command=command,
        )

    def done(self) -> set[str]:
        """Returns the sources whose journal says that the change is done, and checks their recorded structures."""
        found = set()
        with closing(self.target.connect()) as session:
            for source in SOURCES:
                journal = session.meta.journal.read("t", source, AT[source])
                is_done = journal is not None and journal.state is DdlState.DONE
                assert is_done == (own(source) in session.meta.structures.load("t", SourceTablesKey(source))), (
                    "in one commit"
                )
                if is_done and journal is not None:
                    assert journal.statement == f"of {source}"
                    found.add(source)
            assert bool(found) == (T in session.meta.structures.load("t", MergedTablesKey()))
        return found

    def columns(self) -> list[str]:
        return [column.name for column in self.target.store.tables[T].table.columns]

    def dies_after(self, points: int) -> None:
        left = [points]

        def hook(_: str) -> None:
            left[0] -= 1
            if left[0] < 0:
                self.target.store.hook = None
                raise ProcessDied

        self.target.store.hook = hook


@pytest.fixture(params=[True, False], ids=["transactional", "journaled"])
def shards(request: pytest.FixtureRequest) -> Iterator[MergedShards]:
    made = MergedShards(transactional=request.param)
    yield made
    made.target.forget()


def begins(shards: MergedShards, points: int) -> bool:
    """Makes the change. Returns whether the process died before the end."""
    shards.dies_after(points)
    try:
        shards.runner("a").run(shards.change("a", "b", "c"), AT["a"])
    except ProcessDied:
        return True
    finally:
        shards.target.store.hook = None
    return False


def again(shards: MergedShards, leader: str) -> Outcome:
    """Lets all sources for which the change is not done arrive again."""
    done = shards.done()
    assert done in (set(), set(SOURCES)), "for all of them, or for none"
    if done:
        return Outcome.ALREADY
    others = [source for source in SOURCES if source != leader]
    return shards.runner(leader).run(shards.change(leader, *others), AT[leader])


@pytest.mark.parametrize("leader", ["a", "c"])
def test_at_each_crash_point_the_change_is_done_for_all_or_all_arrive_again(shards: MergedShards, leader: str) -> None:
    """After the crash, the same source or another one leads."""
    transactional = shards.target.transactional_ddl
    points = 0
    while begins(shards, points):
        shards.claim()
        again(shards, leader)
        assert shards.done() == set(SOURCES)
        assert shards.columns() == ["id", "c"]
        shards.target.forget()
        shards = MergedShards(transactional=transactional)
        points += 1
    assert shards.done() == set(SOURCES)
    assert points > 8, "there were places to die at"


def altered(shards: MergedShards, text: str, after: Table, *others: str) -> SchemaChange:
    change = replace(shards.change("a", *others), before={T: HAD}, after={T: after})
    return replace(change, statement=classify(f"ALTER TABLE t {text}", "all"))


def dies(shards: MergedShards, change: SchemaChange, points: int) -> bool:
    """Makes the change in a process that may die at a point. Then another process continues."""
    shards.dies_after(points)
    try:
        shards.runner("a").run(change, AT["a"])
    except ProcessDied:
        return True
    finally:
        shards.target.store.hook = None
        shards.claim()
    return False


def test_a_kept_column_is_dropped_with_members_that_arrive_during_an_interrupted_change(shards: MergedShards) -> None:
    transactional = shards.target.transactional_ddl
    points, died = 0, True
    while died:
        shards = MergedShards(transactional=transactional, table=HAD)
        died = dies(shards, altered(shards, "ADD e INT", KEPT), points)
        if not shards.done():
            again = itertools.count()
            while dies(shards, altered(shards, "DROP k, ADD e INT", HAS, "b", "c"), next(again)):
                pass
            assert (shards.done(), shards.columns()) == (set(SOURCES), ["id", "e"])
        shards.target.forget()
        points += 1
    assert points > 8, "there were places to die at"


def test_a_journal_that_another_member_has_begun_is_waited_for() -> None:
    shards = MergedShards(transactional=False)
    points = 0
    while begins(shards, points):
        with closing(shards.target.connect()) as session:
            journal = session.meta.journal.read("t", "a", AT["a"])
        shards.claim()
        if journal is not None and journal.state is DdlState.INTENT:
            assert shards.runner("b").run(shards.change("b"), AT["b"]) == OpenJournal("a", AT["a"])
            skip = commanded(shards, "c", CommandKind.SKIP)
            assert shards.runner("c").run(shards.change("c", command=skip), AT["c"]) is Outcome.APPLIED
            assert shards.runner("b").run(shards.change("b", "a"), AT["b"]) is Outcome.APPLIED
            assert (shards.done(), shards.columns()) == (set(SOURCES), ["id", "c"])
            break
        shards = MergedShards(transactional=False)
        points += 1
    else:
        raise AssertionError("it never died between its two commits")
    shards.target.forget()


def test_no_result_is_reported_for_a_source_that_begins_anew(shards: MergedShards) -> None:
    change = shards.change("a", "b", "c")
    shards.claim("b")
    assert shards.runner("a").run(change, AT["a"]) == AttemptSuperseded("b")
    assert (shards.done(), shards.columns()) == (set(), ["id"])
    assert shards.runner("a").run(shards.change("a", "b", "c"), AT["a"]) is Outcome.APPLIED
    assert shards.done() == set(SOURCES)


def test_a_replaced_leader_records_the_change_as_done_for_no_source(shards: MergedShards) -> None:
    runner, change = shards.runner("a"), shards.change("a", "b", "c")
    shards.claim("a")
    with pytest.raises(Fenced):
        runner.run(change, AT["a"])
    assert shards.done() == set()


def test_a_source_that_begins_anew_while_the_statement_runs(shards: MergedShards) -> None:
    """The statement may have run. The leader's journal shows whether it has, so the next leader continues from there."""
    change = shards.change("a", "b", "c")

    def hook(point: str) -> None:
        if point == "execute:after":
            shards.target.store.hook = None
            shards.claim("c")

    shards.target.store.hook = hook
    assert shards.runner("a").run(change, AT["a"]) == AttemptSuperseded("c")
    assert shards.done() == set()
    assert shards.runner("c").run(shards.change("c", "a", "b"), AT["c"]) is Outcome.APPLIED
    assert (shards.done(), shards.columns()) == (set(SOURCES), ["id", "c"])


def test_a_late_member_gets_the_change_of_a_commit_without_an_answer(shards: MergedShards) -> None:
    def hook(point: str) -> None:
        if point == "commit:after" and shards.done():
            shards.target.store.hook = None
            raise ProcessDied

    shards.target.store.hook = hook
    with pytest.raises(ProcessDied):
        shards.runner("a").run(shards.change("a", "b"), AT["a"])
    assert shards.done() == {"a", "b"}
    assert shards.runner("a").run(shards.change("a", "b", "c"), AT["a"]) is Outcome.ALREADY
    assert shards.done() == set(SOURCES)


def commanded(shards: MergedShards, source: str, kind: CommandKind, *statements: str) -> DdlCommand:
    with closing(shards.target.connect()) as session:
        session.meta.ddl_commands.give("t", source, DdlCommand(lsn=AT[source], kind=kind, statements=statements))
        command = session.meta.ddl_commands.find("t", source, AT[source])
    assert command is not None
    return command


def taken(shards: MergedShards, source: str) -> bool:
    with closing(shards.target.connect()) as session:
        command = session.meta.ddl_commands.find("t", source, AT[source])
    return command is not None and command.taken


@pytest.mark.parametrize("kind", [CommandKind.UNLOCK, CommandKind.SKIP])
def test_unlock_and_skip_are_carried_out(shards: MergedShards, kind: CommandKind) -> None:
    command = commanded(shards, "a", kind)
    shards.runner("a").run(shards.change("a", "b", command=command), AT["a"])
    assert taken(shards, "a")
    assert shards.done() == {"a", "b"}
    assert shards.columns() == (["id", "c"] if kind is CommandKind.UNLOCK else ["id"])


def test_an_unlock_continues_the_begun_change() -> None:
    """A statement that has run is not repeated: the server would refuse it, because the column exists."""
    shards = MergedShards(transactional=False)
    points = 0
    while begins(shards, points):
        shards.claim()
        with closing(shards.target.connect()) as session:
            begun = session.meta.journal.read("t", "a", AT["a"])
        if begun is not None and begun.state is DdlState.INTENT and shards.columns() == ["id", "c"]:
            break
        shards = MergedShards(transactional=False)
        points += 1
    command = commanded(shards, "a", CommandKind.UNLOCK)
    shards.runner("a").run(shards.change("a", command=command), AT["a"])
    assert (taken(shards, "a"), shards.columns()) == (True, ["id", "c"])
    shards.target.forget()


@pytest.mark.parametrize("error", [Transient("lost", "gone"), Halted("target-refused", "no")])
def test_a_failed_change_is_recorded_for_no_member(shards: MergedShards, error: Exception) -> None:
    def fails(point: str) -> None:
        if point == "execute:before":
            raise error

    shards.target.store.hook = fails
    with pytest.raises(type(error)):
        shards.runner("a").run(shards.change("a", "b", "c"), AT["a"])
    shards.target.store.hook = None
    assert (shards.done(), shards.columns()) == (set(), ["id"])


def refuses(shards: MergedShards, leader: str, *others: str) -> None:
    def fails(point: str) -> None:
        if point == "execute:before":
            raise Halted("target-refused", "no")

    shards.target.store.hook = fails
    with pytest.raises(Halted):
        shards.runner(leader).run(shards.change(leader, *others), AT[leader])
    shards.target.store.hook = None


def test_no_other_shard_waits_for_a_change_that_the_target_has_refused(shards: MergedShards) -> None:
    """A refused change has not happened.

    If a shard tries it again after a change of another shard, PiDTS does not take the target's new structure for the
    result of the refused change.
    """
    refuses(shards, "a")
    assert shards.runner("b").run(shards.change("b"), AT["b"]) is Outcome.APPLIED
    assert (shards.done(), shards.columns()) == ({"b"}, ["id", "c"])
    again = replace(
        shards.change("a"),
        statement=classify("ALTER TABLE t ADD d INT", "all"),
        before={T: AFTER},
        after={T: replace(AFTER, columns=(*AFTER.columns, Column("d", ColumnType(Kind.INT))))},
    )
    assert shards.runner("a").run(again, AT["a"]) is Outcome.APPLIED
    assert (shards.done(), shards.columns()) == ({"a", "b"}, ["id", "c", "d"])


def test_a_refused_change_that_was_then_made_by_hand_counts() -> None:
    shards = MergedShards(transactional=False)
    refuses(shards, "a", "b")
    with closing(shards.target.connect()) as session:
        statement = shards.change("a").statement
        assert statement is not None
        for sql in session.schema.ddl_statements(statement, {T: BEFORE}, {T: AFTER}).statements:
            session.execute(sql)
    assert shards.runner("a").run(shards.change("a", "b"), AT["a"]) is Outcome.APPLIED
    assert (shards.done(), shards.columns()) == ({"a", "b"}, ["id", "c"])
    shards.target.forget()


def test_others_wait_again_for_a_member_that_runs_a_refused_change_again() -> None:
    """The refused change may succeed at the second try."""
    shards = MergedShards(transactional=False)
    refuses(shards, "a")

    def dies(point: str) -> None:
        if point == "execute:after":
            raise ProcessDied

    shards.target.store.hook = dies
    with pytest.raises(ProcessDied):
        shards.runner("a").run(shards.change("a"), AT["a"])
    shards.target.store.hook = None
    assert shards.runner("b").run(shards.change("b"), AT["b"]) == OpenJournal("a", AT["a"])
    shards.target.forget()


def test_a_ddl_command_with_another_statement_than_was_run_is_not_taken(shards: MergedShards) -> None:
    mine = commanded(shards, "a", CommandKind.UNLOCK)
    theirs = commanded(shards, "b", CommandKind.INJECT, "ALTER TABLE t ADD e INT")
    same = commanded(shards, "c", CommandKind.UNLOCK)
    change = replace(
        shards.change("a", command=mine),
        others=(shards.member_change("b", command=theirs), shards.member_change("c", command=same)),
    )
    shards.runner("a").run(change, AT["a"])
    assert [taken(shards, source) for source in SOURCES] == [True, False, True]
    assert shards.done() == set(SOURCES)
