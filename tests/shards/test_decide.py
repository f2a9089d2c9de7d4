"""Shards change together: the first ones wait, one statement runs for all, and no shard is left behind."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from pidts.model import Arrival, Column, ColumnType, CommandKind, Key, Kind, Lsn, Member, Table, TableName
from pidts.shards.decide import Decision, RunDecision, ShardGroup, ShardMode, Wait, decide
from pidts.shards.structures import differing, fits, is_constant, joined, refilled, revalued, same_version, same_whole

T = TableName("shop", "t")
KEY = (Key("PRIMARY", ("id",), unique=True, primary=True),)


def column(text: str) -> Column:
    """Parses `c`, `c:bigint` (a type), `c!` (NOT NULL), or `c=1` (a default)."""
    text, _, default = text.partition("=")
    name, _, kind = text.rstrip("!").partition(":")
    return Column(name, ColumnType(Kind(kind or "int")), nullable=not text.endswith("!"), default=default or None)


def table(text: str, *keys: Key) -> Table:
    return Table(T, tuple(map(column, f"id! {text}".split())), (*KEY, *keys))


def member(number: int) -> Member:
    return Member("ab"[number % 2], TableName("shard", f"t_{number}"))


def arrival(number: int, before: Table, after: Table, command: CommandKind | None = None, **more: object) -> Arrival:
    return Arrival(
        member=member(number),
        lsn=Lsn(0, 1, 100 + number),
        text="ALTER",
        before=before,
        after=after,
        command=command,
        since=number,
        **more,  # type: ignore[arg-type]
    )


def group(agreed: Table, members: list[Table], *arrivals: Arrival, mode: ShardMode = "pessimistic") -> ShardGroup:
    return ShardGroup(
        target=T,
        mode=mode,
        agreed=agreed,
        members={member(number): structure for number, structure in enumerate(members)},
        arrivals={one.member: one for one in arrivals},
    )


V0, V1, V2 = table("a"), table("a b"), table("a c")


def said(one: ShardGroup, number: int) -> Decision:
    return decide(one, member(number))


def passes(one: Arrival, agreed: Table) -> RunDecision:
    return RunDecision(one, (one,), agreed, passes=True)


TWICE, THRICE = (frozenset({("g", expression)}) for expression in ("a * 2", "a * 3"))
G = Column("g", ColumnType(Kind.INT), generated=True)
V_G = replace(V0, columns=(*V0.columns, G))


@pytest.mark.parametrize("mode", ["pessimistic", "optimistic"])
def test_a_generated_column_is_added_when_all_shards_compute_it_alike(mode: ShardMode) -> None:
    one, two = (arrival(number, V0, V_G, computes=TWICE) for number in (0, 1))
    assert said(group(V0, [V0, V0], one, mode=mode), 0) == Wait((member(1),))
    assert said(group(V0, [V0, V0], one, two, mode=mode), 1) == RunDecision(one, (one, two), V_G)
    other = arrival(1, V0, V_G, computes=THRICE)
    for number, there in ((0, other), (1, one)):
        assert said(group(V0, [V0, V0], one, other, mode=mode), number) == Wait(disagree=(there,))


def test_the_order_of_columns_alone_is_no_disagreement_in_optimistic_mode() -> None:
    before, behind, first = table("a b"), table("b c"), table("c b")
    one, two = arrival(0, before, behind), arrival(1, before, first)
    assert said(group(before, [before, before], one, two, mode="optimistic"), 0) == RunDecision(one, (one, two), behind)
    assert isinstance(said(group(before, [before, before], one, two, mode="optimistic"), 1), RunDecision)
    assert said(group(before, [before, before], one, two), 0) == Wait(disagree=(two,))


def test_the_first_waits_for_all_others() -> None:
    first = arrival(0, V0, V1)
    assert said(group(V0, [V0, V0, V0], first), 0) == Wait((member(2), member(1)))
    second = arrival(1, V0, V1)
    assert said(group(V0, [V0, V0, V0], first, second), 1) == Wait((member(2),))


def test_a_ddl_command_for_a_new_table_runs_no_change_of_another() -> None:
    first, comes = arrival(0, V0, V1), arrival(2, V1, V1, CommandKind.UNLOCK, runs=False)
    one = replace(group(V0, [V0, V0], first), arrivals={first.member: first, comes.member: comes})
    assert said(one, 0) == Wait((member(1),))
    assert isinstance(said(one, 2), Wait)


def test_one_statement_runs_for_all_and_it_is_always_the_same() -> None:
    arrivals = [arrival(number, V0, V1) for number in range(3)]
    one = group(V0, [V0, V0, V0], *arrivals)
    runs = [said(one, number) for number in range(3)]
    assert runs == [RunDecision(arrivals[0], (arrivals[0], arrivals[2], arrivals[1]), V1)] * 3


def test_who_finds_the_group_there_passes() -> None:
    own = arrival(0, V0, V1)
    assert said(group(V1, [V0, V1], own), 0) == passes(own, V1)


def test_a_shard_alone_runs_what_it_has() -> None:
    own = arrival(0, V0, V1)
    assert said(group(V0, [V0], own), 0) == RunDecision(own, (own,), V1)


def test_changes_without_effect_on_the_structure_do_not_wait() -> None:
    own, other = arrival(0, V0, replace(V0, comment="new")), arrival(1, V0, V1)
    one = group(V0, [V0, V0], own, other)
    assert said(one, 0) == RunDecision(own, (own,), V0)
    assert said(one, 1) == Wait((member(0),)), "it has not come, whatever it does meanwhile"


def test_different_changes_are_reported_and_wait() -> None:
    first, second = arrival(0, V0, V1), arrival(1, V0, V2)
    one = group(V0, [V0, V0], first, second)
    assert said(one, 0) == Wait((), (second,))
    assert said(one, 1) == Wait((), (first,))


@pytest.mark.parametrize("kind", [CommandKind.UNLOCK, CommandKind.REPLACE])
def test_a_command_runs_the_change_without_shards_that_have_not_arrived(kind: CommandKind) -> None:
    first, ordered, other = arrival(0, V0, V1), arrival(1, V0, V1, kind), arrival(3, V0, V2)
    one = group(V0, [V0, V0, V0, V0], first, ordered, other)
    assert said(one, 0) == RunDecision(ordered, (first, ordered), V1, left=(member(2), member(3)))
    assert said(one, 3) == Wait((member(2),), (first, ordered))


@pytest.mark.parametrize("kept", [(), (Key("k", ("b",)),), (Key("k", ("a",)),)])
def test_keys_over_a_column_that_was_kept_go_with_it(kept: tuple[Key, ...]) -> None:
    """The shards that dropped the column do not have the key any more, or they have it over other columns."""
    had, left = table("a b c", Key("k", ("b", "c")), Key("k2", ("a",))), table("a b", *kept, Key("k2", ("a",)))
    last = arrival(1, had, left)
    one = replace(group(replace(had, columns=had.columns), [left, had], last), missed={member(1): (left,)})
    found = said(one, 1)
    assert isinstance(found, RunDecision)
    assert (found.rest, found.agreed.columns, set(found.agreed.keys)) == (True, left.columns, set(left.keys))


def test_an_unlocked_drop_of_a_column_is_left_to_the_last_shard_that_has_it() -> None:
    """Rows of a shard that still writes to the column would be refused before its own change, which it would never
    reach.
    """
    ordered, other = arrival(0, V1, V0, CommandKind.UNLOCK), arrival(1, V1, V0)
    assert said(group(V1, [V1, V1, V1], ordered, other), 0) == RunDecision(
        ordered, (ordered, other), V1, left=(member(2),)
    )
    last = arrival(2, V1, V0)
    assert said(group(V1, [V0, V0, V1], last), 2) == RunDecision(last, (last,), V0)
    demanded = table("a b!")
    ordered = arrival(0, demanded, V0, CommandKind.UNLOCK)
    assert said(group(demanded, [demanded, demanded], ordered), 0) == RunDecision(
        ordered, (ordered,), V0, left=(member(1),)
    ), "who lacks it?"


def test_a_shard_that_is_skipped_continues_alone_and_the_target_stays() -> None:
    own = arrival(0, V0, V1, CommandKind.SKIP)
    assert said(group(V0, [V0, V0], own), 0) == RunDecision(own, (own,), V0)
    other = arrival(1, V0, V1)
    assert said(group(V0, [V1, V0], other), 1) == RunDecision(other, (other,), V1), "it is where the others go"
    together = group(V0, [V0, V0], own, other)
    assert said(together, 0) == RunDecision(own, (own,), V0)
    assert said(together, 1) == Wait((member(0),)), "nothing is run for it by an order about another one"


def test_a_change_that_one_shard_skips_is_not_there_for_the_others() -> None:
    own, other = arrival(0, V0, V1, CommandKind.SKIP), arrival(1, V0, V1)
    assert decide(group(V0, [V0, V0], own, mode="optimistic"), member(0), adds("b")) == RunDecision(own, (own,), V0)
    left = group(V0, [V1, V0], other, mode="optimistic")
    assert decide(left, member(1), adds("b")) == RunDecision(other, (other,), V1)


def test_a_late_shard_that_has_a_column_again_waits_until_its_old_values_are_gone() -> None:
    """The shard's rows would fit at once.

    But on the target, they would have the values that they had in the column before.
    """
    again = arrival(1, table("b"), table("b a"))
    one = replace(group(table("a b c"), [table("a b c"), table("b")], again), dropped={member(1): ("a",)})
    assert said(one, 1) == Wait((member(0),), differing_columns=("a",))
    assert said(replace(one, dropped={}), 1) == passes(again, table("a b c"))
    ordered = replace(again, command=CommandKind.UNLOCK)
    assert said(replace(one, arrivals={member(1): ordered}), 1) == passes(ordered, table("a b c"))


@pytest.mark.parametrize(("theirs", "is_alike"), [("b=1", True), ("b=2", False), ("b", False)])
def test_a_late_shard_s_new_column_has_what_the_target_gave_its_rows(theirs: str, *, is_alike: bool) -> None:
    own = arrival(1, V0, table("a b=1"))
    one = group(table(f"a {theirs} c"), [table(f"a {theirs} c"), V0], own)
    assert isinstance(said(one, 1), RunDecision if is_alike else Wait)


@pytest.mark.parametrize("mode", ["pessimistic", "optimistic"])
@pytest.mark.parametrize("command", [CommandKind.UNLOCK, CommandKind.REVERT, CommandKind.INJECT])
def test_no_ddl_command_skips_the_wait_for_values_that_the_target_has(mode: ShardMode, command: CommandKind) -> None:
    """The awaited shards have made their changes before, so none of them can still arrive.

    But if the waiting shard continued, its rows would get the default of the other shards.
    """
    own = arrival(0, V0, table("a b=8"), command)
    assert said(group(table("a b=7"), [V0, table("a b=7")], own, mode=mode), 0) == Wait(
        (member(1),), differing_columns=("b",)
    )


def test_a_late_shard_with_another_default_is_not_run_along() -> None:
    """One shard has a wider column than the others, which do not widen theirs: the tables were created differently."""
    first, second, wide = (table(f"a:{kind} {c}".strip()) for kind, c in (("int", ""), ("int", "c=8"), ("bigint", "")))
    agreed, goal = wide, table("a:bigint c=7")
    mine, late = arrival(0, wide, goal), arrival(1, first, second)
    one = group(agreed, [wide, first, first], mine, late)
    assert said(one, 0) == RunDecision(mine, (mine,), goal), "not for that one"
    assert said(group(goal, [goal, first, first], late), 1) == Wait((member(0),), differing_columns=("c",))
    alike = arrival(1, first, table("a:int c=7"))
    run = said(group(agreed, [wide, first, first], mine, alike), 0)
    assert isinstance(run, RunDecision)
    assert run.arrivals == (mine, alike)


def test_the_leaders_statement_begins_where_the_target_is() -> None:
    """The first shard by name has skipped its first statement.

    Its second statement fits only a table on which the first statement was run, so the other shard's statement is run.
    """
    late, other = arrival(0, V1, table("a b c")), arrival(1, V0, table("a b c"))
    decision = said(group(V0, [V1, V0], late, other), 0)
    assert isinstance(decision, RunDecision)
    assert decision.leader == other


def test_a_shard_that_lacks_a_column_changes_with_the_others() -> None:
    """The shard joined without the column. The change of all others leads it to a structure different from theirs."""
    g, old, new = table("a x"), table("a"), table("a x b")
    late, other = arrival(0, old, table("a b")), arrival(1, g, new)
    one = group(g, [old, g], late, other)
    assert said(one, 0) == said(one, 1) == RunDecision(other, (late, other), new)
    assert said(group(new, [old, new], late), 0) == passes(late, new)


def test_no_shard_waits_for_a_new_table_and_it_waits_until_its_rows_fit() -> None:
    ahead = arrival(5, V1, V1, runs=False)
    assert said(group(V0, [V0, V0], ahead), 5) == Wait((member(0), member(1)))
    both = [arrival(0, V0, V2), arrival(1, V0, V2), ahead]
    assert isinstance(said(group(V0, [V0, V0], *both), 0), RunDecision)
    assert said(group(V1, [V1, V1], ahead), 5) == passes(ahead, V1)
    behind = arrival(5, V0, V0, runs=False)
    assert said(group(V1, [V1, V1], behind), 5) == passes(behind, V1), "its rows have a place"


def test_a_shard_that_is_ahead_does_not_prevent_others_from_a_change() -> None:
    """The shard was created with an index that the other shards get later. The shard's rows need not wait for this."""
    indexed = table("a", Key("k", ("a",)))
    ahead = arrival(2, indexed, table("a b", Key("k", ("a",))))
    first, second = arrival(0, V0, indexed), arrival(1, V0, indexed)
    members = [V0, V0, indexed]
    assert said(group(V0, members, first, ahead), 0) == Wait((member(1),))
    assert said(group(V0, members, first, ahead), 2) == Wait((member(0), member(1)))
    assert said(group(V0, members, first, second, ahead), 0) == RunDecision(first, (first, second), indexed)


