"""All parts of one process share one coordinator. It knows which shards have arrived, which one runs the change, and
which ones it has to inform.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from tests.examples import seeds

from pidts.apply import ChangeEnd, MemberChange, SchemaChange
from pidts.binlog import Query
from pidts.ddl.admission import Admission, admit, carry_out
from pidts.ddl.due_change import DueChange
from pidts.ddl.interpreter import DueStatement
from pidts.ddl.outcome import ChangeWaits
from pidts.ddl.shards import coordinator
from pidts.ddl.shards.arrivals import RunByLeader
from pidts.ddl.shards.coordinator import ShardGroups
from pidts.ddl.shards.halt_messages import waiting_halt
from pidts.ddl.shards.members import Members
from pidts.model import (
    Arrival,
    Column,
    ColumnType,
    CommandKind,
    Fenced,
    Halted,
    Key,
    Kind,
    Lsn,
    Member,
    Table,
    TableName,
    Where,
)
from pidts.schema import AlterTable, Dialect, classify
from pidts.schema.statement_time import UNKNOWN_TIME, StatementTime
from pidts.shards.decide import Decision, RunDecision, Wait, decide

T = TableName("all", "t")
KEY = (Key("PRIMARY", ("id",), unique=True, primary=True),)
NAME, OTHER = TableName("shard", "t"), TableName("shard", "alone")


def table(*names: str) -> Table:
    return Table(T, tuple(Column(name, ColumnType(Kind.INT), nullable=name != "id") for name in ("id", *names)), KEY)


V0, V1, V2 = table(), table("c"), table("d")


def came(source: str, before: Table = V0, after: Table = V1, command: CommandKind | None = None) -> Arrival:
    return Arrival(
        member=Member(source, NAME), lsn=Lsn(0, 1, 9), text="ALTER", before=before, after=after, command=command
    )


def member_change_of(source: str, *, epoch: int = 7) -> MemberChange:
    return MemberChange(source=source, epoch=epoch, lsn=Lsn(0, 1, 9), text="ALTER")


def arrive(groups: ShardGroups, arrival: Arrival, *, epoch: int = 7) -> Decision | RunByLeader:
    return groups.arrive(arrival, member_change_of(arrival.member.source, epoch=epoch), lambda _: None)


def still(groups: ShardGroups, arrival: Arrival) -> Wait | None:
    waits = groups.still(ChangeWaits(wait=Wait(), arrival=arrival))
    return waits.wait if waits is not None else None


def test_a_start_searches_the_members_of_no_group_however_many_tables_the_task_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    searched: list[TableName] = []
    search = Members.of
    monkeypatch.setattr(Members, "of", lambda self, target: (searched.append(target), search(self, target))[1])
    groups = ShardGroups("pessimistic", ("a", "b"))
    alone = {TableName("shop", f"t{number}"): replace(V0, name=TableName("all", f"t{number}")) for number in range(50)}
    recorded = TableName("all", "recorded")
    groups.recall(groups.next_read(), "a", {recorded: replace(V0, name=recorded)}, {})
    groups.register("a", {**alone, NAME: V0, OTHER: V0})
    groups.register("b", {TableName("shop", "other"): replace(V0, name=TableName("all", "t7"))})
    assert not searched
    targets = [TableName("all", f"t{number}") for number in range(50)]
    own = {name: Member("a", TableName("shop", name.name)) for name in (*targets, T, recorded)}
    assert [name for name, member in own.items() if groups.is_shared(name, member)] == [targets[7], T, recorded]


def passes(arrival: Arrival, agreed: Table) -> RunDecision:
    return RunDecision(arrival, (arrival,), agreed, passes=True)


def begun(*sources: str, mode: str = "") -> ShardGroups:
    groups = ShardGroups(mode, sources)
    for source in sources:
        groups.register(source, {NAME: V0})
    return groups


def test_the_leader_runs_it_and_all_others_hear_of_it() -> None:
    groups = begun("a", "b", "c")
    assert arrive(groups, came("b")) == Wait((Member("a", NAME), Member("c", NAME)))
    assert isinstance(arrive(groups, came("c")), Wait)
    run = arrive(groups, came("a"))
    assert isinstance(run, RunDecision)
    assert [one.source for one in groups.member_changes(run)] == ["b", "c"]
    assert still(groups, came("b")) == Wait(leader=Member("a", NAME))
    (lock,) = groups.locks()
    assert lock.running
    groups.ran(run, {})
    assert arrive(groups, came("b")) == RunByLeader(member_change_of("b"))
    member_change = groups.made("c", Lsn(0, 1, 9))
    assert member_change is not None
    assert member_change.epoch == 7
    for source in "abc":
        groups.changed(source, {NAME: V1})
    assert groups.locks() == ()
    assert groups.agreed(T) == V1


def test_the_leader_runs_the_change_whichever_member_arrives_last() -> None:
    groups = begun("a", "b")
    arrive(groups, came("a"))
    assert arrive(groups, came("b")) == Wait(leader=Member("a", NAME))
    assert still(groups, came("a")) is None
    assert isinstance(arrive(groups, came("a")), RunDecision)


def test_the_group_of_shards_that_wait_alike_is_examined_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """If it were examined after each arrival, the time would grow with the square of the number of shards."""
    sources = [f"s{number:02}" for number in range(30)]
    groups, examined = begun(*sources, "other"), []
    monkeypatch.setattr(coordinator, "decide", lambda *found: examined.append(found) or decide(*found))
    for place, source in enumerate(sources):
        arrive(groups, came(source))
        waits = [still(groups, came(one)) for one in sources[: place + 1]]
        awaited = (Member("other", NAME), *(Member(one, NAME) for one in sources[place + 1 :]))
        assert waits == [Wait(awaited)] * (place + 1)
    assert len(examined) == 1
    arrive(groups, came("other", after=V2))
    assert still(groups, came("s00")) == Wait(disagree=(came("other", after=V2),))
    assert still(groups, came("other", after=V2)) == Wait(disagree=tuple(came(source) for source in sources))


class Examining(ShardGroups):
    """Shard groups that keep no result of an examination."""

    def _note_common_wait(self, *_: object) -> None:
        pass


@pytest.mark.parametrize("seed", seeds(150))
def test_what_is_kept_from_the_last_arrival_is_what_an_examination_would_find(seed: str) -> None:
    """Members arrive at the same change and at others, in any order, and events happen in between."""
    chosen = random.Random(seed)
    sources = [f"s{number}" for number in range(chosen.randint(2, 6))]
    both = ShardGroups("pessimistic", sources), Examining("pessimistic", sources)
    apart = chosen.choice([(), sources[:1]])
    for groups in both:
        for source in sources:
            groups.register(source, {NAME: V2 if source in apart else V0, OTHER: V0} if source != "s1" else {NAME: V0})
    here: list[Arrival] = []

    def same(question: Callable[[ShardGroups], object]) -> object:
        found, examined = map(question, both)
        assert found == examined
        return found

    for _ in range(chosen.randint(3, 25)):
        source, name = chosen.choice(sources), chosen.choice([NAME, NAME, NAME, OTHER])
        match chosen.choice(["arrive"] * 8 + ["dropped", "leaving", "forget", "changed"]):
            case "arrive":
                before, after = chosen.choice([(V0, V1)] * 6 + [(V0, V2), (V2, V1), (V1, V1)])
                command = chosen.choice([None] * 12 + [CommandKind.SKIP, CommandKind.UNLOCK])
                one = replace(came(source, before, after, command), member=Member(source, name), lsn=Lsn(0, 1, 9))
                here = [other for other in here if other.member != one.member] + [one]
                decision = same(lambda groups, one=one: arrive(groups, one))
                if isinstance(decision, RunDecision) and chosen.random() < 0.8:
                    for groups in both:
                        groups.ran(decision, groups.missed_after(decision, one))
            case "dropped":
                for groups in both:
                    groups.note_dropped({Member(source, name): {"c"}})
            case "leaving":
                for groups in both:
                    groups.set_leaving(source, frozenset({name}))
            case "forget":
                here = [other for other in here if other.member.source != source]
                for groups in both:
                    groups.forget(source)
            case "changed":
                here = [other for other in here if other.member != Member(source, name)]
                structure = chosen.choice([V0, V1, V2])
                for groups in both:
                    groups.changed(source, {name: structure})
            case _:
                pass
        for one in here:
            same(lambda groups, one=one: still(groups, one))
            halt = waiting_halt(Wait(), source="a", lsn=Lsn(0, 1, 9), tables=(NAME,), position="", statement="")
            same(lambda groups, one=one, halt=halt: groups.outlook(halt, one))
        same(lambda groups: groups.locks())
        same(lambda groups: groups.moves)


def test_an_arrival_wakes_waiting_shards_only_if_it_may_let_one_of_them_continue() -> None:
    groups = begun("a", "b", "c", "d")
    arrive(groups, came("b"))
    moves = groups.moves
    assert isinstance(arrive(groups, came("c")), Wait)
    assert groups.moves == moves
    assert still(groups, came("b")) == Wait((Member("a", NAME), Member("d", NAME)))
    assert isinstance(arrive(groups, came("d", after=V2)), Wait)
    assert groups.moves > moves
    moves = groups.moves
    assert isinstance(arrive(groups, came("c")), Wait)
    assert groups.moves == moves, "the same arrival"
    assert arrive(groups, came("d")) == Wait((Member("a", NAME),))
    moves = groups.moves
    assert isinstance(arrive(groups, came("a")), RunDecision)
    assert groups.moves > moves


def test_only_the_last_of_two_members_drops_a_column() -> None:
    """If each of the two left the drop to the other one and continued, no shard would drop the column."""
    groups = ShardGroups("optimistic", ("a", "b"))
    for source in "ab":
        groups.register(source, {NAME: V1})
    first = arrive(groups, came("a", V1, V0))
    assert first == passes(came("a", V1, V0), V1)
    assert arrive(groups, came("b", V1, V0)) == Wait(leader=Member("a", NAME))
    groups.ran(first, {})
    last = came("b", V1, V0)
    run = groups.arrive(last, MemberChange(source="b", epoch=7, lsn=last.lsn, text="ALTER"), lambda _: V0)
    assert run == RunDecision(last, (last,), V0)


def test_a_failed_change_can_be_run_again() -> None:
    groups = begun("a", "b")
    arrive(groups, came("b"))
    run = arrive(groups, came("a"))
    assert isinstance(run, RunDecision)
    groups.failed(run)
    assert still(groups, came("b")) == Wait(leader=Member("a", NAME))
    assert arrive(groups, came("a")) == run


def test_an_attempt_that_ends_removes_its_arrivals() -> None:
    groups = begun("a", "b")
    arrive(groups, came("a"))
    groups.forget("a")
    assert arrive(groups, came("b")) == Wait((Member("a", NAME),))
    groups.register("a", {NAME: V0})
    assert isinstance(arrive(groups, came("a")), RunDecision)


def test_a_leader_whose_attempt_has_ended_is_waited_for() -> None:
    """The leader's statement may still run on the target, and no other shard starts it a second time."""
    groups = begun("a", "b")
    arrive(groups, came("b"))
    run = arrive(groups, came("a"))
    assert isinstance(run, RunDecision)
    groups.forget("a")
    assert still(groups, came("b")) == Wait(leader=Member("a", NAME))
    groups.ran(run, {})
    assert arrive(groups, came("b")) == RunByLeader(member_change_of("b"))


