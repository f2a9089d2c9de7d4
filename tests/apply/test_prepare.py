"""Everything that is prepared inside the transaction commits with it, and the target gets no unnecessary query."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.apply.rows.test_version_guard import TABLE, Live, delete, insert, row, update
from tests.target.conformance.samples import create
from tests.values_target import ValuesTarget

from pidts.apply import ApplyRules, Committer, Outcome, Retry, prepared
from pidts.model import Checkpoint, Column, Halted, Lsn, MergedTablesKey, OnDivergence, Op, Table, TableName, Transient
from pidts.rules import EventFilter, FilterRule, Rules

from .table_history import INT, PLAIN, UNIQUE, Change, Row, batch_of, minimal

NEW: Change = (Op.INSERT, None, {"id": 1, "a": 7, "b": "x", "u": 1})
POINTS = ("lock", "write", "save", "commit:before", "commit:after")


class UnreadSession:
    """A session that answers only one question: by which columns rows can collide."""

    @property
    def schema(self) -> UnreadSession:
        return self

    def collision_columns(self, table: Table) -> tuple[str, ...]:
        return ()

    def read_ahead(self, tables: Iterable[Table]) -> None:
        assert all(isinstance(table, Table) for table in tables)

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"{name} was asked for")


class StructureSession(UnreadSession):
    """A session that also answers what the columns of the only table are."""

    def __init__(self, table: Table) -> None:
        self.table = table

    @property
    def meta(self) -> Any:
        return SimpleNamespace(structures=SimpleNamespace(load=self.load))

    def structure(self, name: TableName) -> Table:
        assert name == self.table.name
        return self.table


def test_full_images_without_a_version_read_nothing():
    session: Any = UnreadSession()
    (change,) = prepared(session, [batch_of(UNIQUE, [NEW])], ApplyRules(source="s"))
    assert (change.upserts.num_rows, change.safe) == (1, False)
    (unguarded,) = prepared(session, [batch_of(PLAIN, [NEW])], ApplyRules(source="s", version_column="v"))
    assert unguarded.upserts.num_rows == 1
    with pytest.raises(AssertionError, match="read_rows"):
        prepared(session, [batch_of(TABLE, [insert(row(1))])], ApplyRules(source="s", version_column="v"))


def chances(count: int, chance: random.Random) -> list[Change]:
    """Returns changes as a source would log them: each row is inserted, updated and deleted in turn."""
    rows: dict[int, Row] = {key: {"id": key, "a": 0, "b": "x", "u": key} for key in range(3)}
    found: list[Change] = []
    for number in range(count):
        key = chance.randrange(6)
        before = rows.pop(key, None)
        after: Row = {"id": chance.choice([key, key, 10 + number]), "a": number, "b": "é'", "u": 100 + number}
        if before is None:
            found.append((Op.INSERT, None, {**after, "id": key}))
            rows[key] = found[-1][2] or {}
        elif chance.random() < 0.3:
            found.append((Op.DELETE, before, None))
        else:
            found.append((Op.UPDATE, before, after))
            rows[after["id"]] = after
    return found


@given(seed=st.integers(0, 10**6), sizes=st.lists(st.integers(0, 8), min_size=1, max_size=4), unique=st.booleans())
def test_plain_changes_are_prepared_as_all_others_are(seed: int, sizes: list[int], *, unique: bool) -> None:
    """Plain changes skip steps unless a copy of another table ends in the batch. With and without these steps, the
    result is the same.
    """
    session: Any = UnreadSession()
    chance = random.Random(seed)
    logged = chances(sum(sizes), chance)
    tables = [UNIQUE if unique else PLAIN, replace(PLAIN, name=TableName("shop", "other"))]
    batches = []
    for at, size in zip(itertools.accumulate(sizes, initial=0), sizes, strict=False):
        batches.append(batch_of(chance.choice(tables), logged[at : at + size], start=at))
    rules = ApplyRules(task="t", source="s")
    quick = prepared(session, batches, rules)
    whole = prepared(session, batches, rules, copied={TableName("shop", "copied")})
    assert quick == whole


@pytest.mark.parametrize(
    "rules",
    [
        ApplyRules(source="s", safe=True),
        ApplyRules(source="s", safe_until=Lsn(0, 1, 10**6)),
        ApplyRules(source="s", merged=frozenset({UNIQUE.name})),
        ApplyRules(task="t", source="s", beside=True),
        ApplyRules(source="s", version_column="a"),
        ApplyRules(task="t", source="s", on_divergence=OnDivergence.LOCK),
        ApplyRules(task="t", source="s", has_locks=True),
        ApplyRules(source="s", keeps_changes=True),
        ApplyRules(source="s", filters=Rules(events=EventFilter((FilterRule("shop", "", ("insert",), (), "Ignore"),)))),
    ],
    ids=["safe", "safe until", "merged", "beside", "version", "lock", "locked", "kept", "filtered"],
)
def test_rules_that_ask_for_more_are_not_passed_over(rules: ApplyRules) -> None:
    assert ApplyRules(task="t", source="s").is_plain(batch_of(UNIQUE, [NEW]))
    assert not rules.is_plain(batch_of(UNIQUE, [NEW]))


def test_a_table_that_gets_another_structure_is_looked_at_again() -> None:
    rules = ApplyRules(source="s", version_column="v")
    assert rules.is_plain(batch_of(PLAIN, [NEW]))
    more = replace(PLAIN, columns=(*PLAIN.columns, Column("v", INT)))
    assert not rules.is_plain(batch_of(more, [(Op.INSERT, None, {**NEW[2], "v": 1})]))
    assert rules.is_plain(batch_of(PLAIN, [NEW]))


def test_an_error_names_the_shard_of_the_rows_if_there_is_only_one():
    session: Any = StructureSession(UNIQUE)
    rules = ApplyRules(source="s", merged=frozenset({UNIQUE.name}))
    one, other = (
        replace(
            batch_of(UNIQUE, [(Op.INSERT, None, {**NEW[2], "id": key, "u": key})]), upstream=TableName("shop", name)
        )
        for key, name in ((1, "t_1"), (2, "t_2"))
    )
    assert [change.origin for change in prepared(session, [one], rules)] == [one.upstream]
    assert [change.origin for change in prepared(session, [one, other], rules)] == [None]
    assert [change.origin for change in prepared(session, [one], ApplyRules(source="s"))] == [None]


def test_the_targets_columns_are_read_only_for_rows_that_may_come_from_another_table():
    session: Any = UnreadSession()
    rules = ApplyRules(source="s", merged=frozenset({PLAIN.name}))
    old = {"id": 2, "a": 7, "b": "x", "u": 2}
    own: list[Change] = [(Op.UPDATE, old, {**old, "a": 8}), (Op.DELETE, {**old, "id": 3}, None)]
    (change,) = prepared(session, [batch_of(PLAIN, own)], rules)
    assert change.deletes.to_pylist() == [{"id": 3}]
    with pytest.raises(AssertionError, match="structure"):
        prepared(session, [batch_of(PLAIN, [NEW])], rules)
    more = Column("c", INT)
    for columns, deletes in (((), []), ((more,), [{"id": 1}]), ((replace(more, generated=True),), [])):
        session = StructureSession(replace(PLAIN, columns=(*PLAIN.columns, *columns)))
        (change,) = prepared(session, [batch_of(PLAIN, [NEW])], rules)
        assert change.deletes.to_pylist() == deletes


@pytest.mark.parametrize("op", [Op.INSERT, Op.COPY, None])
@pytest.mark.parametrize("keyed", [True, False])
def test_a_new_row_replaces_a_row_that_a_dropped_table_of_its_name_has_left(op: Op | None, *, keyed: bool) -> None:
    """The task routes no other table of the source to this target table, but tables of other sources may be routed
    there.
    """
    there = StructureSession(replace(PLAIN, columns=(*PLAIN.columns, Column("c", INT))))
    session: Any = there
    there.load = lambda task, source: {PLAIN.name: PLAIN} if (task, source) == ("t", MergedTablesKey()) else {}
    filters = Rules(keyed=frozenset({PLAIN.name}) if keyed else frozenset())
    rules = ApplyRules(task="t", source="s", filters=filters, beside=True)
    old = {"id": 2, "a": 7, "b": "x", "u": 2}
    moved: Change = (Op.UPDATE, old, NEW[2])
    changes = batch_of(PLAIN, [moved if op is None else (op, None, NEW[2]), (Op.UPDATE, NEW[2], {**NEW[2], "a": 8})])
    (change,) = prepared(session, [changes], rules)
    assert change.deletes.to_pylist() == [{"id": 1}, *([{"id": 2}] if op is None else [])]
    assert change.upserts.to_pylist() == [{**NEW[2], "a": 8}]
    (change,) = prepared(session, [batch_of(PLAIN, [(Op.UPDATE, old, {**old, "a": 8})])], rules)
    assert change.deletes.num_rows == 0, "a row that its own table changes keeps what is there"


def test_a_table_that_is_not_merged_keeps_columns_that_were_added_on_the_target() -> None:
    there = StructureSession(replace(PLAIN, columns=(*PLAIN.columns, Column("c", INT))))
    session: Any = there
    there.load = lambda *_: {}
    copied: list[Change] = [(Op.COPY, None, NEW[2])]
    (change,) = prepared(session, [batch_of(PLAIN, copied)], ApplyRules(task="t", source="s", beside=True))
    assert (change.deletes.num_rows, change.upserts.num_rows) == (0, 1)
    (change,) = prepared(UnreadSession(), [batch_of(PLAIN, copied)], ApplyRules(task="t", source="s"))
    assert (change.deletes.num_rows, change.upserts.num_rows) == (0, 1)


def test_where_a_filter_drops_changes_what_the_source_had_before_says_nothing_of_the_target():
    session: Any = UnreadSession()
    last: Change = (Op.UPDATE, {"id": 2, "a": 7, "b": "x", "u": 2}, {"id": 2, "a": 9, "b": "x", "u": 2})
    changes = batch_of(UNIQUE, [last, NEW])  # Row 2 had u=1 before a change that was left out.
    for schema, deletes in (("crm", []), ("shop", [{"id": 1}, {"id": 2}])):
        dropping = Rules(events=EventFilter((FilterRule(schema, "", ("delete",), (), "Ignore"),)))
        (change,) = prepared(session, [changes], ApplyRules(source="s", filters=dropping))
        assert change.deletes.to_pylist() == deletes
    routed = replace(changes, upstream=TableName("shop_1", "t"))
    (change,) = prepared(session, [routed], ApplyRules(source="s", filters=dropping))
    assert change.deletes.to_pylist() == [], "the filter is for the source's name"


@pytest.mark.parametrize(
    ("rules", "start", "safe"),
    [
        (ApplyRules(safe=True), 0, True),
        (ApplyRules(safe_until=Lsn(0, 1, 150)), 0, True),
        (ApplyRules(safe_until=Lsn(0, 1, 150)), 50, True),
        (ApplyRules(safe_until=Lsn(0, 1, 150)), 51, False),
        (ApplyRules(), 0, False),
    ],
)
def test_safe_mode_ends_at_a_known_point(rules, start, safe):
    session: Any = UnreadSession()
    (change,) = prepared(session, [batch_of(PLAIN, [NEW], start)], rules)
    assert change.safe is safe


def test_a_copied_row_has_no_place_in_the_log_that_could_be_in_the_safe_range():
    session: Any = UnreadSession()
    copied = batch_of(PLAIN, [(Op.COPY, None, NEW[2])])
    (change,) = prepared(session, [copied], ApplyRules(safe_until=Lsn(9, 9, 9)))
    assert change.safe is False


def test_an_old_row_without_its_version_cannot_be_guarded():
    change = update(row(1), row(2))
    batch = batch_of(TABLE, [change], held=[minimal(TABLE, change)])
    live = Live()
    live.change(insert(row(1)))
    with pytest.raises(Halted) as caught:
        live.apply(batch)
    assert caught.value.code == "partial-row-image"


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("occurrence", [1, 2, 3])
def test_rows_and_tombstones_survive_a_crash_at(point, occurrence):
    """Each batch is one transaction, which is repeated as a whole. Its tombstones exist if and only if its rows do."""
    rules = ApplyRules(source="s", version_column="v")
    batches = [
        [insert(row(1, key=1)), insert(row(1, key=2))],
        [delete(row(1, key=1)), update(row(1, key=2), row(2, 5, key=2))],
        [insert(row(3, 6, key=1)), delete(row(2, 5, key=2))],
    ]
    outcomes = []
    for crashes in (False, True):
        target = ValuesTarget(f"prepare-{point}-{occurrence}-{crashes}")
        target.forget()
        session = target.connect()
        create(session, TABLE)
        session.meta.checkpoints.claim("t", "s", 1, Checkpoint(task="t", source="s", worker=0, lsn=Lsn(0, 1, 0)))
        seen = 0

        def hook(where: str) -> None:
            nonlocal seen
            seen += where == point
            if where == point and seen == occurrence:
                raise Transient("gone", "gone")

        target.store.hook = hook if crashes else None
        committer = Committer(target, "t", "s", 1, rules=rules, retry=Retry(attempts=3), sleep=lambda _: None)
        place = Lsn(0, 1, 0)
        for number, changes in enumerate(batches):
            batch, end = batch_of(TABLE, changes, 10 * number), Lsn(0, 1, 105 + 10 * number)
            done = committer.commit(
                0,
                place,
                Checkpoint(task="t", source="s", worker=0, lsn=end, batch=number),
                lambda session, batch=batch: prepared(session, [batch], rules),
            )
            assert done is Outcome.APPLIED
            place = end
        committer.close()
        outcomes.append((target.store.content(TableName("shop", "price")), target.store.tombstones))
    assert outcomes[0] == outcomes[1]
    assert [key.key for _, key in sorted((k[1], t) for k, t in outcomes[0][1].items())] == ["1|", "2|"]