def test_versions_do_not_show_who_wrote_them_down() -> None:
    text = ColumnType(Kind.VARCHAR, length=9, charset="utf8mb4", collation="utf8mb4_0900_ai_ci")
    one = Table(T, (Column("id", ColumnType(Kind.INT)), Column("n", text, default="'1'")), KEY, "utf8mb4")
    mariadb = replace(text, collation="utf8mb4_uca1400_ai_ci")
    other = replace(one, columns=(Column("ID", ColumnType(Kind.INT, length=11)), Column("n", mariadb, default="1")))
    assert same_version(one, other)
    assert differing(one, other) == []
    binary = replace(one, columns=(one.columns[0], Column("n", replace(text, collation="utf8mb4_bin"), default="'1'")))
    assert differing(one, binary) == ["column n"]
    accents = replace(text, collation="utf8mb4_0900_as_ci")
    assert not same_version(one, replace(one, columns=(one.columns[0], Column("n", accents, default="'1'"))))
    assert not same_version(V1, table("b a"))
    assert same_whole(V1, table("b a"))
    assert differing(V1, table("b a")) == ["the order of columns"]


@pytest.mark.parametrize(
    ("one", "other", "both"),
    [
        ("a b", "a c", "a b c"),
        ("a", "a:bigint", "a:bigint"),
        ("a!", "a", "a"),
        ("a b!=7", "a", "a b!=7"),
        ("a b!", "a", "a b"),
        ("a:int", "a:text", None),
        ("a:text", "a:longtext", "a:longtext"),
    ],
)
def test_structures_that_can_store_the_rows_of_both(one: str, other: str, both: str | None) -> None:
    whole = joined([table(one), table(other)])
    assert (whole and same_whole(whole, table(both or ""))) is (None if both is None else True)
    if whole is not None:
        assert fits(table(one), whole)
        assert fits(table(other), whole)