@pytest.mark.parametrize("comes_again", [False, True])
def test_a_change_is_recorded_for_the_members_that_had_arrived_at_the_decision(*, comes_again: bool) -> None:
    """The target knows whether the attempts of these shards still count.

    A shard that is left out would find the target's table changed, without a record of the change.
    """
    groups = begun("a", "b")
    arrive(groups, came("b"))
    run = arrive(groups, came("a"))
    assert isinstance(run, RunDecision)
    groups.forget("b")
    if comes_again:
        groups.register("b", {NAME: V0}, epoch=8)
        assert arrive(groups, came("b"), epoch=8) == Wait(leader=Member("a", NAME))
    assert [(one.source, one.epoch) for one in groups.member_changes(run)] == [("b", 7)]
    groups.ran(run, {})
    assert groups.made("b", Lsn(0, 1, 9)) is None
    assert not isinstance(arrive(groups, came("b"), epoch=8 if comes_again else 7), RunByLeader)


def test_no_change_runs_before_all_parts_are_known() -> None:
    groups = ShardGroups("", ["a", "b"])
    groups.register("a", {NAME: V0})
    assert arrive(groups, came("a")) == Wait(absent=("b",))
    assert isinstance(arrive(groups, came("a", command=CommandKind.UNLOCK)), RunDecision)


