"""With the version guard, a batch has the same result as its changes one by one, and no event overwrites a newer row."""

from __future__ import annotations

import itertools
import random
import uuid
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.apply.table_history import INT, PRIMARY, TEXT, Change, Row, batch_of, noblob
from tests.examples import examples
from tests.target.conformance.samples import create
from tests.values_target import ValuesTarget

from pidts.apply.apply_rules import ApplyRules
from pidts.apply.prepare import prepared
from pidts.model import ChangeBatch, Checkpoint, Column, ColumnType, Key, Kind, Lsn, Op, Table, TableName

TABLE = Table(
    TableName("shop", "price"),
    (
        Column("id", INT, nullable=False),
        Column("v", ColumnType(Kind.TIMESTAMP, fsp=6)),
        Column("w", INT),
    ),
    (PRIMARY,),
)
RULES = ApplyRules(source="s", version_column="v")


def row(version: int | None, w: int = 0, key: int = 1) -> Row:
    return {"id": key, "v": version, "w": w}


@dataclass
class Live:
    """A target in memory to which batches are applied."""

    table: Table = TABLE
    folds: bool = False
    rules: ApplyRules = RULES
    written: int = 0
    stale: int = 0
    target: ValuesTarget = field(init=False)

    def __post_init__(self) -> None:
        self.target = ValuesTarget(f"guard-{uuid.uuid4()}", folds=self.folds)
        session = self.target.connect()
        create(session, self.table)
        session.meta.checkpoints.claim("t", "s", 1, Checkpoint(task="t", source="s", worker=0, lsn=Lsn(0, 1, 0)))

    def apply(self, batch: ChangeBatch, rules: ApplyRules | None = None) -> None:
        session = self.target.connect()
        session.begin()
        for change in prepared(session, [batch], rules or self.rules):
            self.written += change.counts.total
            self.stale += change.counts.stale
            session.write(change)
        session.commit()
        session.close()

    def change(self, change: Change, at: int = 0, **others: Any) -> None:
        self.apply(batch_of(self.table, [change], at), **others)

    @property
    def rows(self) -> list[Row]:
        content = self.target.store.content(self.table.name)
        return [{name: _plain(value) for name, value in content[key].items()} for key in sorted(content, key=str)]


def _plain(value: Any) -> Any:
    return int(value.value) if hasattr(value, "value") else value


def insert(new: Row) -> Change:
    return (Op.INSERT, None, new)


def update(old: Row, new: Row) -> Change:
    return (Op.UPDATE, old, new)


def delete(old: Row) -> Change:
    return (Op.DELETE, old, None)


def copy(new: Row) -> Change:
    return (Op.COPY, None, new)


HELD = row(5, 1)
NEWER, OLDER, EQUAL = row(6, 2), row(4, 2), row(5, 2)
CELLS: dict[str, tuple[Change, list[Row]]] = {
    "insert, newer": (insert(NEWER), [NEWER]),
    "insert, older": (insert(OLDER), [HELD]),
    "insert, equal": (insert(EQUAL), [HELD]),
    "insert, NULL": (insert(row(None)), [HELD]),
    "copy, newer": (copy(NEWER), [NEWER]),
    "copy, older": (copy(OLDER), [HELD]),
    "copy, equal": (copy(EQUAL), [HELD]),
    "update, newer": (update(HELD, NEWER), [NEWER]),
    "update, newer, from another row": (update(OLDER, NEWER), [NEWER]),
    "update, older": (update(row(3), OLDER), [HELD]),
    "update, equal, next": (update(HELD, EQUAL), [EQUAL]),
    "update, equal, not next": (update(row(5, 9), EQUAL), [HELD]),
    "update, equal, from an older one": (update(OLDER, EQUAL), [HELD]),
    "delete, newer": (delete(NEWER), []),
    "delete, older": (delete(OLDER), [HELD]),
    "delete, equal, the row": (delete(HELD), []),
    "delete, equal, another row": (delete(EQUAL), [HELD]),
    "delete, NULL": (delete(row(None)), [HELD]),
    "moved away, newer": (update(NEWER, row(7, 3, key=2)), [row(7, 3, key=2)]),
    "moved away, older": (update(OLDER, row(7, 3, key=2)), [HELD, row(7, 3, key=2)]),
    "moved here, older": (update(row(3, key=2), OLDER), [HELD]),
    "moved here, newer": (update(row(3, key=2), NEWER), [NEWER]),
}