def test_a_key_that_is_unique_holds_for_all_or_for_none() -> None:
    unique, plain = Key("u", ("a",), unique=True), Key("p", ("a",))
    whole = joined([table("a", unique, plain), table("a")])
    assert whole is not None
    assert whole.keys == (*KEY, plain)
    assert joined([table("a", unique), table("a", unique)]) == table("a", unique)
    assert joined([table("a"), replace(table("a"), keys=())]) is None, "rows are found by different columns"


@pytest.mark.parametrize(
    ("text", "expected"),
    [("1", True), ("-.5", True), ("'x'", True), ("b'1'", True), ("NULL", True), ("current_timestamp(6)", False),
     ("(uuid())", False), ("nullif(1, 2)", False), (None, False), ("1 + rand()", False), ("'a' || uuid()", False),
     ("-7.5e3", True), ("0x1F", True), ("_utf8mb4'it''s'", True), (r"'it\'s'", True), ("''", True), ('"x"', True),
     ("'2020-01-01 00:00:00'", True), ("7.", True), ("1e", False), ("'a' 'b'", False)],
)  # fmt: skip
def test_constant_defaults_are_recognized(text: str | None, expected: bool) -> None:
    assert is_constant(text) is expected


def adds(text: str) -> object:
    return lambda before: replace(before, columns=(*before.columns, column(text))) if not has(before, text) else None