def test_a_source_that_is_down_keeps_its_recorded_tables() -> None:
    """A change of its shard group waits for the source; a change of another table does not."""
    groups = ShardGroups("", ["a", "b"])
    groups.register("a", {NAME: V0, OTHER: V0.renamed(OTHER)})
    groups.take_recorded("b", {NAME: V0})
    assert arrive(groups, came("a")) == Wait((Member("b", NAME),))
    alone = replace(came("a"), member=Member("a", OTHER), before=V0.renamed(OTHER), after=V1.renamed(OTHER))
    assert isinstance(arrive(groups, alone), RunDecision)
    groups.register("b", {OTHER: V0.renamed(OTHER)})
    groups.take_recorded("b", {NAME: V0})
    assert isinstance(arrive(groups, came("a")), RunDecision), "it has what it has reported itself"


def test_in_optimistic_mode_a_source_that_is_down_keeps_only_its_own_group_waiting() -> None:
    """An earlier process may have begun a change of the group on that source. The other group has no table on it."""
    groups = ShardGroups("optimistic", ["a", "b"])
    groups.register("a", {NAME: V0, OTHER: V0.renamed(OTHER)})
    groups.take_recorded("b", {NAME: V0})
    assert groups.absent_for() == ()
    assert arrive(groups, came("a")) == Wait(absent=("b",))
    alone = replace(came("a"), member=Member("a", OTHER), before=V0.renamed(OTHER), after=V1.renamed(OTHER))
    assert isinstance(arrive(groups, alone), RunDecision)
    groups.register("b", {NAME: V1})
    assert groups.agreed(T) == V1