@pytest.mark.parametrize("cell", CELLS)
def test_over_a_row(cell):
    change, expected = CELLS[cell]
    live = Live()
    live.change(insert(HELD))
    live.change(change, at=10)
    assert live.rows == expected


def test_over_nothing_everything_is_applied():
    for change, expected in [
        (insert(HELD), [HELD]),
        (update(OLDER, HELD), [HELD]),
        (delete(HELD), []),
        (copy(HELD), [HELD]),
    ]:
        live = Live()
        live.change(change)
        assert live.rows == expected


def test_over_a_row_without_a_version_everything_is_newer():
    for change, expected in [(insert(HELD), [HELD]), (update(row(None, 7), HELD), [HELD]), (delete(HELD), [])]:
        live = Live()
        live.change(insert(row(None, 3)))
        live.change(change, at=10)
        assert live.rows == expected


OTHER = ApplyRules(source="elsewhere", version_column="v")
AFTER_DELETE: dict[str, tuple[Change, int, ApplyRules, bool]] = {
    "newer": (insert(NEWER), 1, OTHER, True),
    "older": (insert(OLDER), 1, RULES, False),
    "older update": (update(row(3), OLDER), 1, RULES, False),
    "older, of another source": (insert(OLDER), 99, OTHER, False),
    "equal, earlier in the log": (insert(EQUAL), 1, RULES, False),
    "equal, later in the log": (insert(EQUAL), 99, RULES, True),
    "equal, of another source": (insert(EQUAL), 99, OTHER, False),
    "older, later in the log": (insert(OLDER), 99, RULES, True),
    "copied, equal": (copy(EQUAL), 1, RULES, True),
    "NULL, earlier in the log": (insert(row(None)), 1, RULES, False),
}


@pytest.mark.parametrize("cell", AFTER_DELETE)
@pytest.mark.parametrize("there", [True, False])
def test_over_a_tombstone(cell, there):
    change, at, rules, applied = AFTER_DELETE[cell]
    live = Live()
    if there:
        live.change(insert(HELD))
    live.change(delete(HELD), at=50)
    live.change(change, at=at, rules=rules)
    assert live.rows == ([change[2]] if applied else [])


def history(chance: random.Random, length: int, keys: int, *, steady: bool) -> list[Change]:
    """Returns the changes of a source. If not `steady`, somebody has set versions back by hand."""
    rows: dict[int, Row] = {}
    changes: list[Change] = []
    clock = 0
    for number in range(length):
        clock += chance.choice([0, 0, 1])
        version = clock if steady else chance.choice([clock, chance.randrange(clock + 1), None])
        key = chance.randrange(keys)
        old = rows.get(key)
        if old is None:
            rows[key] = row(version, number, key)
            changes.append(insert(rows[key]))
        elif chance.random() < 0.25:
            changes.append(delete(rows.pop(key)))
        else:
            free = [other for other in range(keys) if other not in rows]
            target = chance.choice(free) if free and chance.random() < 0.2 else key
            del rows[key]
            rows[target] = row(version, number, target)
            changes.append(update(old, rows[target]))
    return changes


def play(live: Live, changes: list[Change], cuts: list[int], start: int = 0) -> None:
    edges = [0, *sorted({cut % (len(changes) + 1) for cut in cuts}), len(changes)]
    for begin, end in itertools.pairwise(edges):
        if begin < end:
            live.apply(batch_of(live.table, changes[begin:end], start + begin))


CUTS = st.lists(st.integers(0, 30), max_size=5)


@settings(max_examples=examples(25), deadline=None)
@given(st.integers(0, 10**9), CUTS, st.booleans())
def test_batches_leave_what_single_changes_leave(seed, cuts, steady):
    chance = random.Random(seed)
    changes = history(chance, 25, 4, steady=steady)
    first = chance.randrange(len(changes))
    whole, single = Live(), Live()
    for live in (whole, single):
        play(live, changes[: first + 5], [])  # The target is later than the place at which the log is read again.
    play(whole, changes[first:], cuts, first)
    for number, change in enumerate(changes[first:], first):
        single.change(change, at=number)
    assert whole.rows == single.rows