def drops(name: str) -> object:
    return lambda before: (
        replace(before, columns=tuple(one for one in before.columns if one.name != name)) if has(before, name) else None
    )


def has(one: Table, text: str) -> bool:
    return column(text).name in {each.name for each in one.columns}


def test_optimistic_shards_add_at_once_and_drop_last() -> None:
    first = arrival(0, V0, V1)
    one = group(V0, [V0, V0], first, mode="optimistic")
    assert decide(one, member(0), adds("b")) == RunDecision(first, (first,), V1)
    second = arrival(1, V0, V1)
    assert decide(group(V1, [V1, V0], second, mode="optimistic"), member(1), adds("b")) == passes(second, V1)
    gone = arrival(0, V1, V0)
    assert decide(group(V1, [V1, V1], gone, mode="optimistic"), member(0), drops("b")) == passes(gone, V1)
    last = arrival(1, V1, V0)
    assert decide(group(V1, [V0, V1], last, mode="optimistic"), member(1), drops("b")) == RunDecision(last, (last,), V0)


@pytest.mark.parametrize(
    ("mine", "theirs", "agreed"), [("b=2", "b=3", "b=2"), ("b:bigint", "b", "b:bigint"), ("b", "b!=2", "b")]
)
def test_a_column_that_others_have_in_another_form_is_dropped_nevertheless(mine: str, theirs: str, agreed: str) -> None:
    gone, there = arrival(0, table(f"a {mine}"), V0), table(f"a {agreed}")
    one = group(there, [table(f"a {mine}"), table(f"a {theirs}")], gone, mode="optimistic")
    assert decide(one, member(0), drops("b")) == passes(gone, there)
    last = arrival(1, table(f"a {theirs}"), V0)
    assert decide(
        group(there, [V0, table(f"a {theirs}")], last, mode="optimistic"), member(1), drops("b")
    ) == RunDecision(last, (last,), V0)