def test_a_member_whose_table_is_about_to_be_dropped_is_not_waited_for_unless_it_is_created_again() -> None:
    groups = begun("a", "b")
    groups.set_leaving("b", frozenset({NAME}))
    run = arrive(groups, came("a"))
    assert isinstance(run, RunDecision)
    groups.failed(run)
    groups.changed("b", {NAME: None})
    groups.changed("b", {NAME: V0})
    assert arrive(groups, came("a")) == Wait((Member("b", NAME),))


def test_changes_of_an_earlier_process_to_a_presumed_source_count() -> None:
    groups = ShardGroups("", ["a", "b"])
    groups.register("a", {OTHER: V0.renamed(OTHER)})
    groups.take_recorded("b", {NAME: V0})
    assert groups.agreed(T) == V0
    groups.recall(groups.next_read(), "b", {T: V1}, {})
    groups.register("b", {NAME: V1})
    assert groups.agreed(T) == V1


def test_no_member_waits_for_a_dropped_member() -> None:
    groups = begun("a", "b")
    arrive(groups, came("a"))
    moves = groups.moves
    groups.changed("b", {NAME: None})
    assert groups.wait(moves, 0) > moves
    assert isinstance(arrive(groups, came("a")), RunDecision)
    assert groups.is_shared(T, Member("a", NAME)), "others had rows there"