@settings(max_examples=examples(25), deadline=None)
@given(st.integers(0, 10**9), CUTS, CUTS)
def test_a_replayed_range_changes_nothing_on_the_way_and_ends_right(seed, cuts, again):
    chance = random.Random(seed)
    changes = history(chance, 25, 3, steady=True)
    live = Live()
    play(live, changes, cuts)
    expected = live.rows
    plain = Live(rules=ApplyRules(source="s"))
    play(plain, changes, cuts)
    assert expected == plain.rows, "a first run is not hindered"
    begin = chance.randrange(len(changes))
    edges = sorted({begin, len(changes), *(begin + cut % (len(changes) - begin) for cut in again)})
    versions = {r["id"]: r["v"] for r in expected}
    for a, b in itertools.pairwise(edges):
        live.apply(batch_of(TABLE, changes[a:b], a))
        now = {r["id"]: r["v"] for r in live.rows}
        assert all(now[key] >= versions[key] for key in now if key in versions)
    assert live.rows == expected


def test_a_batch_of_old_changes_writes_nothing():
    live = Live()
    live.change(insert(row(9, 9)))
    live.written = 0
    live.apply(batch_of(TABLE, [update(row(2), row(3)), update(row(3), row(4)), delete(row(4)), insert(row(5))]))
    assert (live.written, live.stale) == (0, 4)
    assert live.rows == [row(9, 9)]


def folded(key_type: ColumnType) -> Table:
    return Table(TABLE.name, (Column("id", key_type, nullable=False), *TABLE.columns[1:]), (PRIMARY,))


def test_a_server_that_folds_case_is_asked_which_row_a_key_means():
    table = folded(ColumnType(Kind.VARCHAR, length=9, charset="utf8mb4", collation="utf8mb4_general_ci"))
    for batch in (
        [insert({"id": "A", "v": 4, "w": 0})],
        [insert({"id": "A", "v": 4, "w": 0}), update({"id": "A", "v": 4, "w": 0}, {"id": "a", "v": 5, "w": 1})],
        [delete({"id": "A", "v": 4, "w": 0})],
        [insert({"id": "x", "v": 1, "w": 0}), delete({"id": "x", "v": 1, "w": 0}), insert({"id": "A", "v": 3, "w": 0})],
    ):
        live = Live(table, folds=True)
        live.change(insert({"id": "a", "v": 5, "w": 1}))
        live.apply(batch_of(table, batch))
        assert live.rows == [{"id": "a", "v": 5, "w": 1}]


def test_unique_values_pass_from_row_to_row_over_rows_that_the_log_did_not_expect():
    table = Table(TABLE.name, TABLE.columns, (PRIMARY, Key("by_w", ("w",), unique=True)))
    live = Live(table)
    live.apply(batch_of(table, [insert(row(1, 10, 5)), insert(row(9, 20, 2))]))
    # The batch inserts row 5, but the target already has an older row 5, with w = 10. Row 3 can get w = 10 only after
    # this older row is replaced.
    live.apply(
        batch_of(table, [insert(row(5, 30, 5)), insert(row(5, 10, 3)), update(row(2, 40, 2), row(3, 41, 2))], 50)
    )
    assert live.rows == [row(9, 20, 2), row(5, 10, 3), row(5, 30, 5)]


@settings(max_examples=examples(15), deadline=None)
@given(st.integers(0, 10**9), CUTS, CUTS)
def test_images_without_blobs_are_guarded_like_whole_ones(seed, cuts, again):
    table = Table(TABLE.name, (*TABLE.columns, Column("body", TEXT)), (PRIMARY,))

    def bodied(image: Row | None) -> Row | None:
        return image and {**image, "body": f"body {image['w'] // 4}"}

    changes = [(op, bodied(old), bodied(new)) for op, old, new in history(random.Random(seed), 25, 3, steady=True)]
    found = [noblob(table, change) for change in changes]
    whole, partial = Live(table), Live(table)
    for begin, edges in ((0, cuts), (seed % len(changes), again)):
        play(whole, changes[begin:], edges, begin)
        places = [begin, *sorted({begin + cut % (len(changes) - begin) for cut in edges}), len(changes)]
        for a, b in itertools.pairwise(places):
            if a < b:
                partial.apply(batch_of(table, changes[a:b], a, found[a:b]))
        assert partial.rows == whole.rows