def test_the_rest_of_a_change_is_run_if_no_shard_has_a_column_of_the_target() -> None:
    own = arrival(0, V0, table("a c d"))
    one = group(table("a b c"), [V0, V0], own, mode="optimistic")
    end = table("a b c d")
    assert decide(one, member(0)) == RunDecision(own, (own,), end, rest=True)


@pytest.mark.parametrize(("mine", "theirs"), [("b=2", "b=1"), ("b!", "b")])
def test_a_column_whose_rows_would_differ_from_the_targets_waits(mine: str, theirs: str) -> None:
    own = arrival(0, V0, table(f"a {mine}"))
    one = group(table(f"a {theirs}"), [V0, table(f"a {theirs}")], own, mode="optimistic")
    assert isinstance(decide(one, member(0), adds(mine)), Wait)


@pytest.mark.parametrize("mode", ["pessimistic", "optimistic"])
def test_a_generated_column_has_values_that_only_the_source_of_a_late_shard_knows(mode: ShardMode) -> None:
    made = replace(V1, columns=(*V1.columns[:-1], replace(V1.columns[-1], generated=True)))
    late = arrival(1, V0, made)
    assert said(group(made, [made, V0], late, mode=mode), 1) == Wait((member(0),), differing_columns=("b",))
    assert said(group(made, [made, V0], replace(late, runs=False), mode=mode), 1) == passes(
        replace(late, runs=False), made
    ), "its rows are still to come"


def test_a_column_that_is_added_again_waits_until_the_old_one_is_dropped() -> None:
    again = arrival(0, V0, V1)
    one = replace(group(V1, [V0, V1], again, mode="optimistic"), dropped={member(0): ("b",)})
    assert decide(one, member(0), adds("b")) == Wait((member(1),), differing_columns=("b",)), (
        "the target has its old values"
    )
    gone = replace(one, agreed=V0, members={member(0): V0, member(1): V0})
    assert decide(gone, member(0), adds("b")) == RunDecision(again, (again,), V1)


def test_an_optimistic_rename_waits_for_all() -> None:
    renamed = table("x")
    own = arrival(0, V0, renamed)
    one = group(V0, [V0, V0], own, mode="optimistic")
    assert decide(one, member(0), lambda _: renamed) == Wait((member(1),))
    other = arrival(1, V0, renamed)
    both = group(V0, [V0, V0], own, other, mode="optimistic")
    assert decide(both, member(1), lambda _: renamed) == RunDecision(own, (own, other), renamed)


STEPS = st.lists(st.sampled_from(["+b", "+c=1", "+d!", "+e!=2", "-a", "-b", "-c", "-e"]), min_size=1, max_size=6)


class Shards:
    """Members that make the same changes, each at its own time, and their merged table."""

    def __init__(self, count: int, steps: list[str], mode: ShardMode) -> None:
        self.mode: ShardMode = mode
        self.steps = [adds(step[1:]) if step[0] == "+" else drops(step[1:]) for step in steps]
        self.agreed = V0
        self.members = {member(number): V0 for number in range(count)}
        self.places = dict.fromkeys(self.members, 0)
        self.arrivals: dict[Member, Arrival] = {}
        self.dropped: dict[Member, set[str]] = {one: set() for one in self.members}
        self.runs: list[RunDecision] = []

    def arrive(self, one: Member) -> None:
        """Lets a member arrive at its next change, or at the same change again, as after a crash."""
        while self.places[one] < len(self.steps):
            before = self.members[one]
            after = self.steps[self.places[one]](before)
            if after is not None:
                self.arrivals[one] = Arrival(
                    member=one, lsn=Lsn(0, 1, 10 + self.places[one]), text="", before=before, after=after
                )
                return
            self.places[one] += 1

    def decided(self, one: Member) -> None:
        if one not in self.arrivals:
            return
        whole = ShardGroup(
            target=T, mode=self.mode, agreed=self.agreed, members=self.members, arrivals=self.arrivals,
            dropped=self.dropped,
        )  # fmt: skip
        decision = decide(whole, one, self.steps[self.places[one]])
        if isinstance(decision, RunDecision):
            self.agreed = decision.agreed
            self.runs += () if decision.passes else (decision,)
            for each in decision.arrivals:
                self.passed(each)
        there = {each.name for each in self.agreed.columns}
        self.dropped = {who: names & there for who, names in self.dropped.items()}

    def passed(self, one: Arrival) -> None:
        del self.arrivals[one.member]
        self.dropped[one.member] |= {each.name for each in one.before.columns if not has(one.after, each.name)}
        self.members[one.member] = one.after
        self.places[one.member] += 1


