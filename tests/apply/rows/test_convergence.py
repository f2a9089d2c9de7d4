"""In whatever order changes come, however often, and in whatever batches, each row of a zone ends in its latest state."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs
from tests.apply.rows.test_version_guard import Live
from tests.apply.table_history import INT, PRIMARY, TEXT, Change, Row, batch_of, noblob
from tests.examples import examples

from pidts.apply.apply_rules import ApplyRules
from pidts.apply.prepare import prepared
from pidts.apply.rows.convergence import why_not
from pidts.batch.returned import only_removed
from pidts.model import ChangeBatch, Column, ColumnType, Halted, Key, Kind, Op, Table, TableName

TABLE = Table(
    TableName("shop", "price"),
    (Column("id", INT, nullable=False), Column("v", INT), Column("w", INT), Column("t", ColumnType(Kind.TIME, fsp=3))),
    (PRIMARY,),
)
RULES = ApplyRules(source="s", version_column="v", converges=True)
State = tuple[int, int, str]


def live() -> Live:
    return Live(table=TABLE, rules=RULES)


def row(key: int, version: int | None, w: int = 0) -> Row:
    return {"id": key, "v": version, "w": w, "t": None}


def ends(change: Change) -> dict[int, State]:
    """Returns the state that a change gives to each row that it changes."""
    _, old, new = change
    found: dict[int, State] = {}
    if new is not None:
        found[new["id"]] = (new["v"], 0, f"={new['w']}")
    if old is not None and (new is None or new["id"] != old["id"]):
        found[old["id"]] = (old["v"], 1, "")
    return found


def any_change(chance: random.Random) -> Change:
    old, new = (row(chance.randrange(3), chance.randrange(1, 5), chance.randrange(12)) for _ in range(2))
    op = chance.choice([Op.INSERT, Op.UPDATE, Op.DELETE])
    if op is Op.INSERT:
        return op, None, new
    if op is Op.DELETE:
        return op, old, None
    if new["v"] <= old["v"]:
        new["v"] = old["v"] + 1
    return op, old, new


def latest(changes: list[Change]) -> list[Row]:
    found: dict[int, State] = {}
    for change in changes:
        for key, state in ends(change).items():
            found[key] = max(state, found.get(key, state))
    return [row(key, state[0], int(state[2][1:])) for key, state in sorted(found.items()) if not state[1]]


@settings(max_examples=examples(150), deadline=None)
@given(seed=st.integers(0, 2**32), size=st.integers(1, 12), cuts=st.integers(1, 6))
def test_the_zone_ends_with_the_latest_state(seed: int, size: int, cuts: int) -> None:
    chance = random.Random(seed)
    changes = [any_change(chance) for _ in range(size)]
    zone = live()
    for _ in range(2):
        coming = [*changes, *chance.choices(changes, k=size // 2)]
        chance.shuffle(coming)
        for first in range(0, len(coming), cuts):
            zone.apply(batch_of(TABLE, coming[first : first + cuts], first))
    assert zone.rows == latest(changes)


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_of_rows_of_one_version_the_higher_text_stays(order: tuple[int, ...]) -> None:
    """As texts, 9 is higher than 10, and NULL is the lowest.

    All changes are in one batch, or each has a batch of its own.
    """
    changes = [(Op.INSERT, None, row(1, 5, w)) for w in (9, 10)]
    changes.append((Op.INSERT, None, {**row(1, 5), "w": None}))
    one, other = live(), live()
    for place in order:
        one.change(changes[place])
    other.apply(batch_of(TABLE, [changes[place] for place in order], 0))
    assert one.rows == other.rows == [row(1, 5, 9)]


def test_a_row_without_a_version_is_older_than_all_others() -> None:
    zone = live()
    zone.change((Op.INSERT, None, row(1, None, 1)))
    zone.change((Op.INSERT, None, row(1, 1, 0)))
    zone.change((Op.INSERT, None, row(1, None, 2)))
    assert zone.rows == [row(1, 1, 0)]


def written_by(zone: Live, batch: ChangeBatch) -> list[tuple[list[int], list[int]]]:
    """Applies a batch. Returns the removed keys and the written versions of each of its writes."""
    session, written = zone.target.connect(), []
    session.begin()
    for change in prepared(session, [batch], RULES):
        written.append((change.deletes["id"].to_pylist(), change.upserts["v"].to_pylist()))
        session.write(change)
    session.commit()
    session.close()
    return written


@pytest.mark.parametrize("op", [Op.INSERT, Op.COPY])
def test_a_row_that_a_tombstone_keeps_out_is_written_with_its_version_and_removed(op: Op) -> None:
    zone = live()
    zone.change((Op.DELETE, row(1, 5), None))
    with capture_logs() as logged:
        answered = written_by(zone, batch_of(TABLE, [(op, None, row(1, 4)), (op, None, row(2, 1))], 10))
    warned = [(one["table"], one["keys"]) for one in logged if one["event"].startswith("inserted rows are removed")]
    assert warned == ([("shop.price", ["1|"])] if op is Op.INSERT else [])
    assert answered[:2] == [([], [5]), ([1], [])]
    assert zone.rows == [row(2, 1)]
    assert [(tomb.key, tomb.version) for tomb in zone.target.store.tombstones.values()] == [("1|", "5")]
    removed = written_by(zone, batch_of(TABLE, [(Op.DELETE, row(1, 4), None)], 20))
    assert removed in ([], [([], [])]), "a removal is not answered"


def test_the_log_shows_the_version_of_what_is_removed() -> None:
    """If the zone lacks the row or has an earlier version of it, the log's row is written first, and then removed. If a
    removal comes back to its own zone, the row is only removed.
    """
    zone, written = live(), []

    def look(batch: ChangeBatch) -> None:
        written.extend(written_by(zone, batch))

    gone = batch_of(TABLE, [(Op.DELETE, row(1, 5), None)], 10)
    look(*only_removed([gone]))
    assert written == [([1], [])]
    look(batch_of(TABLE, [(Op.DELETE, row(1, 6), None)], 10))
    assert written[1:] == [([], [6]), ([1], [])]
    del written[:]
    zone.change((Op.INSERT, None, row(1, 7)))
    look(batch_of(TABLE, [(Op.DELETE, row(1, 7), None)], 10))
    assert written == [([1], [])]
    look(gone)
    assert written[1:] == [([], [])] or written[1:] == []
    assert zone.rows == []


def test_a_change_in_part_halts_until_the_row_has_a_higher_version() -> None:
    """The image lacks the blob, and this zone's row may have another blob, since two zones may have written rows of one
    version.
    """
    table = Table(TableName("shop", "noted"), (*TABLE.columns[:3], Column("b", TEXT)), (PRIMARY,))
    zone = Live(table=table, rules=RULES)

    def noted(version: int, blob: str, w: int = 0) -> Row:
        return {"id": 1, "v": version, "w": w, "b": blob}

    def in_part(old: Row, new: Row) -> None:
        change = (Op.UPDATE, old, new)
        zone.apply(batch_of(table, [change], 0, held=[noblob(table, change)]))

    zone.change((Op.INSERT, None, noted(1, "q")))
    for new in (noted(2, "p", 5), {**noted(2, "p"), "id": 2}):
        with pytest.raises(Halted, match="may differ in this zone") as halted:
            in_part(noted(1, "p"), new)
        assert halted.value.code == "partial-row-image"
    assert zone.rows == [noted(1, "q")]
    zone.change((Op.UPDATE, noted(1, "q"), noted(3, "p", 5)))
    in_part(noted(1, "p"), noted(2, "p", 5))
    assert zone.rows == [noted(3, "p", 5)]


def test_only_the_last_deletion_of_a_row_that_stays_deleted_is_returned() -> None:
    changes = [
        (Op.DELETE, row(1, 1), None),
        (Op.INSERT, None, row(1, 2)),
        (Op.INSERT, None, row(2, 1)),
        (Op.DELETE, row(2, 1), None),
        (Op.UPDATE, row(3, 1), row(3, 2)),
    ]
    (found,) = only_removed([batch_of(TABLE, changes, 0)])
    assert [(one["op"], one["before"], one["after"]) for one in found.rows.to_pylist()] == [
        (int(Op.DELETE), row(2, 1), row(2, 1))
    ]
    assert only_removed([batch_of(TABLE, changes[4:], 0), batch_of(replace(TABLE, keys=()), changes[:1], 0)]) == []


def test_tables_that_do_not_converge() -> None:
    text = Column("k", ColumnType(Kind.VARCHAR, length=9, charset="utf8mb4", collation="utf8mb4_general_ci"))
    bits = replace(text, type=replace(text.type, collation="utf8mb4_bin"))

    def reason(table: Table, column: str = "v") -> str:
        return why_not(table, column)

    assert reason(TABLE) == ""
    assert "no column u" in reason(TABLE, "u")
    assert "compare differently" in reason(replace(TABLE, columns=(*TABLE.columns, bits)), "k")
    assert "no primary key" in reason(replace(TABLE, keys=()))
    unique = Key("u", ("w",), unique=True)
    assert "no primary key" in reason(replace(TABLE, keys=(unique,)))
    assert "besides" in reason(replace(TABLE, keys=(PRIMARY, unique)))
    with_text = replace(
        TABLE, columns=(*TABLE.columns, text), keys=(Key("PRIMARY", ("k",), unique=True, primary=True),)
    )
    assert "different texts" in reason(with_text)
    assert reason(replace(with_text, columns=(*TABLE.columns, bits))) == ""