def test_the_agreed_structure_counts_if_members_differ() -> None:
    """One shard was allowed to continue first, and dropped a column. The other shards' rows fit both structures."""
    groups = ShardGroups("", ["a", "b"])
    groups.recall(groups.next_read(), "a", {T: V0}, {})
    groups.register("a", {NAME: V1})
    groups.register("b", {NAME: V0})
    assert groups.agreed(T) == V0
    assert arrive(groups, came("a", V1, V0)) == passes(came("a", V1, V0), V0)


def test_one_parts_structure_is_not_the_groups_before_all_parts_are_known() -> None:
    groups = ShardGroups("optimistic", ["a", "b"])
    groups.recall(groups.next_read(), "a", {T: V1}, {})
    groups.register("b", {NAME: V0})
    assert isinstance(arrive(groups, came("b", after=V2)), Wait)
    groups.register("a", {NAME: V1})
    assert groups.agreed(T) == V1


def test_a_new_attempt_has_all_of_its_structure_even_if_an_equal_structure_was_there_before() -> None:
    def keyed(key: Key) -> Table:
        return replace(V1, keys=(*KEY, key))

    def computed(words: str) -> Table:
        return replace(V1, columns=(V1.columns[0], replace(V1.columns[1], generated=True, computed=words)))

    key = Key("k", ("c",), prefixes=(10,))
    for was, now in (
        (keyed(key), keyed(replace(key, unique_prefixes=True))),
        (keyed(key), keyed(replace(key, prefixes=(20,)))),
        (computed("(id + 1) STORED"), computed("(id + 2) STORED")),
    ):
        assert was == now
        begun("a").register("a", {NAME: was})
        groups = ShardGroups("", ["a"])
        groups.register("a", {NAME: now})
        agreed = groups.agreed(T)
        assert agreed is not None
        assert agreed.to_json() == now.to_json(), "it says which statement changes the target's table next"


def test_the_latest_reading_of_the_record_counts() -> None:
    """Until the last part has claimed its source, an earlier process may change the record.

    A thread may also report late.
    """
    groups = ShardGroups("optimistic", ["a", "b"])
    early, late = groups.next_read(), groups.next_read()
    groups.recall(late, "b", {T: V1}, {})
    groups.recall(early, "a", {T: V0}, {})
    groups.register("b", {NAME: V1})
    groups.register("a", {NAME: V0})
    assert groups.agreed(T) == V1


def test_the_list_shows_which_shards_have_arrived() -> None:
    groups = begun("a", "b", "c")
    arrive(groups, replace(came("b", after=V2), since=1.0))
    arrive(groups, replace(came("a"), since=2.0))
    (lock,) = groups.locks()
    assert (lock.target, lock.first, lock.awaited) == (T, Member("b", NAME), (Member("c", NAME),))
    assert [one.member.source for one in lock.arrived] == ["b", "a"]
    assert [one.member.source for one in lock.disagree] == ["a"]
    assert lock.to_json()["awaited"] == [{"source": "c", "table": "shard.t"}]


@pytest.mark.parametrize(
    ("wait", "code", "awaits"),
    [
        (Wait((Member("b", NAME),)), "shard-awaits", ("b: shard.t",)),
        (Wait((), (came("b", after=V2),)), "shards-disagree", ("b: shard.t",)),
        (Wait(absent=("b",)), "shard-awaits", ("b: *",)),
        (Wait(leader=Member("b", NAME)), "shard-awaits", ("b: shard.t",)),
    ],
)
def test_the_halt_names_the_shards_that_it_waits_for(wait: Wait, code: str, awaits: tuple[str, ...]) -> None:
    halt = waiting_halt(
        wait,
        source="a",
        lsn=Lsn(0, 1, 9),
        tables=(NAME,),
        position="bin.1:9",
        statement="ALTER",
        arrival=came("a"),
        agreed=V0,
    )
    assert (halt.code, halt.awaits, halt.tables) == (code, awaits, (NAME,))
    assert "b" in halt.what
    if code == "shards-disagree":
        assert "column c" in halt.what
        assert "column d" in halt.what
        assert f"pidts ddl unlock TASK --source a --at {Lsn(0, 1, 9)} --yes. " in halt.todo
        assert f"pidts ddl skip TASK --source b --at {wait.disagree[0].lsn}" in halt.todo