@settings(max_examples=examples(30), deadline=None)
@given(
    count=st.integers(1, 4),
    steps=STEPS,
    mode=st.sampled_from(["pessimistic", "optimistic"]),
    moves=st.lists(st.tuples(st.integers(0, 4), st.sampled_from(["arrive", "crash", "decide"])), max_size=30),
)
def test_all_shards_reach_the_end_of_any_sequence(
    count: int, steps: list[str], mode: ShardMode, moves: list[tuple[int, str]]
) -> None:
    if mode == "optimistic":
        # A shard that comes again waits for shards that have made all changes, and never drops the column again.
        steps = [step for place, step in enumerate(steps) if f"-{step[1:].rstrip('!=12')}" not in steps[:place]]
    shards = Shards(count, steps, mode)
    for number, what in moves:
        one = member(number)
        if what == "crash":
            shards.arrivals.clear()
        elif one in shards.members and one not in shards.arrivals:
            shards.arrive(one)
        shards.decided(one)
        assert_places(shards)
    for _ in range(2 * count * len(steps) + 2):
        for one in shards.members:
            if one not in shards.arrivals:
                shards.arrive(one)
            shards.decided(one)
            assert_places(shards)
    end = V0
    for step in shards.steps:
        end = step(end) or end
    assert shards.arrivals == {}, "somebody waits for ever"
    assert all(same_version(one, end) for one in shards.members.values())
    assert same_whole(shards.agreed, end)
    if mode == "pessimistic":
        assert len(shards.runs) == len([1 for step in range(len(steps)) if changes(shards, step)])


def changes(shards: Shards, step: int) -> bool:
    before = V0
    for each in shards.steps[:step]:
        before = each(before) or before
    return shards.steps[step](before) is not None


def assert_places(shards: Shards) -> None:
    """Checks that the rows of all shards that do not wait before a change fit the target."""
    for one, structure in shards.members.items():
        assert fits(structure, shards.agreed), (one, differing(structure, shards.agreed))


def test_a_rename_waits_although_an_added_column_would_not() -> None:
    """If the target has some of the added columns, the missing ones are added. A rename also removes a name, so it
    waits.
    """
    before, both, renamed = table("a"), table("a b c"), table("b")
    own = arrival(1, before, both)
    there = group(table("a b"), [table("a b"), before], own, mode="optimistic")
    assert decide(there, member(1)) == RunDecision(own, (own,), table("a b c"), rest=True)
    moved = arrival(0, before, renamed)
    assert isinstance(decide(group(before, [before, before], moved, mode="optimistic"), member(0)), Wait)


def test_if_the_target_has_the_added_column_only_the_drop_is_run() -> None:
    own = arrival(0, table("a old"), table("a c"), adds=frozenset("c"))
    last = group(table("a old c"), [table("a old"), table("a c")], own, mode="optimistic")
    assert decide(last, member(0)) == RunDecision(own, (own,), table("a c"), rest=True)
    others = group(table("a old c"), [table("a old"), table("a old c")], own, mode="optimistic")
    assert decide(others, member(0)) == passes(own, table("a old c"))
    renamed = replace(own, adds=frozenset())
    assert isinstance(
        decide(group(last.agreed, [renamed.before, table("a c")], renamed, mode="optimistic"), member(0)), Wait
    )


def test_a_new_column_is_added_at_once_while_other_shards_keep_a_dropped_one() -> None:
    before, both, after = table("a old"), table("a old c"), table("a c")
    own = arrival(0, before, after, adds=frozenset("c"))
    assert decide(group(before, [before, before], own, mode="optimistic"), member(0)) == RunDecision(
        own, (own,), both, rest=True
    )
    needed, fewer = table("a old!"), table("a old c")
    own = replace(own, before=needed)
    found = decide(group(needed, [needed, needed], own, mode="optimistic"), member(0))
    assert found == RunDecision(own, (own,), fewer, rest=True), "rows of this shard have no value in it"
    two = arrival(0, table("a b old"), table("a c d"), adds=frozenset("c"))
    found = decide(group(two.before, [two.before, two.before], two, mode="optimistic"), member(0))
    assert isinstance(found, Wait), "one of the two may have been renamed to d"


@pytest.mark.parametrize("mode", ["pessimistic", "optimistic"])
def test_a_column_that_is_new_on_one_shard_and_renamed_on_another_is_a_disagreement(mode: ShardMode) -> None:
    before, after = table("a old"), table("a c")
    renamed, new = arrival(0, before, after), arrival(1, before, after, adds=frozenset("c"))
    there = group(before, [before, before], renamed, new, mode=mode)
    assert said(there, 0) == Wait(disagree=(new,))
    if mode == "pessimistic":
        assert said(there, 1) == Wait(disagree=(renamed,))
    else:
        assert said(there, 1) == RunDecision(new, (new,), table("a old c"), rest=True)


@pytest.mark.parametrize(
    ("command", "before", "after", "agreed", "made"),
    [
        (CommandKind.REPLACE, "a", "a note:text", "a note:varchar e", "a note:text e"),
        (CommandKind.UNLOCK, "a", "b", "a e", "b e"),
    ],
)
def test_commanded_changes_run_if_others_have_more_columns(
    command: CommandKind, before: str, after: str, agreed: str, made: str
) -> None:
    own = arrival(0, table(before), table(after), command)
    there = group(table(agreed), [table(before), table(agreed)], own, mode="optimistic")
    assert decide(there, member(0)) == RunDecision(own, (own,), table(made), left=(member(1),))


def test_a_longer_binary_is_no_place_for_values_of_a_shorter_one() -> None:
    """The target would add zeros to the shorter values, and would not find them without these zeros."""
    short, long = (typed(ColumnType(Kind.BINARY, length=length)) for length in (4, 8))
    assert (fits(short, long), fits(short, short), joined([short, long])) == (False, True, None)


MOMENT, MONEY, WORD = (
    ColumnType(Kind.DATETIME, fsp=3),
    ColumnType(Kind.DECIMAL, precision=9, scale=2),
    ColumnType(Kind.VARCHAR, length=9, charset="latin1"),
)


def typed(kind: ColumnType, like: Table = V0, *, nullable: bool = True) -> Table:
    """Returns the table with another type of column `a`."""
    columns = (replace(one, type=kind, nullable=nullable) if one.name == "a" else one for one in like.columns)
    return replace(like, columns=tuple(columns))


@pytest.mark.parametrize(
    ("before", "after", "strict", "lax"),
    [
        (typed(MOMENT), typed(replace(MOMENT, fsp=2)), True, True),
        (typed(MOMENT), typed(replace(MOMENT, fsp=6)), False, False),
        (typed(MONEY), typed(replace(MONEY, scale=1)), True, True),
        (typed(MONEY), typed(replace(MONEY, precision=12)), False, False),
        (typed(MONEY), typed(replace(MONEY, precision=8)), False, True),
        (typed(WORD), typed(replace(WORD, length=8)), True, True),
        (typed(WORD), typed(replace(WORD, length=10)), False, False),
        (typed(WORD), typed(WORD, nullable=False), False, True),
        (V0, V1, False, False),
        (V1, V0, False, False),
    ],
)
def test_where_rows_may_get_other_values(before: Table, after: Table, strict: bool, lax: bool) -> None:
    named = {each: frozenset({"a"} if each else ()) for each in (True, False)}
    assert revalued(before, after, {}, strict=True) == named[strict]
    assert revalued(before, after, {}, strict=False) == named[lax]


def test_a_column_may_get_other_values_and_another_name() -> None:
    renamed = replace(V0, columns=(V0.columns[0], replace(V0.columns[1], name="f", type=replace(MOMENT, fsp=0))))
    assert revalued(typed(MOMENT), renamed, {"f": "a"}, strict=True) == {"f"}


@pytest.mark.parametrize("mode", ["optimistic", "pessimistic"])
def test_a_change_of_values_waits_even_if_the_new_values_fit(mode: ShardMode) -> None:
    """Otherwise the target would keep digits that the shard's source does not have any more.

    So the change runs only when all shards have arrived at it.
    """
    wide, narrow, extra = typed(MOMENT), typed(replace(MOMENT, fsp=0)), typed(MOMENT, table("a more"))
    own = replace(arrival(0, wide, narrow), revalues=frozenset("a"))
    late = group(extra, [wide, extra], own, mode=mode)
    assert decide(late, member(0)) == Wait((member(1),))
    assert isinstance(
        decide(group(extra, [wide, extra], replace(own, revalues=frozenset()), mode=mode), member(0)), RunDecision
    )
    other = replace(arrival(1, wide, narrow), revalues=frozenset("a"))
    both = group(wide, [wide, wide], own, other, mode=mode)
    assert decide(both, member(0)) == RunDecision(own, (own, other), narrow)
    fewer = typed(replace(MOMENT, fsp=0), table("a more"))
    other = replace(arrival(1, extra, fewer), revalues=frozenset("a"))
    both = group(extra, [wide, extra], own, other, mode=mode)
    assert decide(both, member(1)) == RunDecision(other, (own, other), fewer), (
        "in what they differ, nothing gets other values"
    )