def test_each_command_of_a_halt_has_its_source_and_its_place() -> None:
    waits = [
        Wait((Member("b", NAME),)),
        Wait((), (came("b", after=V2),)),
        Wait(absent=("b",)),
        Wait(begun=("b", Lsn(0, 1, 4))),
        Wait(differing_columns=("c",)),
        Wait(leader=Member("b", NAME)),
    ]
    for wait in waits:
        halt = waiting_halt(
            wait,
            source="a",
            lsn=Lsn(0, 1, 9),
            tables=(NAME,),
            position="bin.1:9",
            statement="ALTER",
            arrival=came("a"),
            agreed=V0,
        )
        assert "pidts ddl " in halt.todo
        assert not {"SOURCE", "LSN", "TABLE"} & set(re.findall(r"[A-Z]+", halt.todo)), halt.todo


def test_a_shard_that_waits_for_the_leader_names_the_command_about_the_leader() -> None:
    """`pidts ddl list` prints this line, so the line does not refer the reader to `pidts ddl list`."""
    wait = Wait(leader=Member("b", TableName("shard", "t_7")))
    halt = waiting_halt(wait, source="a", lsn=Lsn(0, 1, 9), tables=(NAME,), position="bin.1:9", statement="ALTER")
    assert "pidts ddl retry TASK --source b --table shard.t_7" in halt.todo
    assert "ddl list" not in halt.todo


def test_kept_columns_are_noted_until_the_target_drops_them() -> None:
    groups = begun("a", "b", mode="optimistic")
    a, b = Member("a", NAME), Member("b", NAME)
    dropped = groups.dropped_after(came("a", V1, V0), V1, {}, V1)
    assert dropped == {a: {"c"}}
    groups.note_dropped(dropped)
    assert groups.dropped_after(came("a", V0, V2), V1, {}, V1) == {}
    assert groups.dropped_after(came("b", V1, V0), V0, {}, V1) == {a: frozenset()}
    assert b not in groups.dropped_after(came("b", V1, V0), V0, {}, V1)


def test_no_source_waits_for_a_source_that_is_set_aside_before_it_has_begun() -> None:
    groups = ShardGroups("", ["a", "b"])
    groups.register("a", {NAME: V0})
    assert arrive(groups, came("a")) == Wait(absent=("b",))
    seen = groups.moves
    groups.exclude("b", excluded=True)
    assert groups.moves > seen
    run = arrive(groups, came("a"))
    assert isinstance(run, RunDecision)
    groups.ran(run, {})
    groups.changed("a", {NAME: V1})
    groups.exclude("b", excluded=False)
    assert groups.absent_for() == ("b",)
    groups.register("b", {NAME: V1})
    assert arrive(groups, came("a", V1, V2)) == Wait((Member("b", NAME),))
    groups.exclude("b", excluded=True)
    assert arrive(groups, came("a", V1, V2)) == Wait((Member("b", NAME),)), "it has begun"


def test_a_leader_without_an_answer_reads_the_record_before_any_member_continues() -> None:
    """The commit may have succeeded although its answer was lost. A second run of the statement would be refused."""
    groups = begun("a", "b", "c")
    arrive(groups, came("a"))
    run = arrive(groups, came("b", command=CommandKind.UNLOCK))
    assert isinstance(run, RunDecision)
    groups.failed(run, in_doubt_since=0)
    assert arrive(groups, came("c", command=CommandKind.UNLOCK)) == Wait(absent=("b",))
    groups.recall(groups.next_read(), "b", {T: V1}, {})
    groups.register("b", {NAME: V1}, epoch=1)
    assert groups.agreed(T) == V1
    assert arrive(groups, came("c")) == passes(came("c"), V1)