@pytest.mark.parametrize(
    ("before", "after", "agreed", "made"),
    [
        ("a", "a c:bigint", "a c", "a c:bigint"),
        ("a", "a c", "a c:bigint", None),
        ("a! b", "a! b:bigint", "a! b c", "a! b:bigint c"),
        ("a", "a c:bigint d", "a c", "a c:bigint d"),
        ("a", "a c!", "a", "others' rows have no value in it"),
        ("a", "a c:bigint=7", "a c=8", "its rows have another value in it"),
    ],
)
def test_a_column_that_is_there_is_made_wider(before: str, after: str, agreed: str, made: str | None) -> None:
    own, others = arrival(0, table(before), table(after)), table(agreed)
    found = decide(group(others, [table(before), others], own, mode="optimistic"), member(0))
    if made is None:
        assert found == passes(own, others)
    elif made.startswith("a"):
        assert found == RunDecision(own, (own,), table(made), rest=True)
    else:
        assert isinstance(found, Wait), made


def test_columns_that_a_change_does_not_name_stay_wide_for_rows_of_dropped_shards() -> None:
    now, then = (typed(replace(MOMENT, fsp=digits)) for digits in (0, 6))
    own = arrival(0, now, replace(now, columns=(*now.columns, column("d")), keys=(*now.keys, Key("i", ("d",)))))
    others, agreed = (replace(one, columns=(*one.columns, column("d"))) for one in (now, then))
    wanted = replace(agreed, keys=own.after.keys)
    assert decide(group(agreed, [now, others], own, mode="optimistic"), member(0)) == RunDecision(
        own, (own,), wanted, rest=True
    )


def test_shards_change_together_if_the_target_has_a_column_that_no_shard_has() -> None:
    own, other = (arrival(number, table("a"), table("b")) for number in (0, 1))
    both = group(table("a x"), [table("a"), table("a")], own, other, mode="optimistic")
    assert decide(both, member(0)) == RunDecision(own, (own, other), table("b x"))


def test_an_unlocked_change_keeps_the_columns_of_others() -> None:
    had, index = table("a y"), Key("iy", ("y",))
    agreed, made = (table(f"a{kind} y:bigint", index) for kind in ("", ":text"))
    own = arrival(0, had, table("a:text y"), CommandKind.UNLOCK)
    there = group(agreed, [had, agreed], own, mode="optimistic")
    assert decide(there, member(0), lambda _: made) == RunDecision(own, (own,), made, left=(member(1),))


def test_if_the_target_has_the_added_column_only_the_index_is_made() -> None:
    index, unique, other = Key("k", ("c",)), Key("k", ("c",), unique=True), Key("k", ("a",))
    further = table("a c")

    def said_of(before: Table, after: Table, agreed: Table, *others: Table) -> Decision:
        own = arrival(0, before, after, adds=frozenset("c"))
        return decide(group(agreed, [before, *others], own, mode="optimistic"), member(0))

    own = arrival(0, table("a"), table("a c", index), adds=frozenset("c"))
    assert said_of(own.before, own.after, further, further) == RunDecision(own, (own,), own.after, rest=True)
    own = arrival(0, table("a old", Key("k", ("old",))), table("a c", index), adds=frozenset("c"))
    swapped = said_of(own.before, own.after, table("a old c", Key("k", ("old",))), further)
    assert swapped == RunDecision(own, (own,), own.after, rest=True), "the last one had the index that goes"
    own = arrival(0, table("a"), table("a c", unique), adds=frozenset("c"))
    assert said_of(own.before, own.after, further, further) == passes(own, further), "others' rows are not unique"
    all_have = said_of(own.before, own.after, further, table("a c", unique))
    assert all_have == RunDecision(own, (own,), own.after, rest=True), "the last one has it"
    taken = table("a c", other)
    assert isinstance(said_of(table("a"), table("a c", index), taken, taken), Wait), "its name is another's"


def test_where_tables_disagree_about_a_default_it_stays_as_it_is() -> None:
    there, changed = table("a b=7"), table("a b=9")
    for tables in ([there, changed], [changed, there], [changed, there, changed]):
        assert joined(tables, like=there) == there
    assert joined([changed, changed], like=there) == changed


def test_a_column_is_filled_otherwise_where_the_words_of_its_default_are_others() -> None:
    assert refilled(table("a b=7"), table("a b=9 c=1"), {}) == {"b"}
    assert refilled(table("a b=7"), table("a x=9"), {"x": "b"}) == {"x"}
    assert refilled(table("a b=7"), table("a x=7"), {"x": "b"}) == frozenset()
    assert refilled(table("a b=now()"), table("a b=current_timestamp"), {}) == frozenset()


def test_a_late_shard_is_not_run_along_whose_rows_have_the_default_of_before() -> None:
    agreed, goal = table("a b=7"), table("a b=9")
    mine, late = arrival(0, agreed, goal), arrival(1, V0, goal)
    assert said(group(agreed, [agreed, V0], mine, late), 0) == RunDecision(mine, (mine,), goal)