def test_a_failure_of_an_attempt_after_which_another_began_makes_no_member_wait() -> None:
    groups = begun("a", "b")
    arrive(groups, came("b"))
    run = arrive(groups, came("a"))
    assert isinstance(run, RunDecision)
    groups.register("a", {NAME: V0}, epoch=8)
    groups.failed(run, in_doubt_since=7)
    with pytest.raises(Fenced):  # This thread is of the attempt that was closed.
        arrive(groups, came("a"))
    assert isinstance(arrive(groups, came("a"), epoch=8), RunDecision)


def test_reports_of_a_closed_attempt_do_not_count_after_the_next_one() -> None:
    groups = begun("a")
    groups.register("a", {NAME: V2}, epoch=8)
    groups.changed("a", {NAME: V1}, 7)
    assert groups.agreed(T) == V2
    groups.changed("a", {NAME: V1}, 8)
    assert groups.agreed(T) == V1


def test_a_failure_after_which_no_other_member_can_continue_wakes_none() -> None:
    groups = begun("a")
    for _ in range(3):
        run = arrive(groups, came("a"))
        assert isinstance(run, RunDecision)
        groups.failed(run, moves=False)
    moves = groups.moves
    run = arrive(groups, came("a"))
    assert isinstance(run, RunDecision)
    groups.failed(run, moves=False)
    assert groups.moves == moves


def due_at(*, mariadb: bool = False) -> DueChange:
    due: Any = SimpleNamespace(
        source="a",
        context=SimpleNamespace(epoch=7),
        lsn=Lsn(0, 1, 9),
        where=Where(),
        dialect=Dialect(mariadb=mariadb),
        query=Query("shard", "ALTER", sql_mode=0),
    )
    return due


def test_no_member_waits_for_a_leader_that_failed_before_it_ran_anything(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    groups = begun("a", "b")
    arrive(groups, came("b"))
    change = SchemaChange(
        statement=classify("ALTER TABLE t ADD c INT", "all"), text="ALTER", before={T: V0}, after={T: V1}
    )
    found = DueStatement(change, AlterTable(NAME, ()))

    def fails(*_: object) -> None:
        raise MemoryError

    with monkeypatch.context() as patched:
        patched.setattr(groups, "dropped_after", fails)
        with pytest.raises(MemoryError):
            admit(groups, due_at(), found, 1.0)
    assert isinstance(arrive(groups, came("a")), RunDecision)


@pytest.mark.parametrize("mariadb", [(True, True), (False, False), (True, False)])
def test_the_change_knows_which_product_has_converted_the_rows(mariadb: tuple[bool, bool]) -> None:
    groups = ShardGroups("", ("a", "b"))
    for source, product in zip("ab", mariadb, strict=True):
        groups.register(source, {NAME: V0}, mariadb=product)
    arrive(groups, came("b"))
    change = SchemaChange(
        statement=classify("ALTER TABLE t ADD c INT", "all", dialect=Dialect(mariadb=mariadb[0])),
        text="ALTER",
        before={T: V0},
        after={T: V1},
        executed_at=StatementTime(1_700_000_000),
    )
    step = admit(groups, due_at(), DueStatement(change, AlterTable(NAME, ())), 1.0)
    assert isinstance(step, Admission)
    said = step.change.statement
    assert isinstance(said, AlterTable)
    assert said.mariadb is (mariadb[0] if mariadb[0] is mariadb[1] else None)
    assert step.change.executed_at == UNKNOWN_TIME, "each shard has run the statement at its own time"

    def halts() -> ChangeEnd:
        raise Halted("ddl-not-translatable", "no", todo="Then copy the table again")

    with pytest.raises(Halted) as caught:
        carry_out(groups, step, 7, halts)
    assert caught.value.todo.endswith("The rows of all shards of all.t differ: name all shards after --resync")


def test_a_reader_without_the_lock_gets_one_consistent_state() -> None:
    known = begun("a", "b").known
    behind = known.missed
    known.note_missed({Member("a", NAME): (V1,)})
    missed_changes = known.missed
    known.note_missed({Member("a", NAME): ()})
    assert (behind, missed_changes, known.missed) == ({}, {Member("a", NAME): (V1,)}, {})
