"""If the target refuses a row, the row is found and reported with its source's table, and the search leaves nothing
behind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.refusing_target import RefusingTarget
from tests.target.conformance.samples import create, write
from tests.values_target import ValuesTarget

from pidts.apply import Committer, Outcome, RefusedRow, Retry
from pidts.apply import refused_row as refused_module
from pidts.apply.refused_row import first_refused
from pidts.model import Checkpoint, Column, ColumnType, Halted, Key, Kind, Lsn, Table, TableName, Transient, Where
from pidts.model import calendar as days
from pidts.reduce import Counts, NetChange

INT = ColumnType(Kind.INT)
PRIMARY = Key("PRIMARY", ("id",), unique=True, primary=True)
COLUMNS = (Column("id", INT, nullable=False), Column("u", INT))
ONE, OTHER = (Table(TableName("all", name), COLUMNS, (PRIMARY, Key("u", ("u",), unique=True))) for name in ("t", "o"))
LOOSE = Table(TableName("all", "loose"), COLUMNS)
SHARD = TableName("shop", "t_1")
BAD = 666


def net(table: Table, rows: Sequence[tuple[int, int | None]], gone: Sequence[int] = ()) -> NetChange:
    ids, values = zip(*rows, strict=True) if rows else ((), ())
    written = pa.table([pa.array(ids, pa.int32()), pa.array(values, pa.int32())], schema=table.arrow)
    keys = pa.table({"id": pa.array(gone, pa.int32())})
    if table.identity:
        return NetChange(table, keys, written, Counts())
    copies = pa.table([keys["id"], pa.nulls(len(gone), pa.int32())], schema=table.arrow)
    return NetChange(table, copies, written, Counts(), pa.array([1] * len(gone), pa.int64()))


@pytest.fixture
def target() -> Iterator[RefusingTarget]:
    made = ValuesTarget("refused")
    made.forget()
    session = made.connect()
    for table in (ONE, OTHER, LOOSE):
        create(session, table)
    yield RefusingTarget(made, "u", BAD)
    made.forget()


def refusal_of(
    target: RefusingTarget, *changes: NetChange, whose: Callable[[RefusedRow], TableName | None] = lambda _: SHARD
) -> Halted:
    """Returns the halt with which a commit of these changes ends.

    Checks that nothing was written, and that the next commit works.
    """
    start = Checkpoint(task="t", source="s", worker=0, lsn=Lsn(0, 1, 0))
    (claimed,) = target.target.connect().meta.checkpoints.claim("t", "s", 1, start)
    before = [target.target.store.content(table.name) for table in (ONE, OTHER, LOOSE)], target.target.store.commits
    with Committer(target, "t", "s", claimed.epoch, retry=Retry(attempts=1), sleep=lambda _: None) as committer:
        new = replace(start, lsn=Lsn(0, 1, claimed.lsn.offset + 9))
        with pytest.raises(Halted) as caught:
            committer.commit(0, claimed.lsn, new, lambda _: changes, whose=whose)
        assert (
            [target.target.store.content(t.name) for t in (ONE, OTHER, LOOSE)],
            target.target.store.commits,
        ) == before
        assert committer.commit(0, claimed.lsn, new, lambda _: []) is Outcome.APPLIED
    return caught.value


ROWS = [(number, number) for number in range(1, 40)]


def test_the_row_is_reported_with_its_key_its_source_and_its_table(target: RefusingTarget) -> None:
    error = refusal_of(target, net(OTHER, ROWS), net(ONE, [*ROWS, (50, BAD), (51, 51), (52, BAD)], gone=[1, 2]))
    assert (error.code, error.what, error.todo) == ("target-refused", f"no {BAD}", "mend it")
    assert error.where == Where(source="s", table="shop.t_1", key="id=50")
    assert "key id=50" in str(error)


def test_whose_row_it_is_may_not_be_known(target: RefusingTarget) -> None:
    assert refusal_of(target, net(ONE, [(5, BAD)]), whose=lambda _: None).where == Where(table="all.t", key="id=5")


def test_a_row_that_is_to_be_removed_may_be_refused(target: RefusingTarget) -> None:
    target.not_removed = frozenset({3})
    rows: list[RefusedRow] = []
    error = refusal_of(target, net(ONE, ROWS, gone=[1, 3, 4]), whose=lambda row: rows.append(row))  # noqa: PLW0108
    assert (error.where.key, rows[0].written) == ("id=3", False)


def test_a_row_without_a_key_is_reported_by_its_columns(target: RefusingTarget) -> None:
    assert refusal_of(target, net(LOOSE, [(1, None), (2, BAD)])).where.key == f"id=2, u={BAD}"


def test_rows_that_collide_with_each_other_are_tried_together(target: RefusingTarget) -> None:
    """Alone, row 9 would be accepted although it collides with row 8, and row 7 would be refused although row 1 gives
    its value up.
    """
    session = target.target.connect()
    write(session, net(ONE, [(1, 100), (2, 200)]))
    assert refusal_of(target, net(ONE, [(1, 101), (7, 100), (8, 8), (9, 8)])).where.key == "id=9"
    assert refusal_of(target, net(ONE, [(3, 100), (4, 4)], gone=[])).where.key == "id=3"


def fails(number: int, error: Exception) -> Callable[[int], None]:
    def answer(refusal: int) -> None:
        if refusal == number:
            raise error

    return answer


def only_once(refusal: int) -> None:
    if refusal > 1:
        raise Halted("another", "it says something else now", where=Where(table="all.t"))


@pytest.mark.parametrize(
    "answers",
    [fails(2, Transient("gone", "gone")), fails(4, ValueError("a fault")), fails(3, Transient("b", "b")), only_once],
)
def test_a_refusal_whose_row_is_not_found_is_reported_unchanged(
    target: RefusingTarget, answers: Callable[[int], None]
) -> None:
    target.answers = answers
    assert refusal_of(target, net(ONE, [(0, BAD), *ROWS])).where == Where(table="all.t")
    assert target.refusals > 1, "it was looked for"


def test_an_owner_that_cannot_be_known_for_an_error_leaves_the_refusal(target: RefusingTarget) -> None:
    def whose(row: RefusedRow) -> TableName:
        raise Halted("null-in-key", "no key", where=Where(table=str(row.table.name)))

    error = refusal_of(target, net(ONE, [(5, BAD)]), whose=whose)
    assert (error.code, error.where) == ("target-refused", Where(table="all.t"))


@pytest.mark.parametrize(("name", "most"), [("_SECONDS", -1.0), ("_BYTES", 10)])
def test_the_search_is_bounded(target: RefusingTarget, monkeypatch: pytest.MonkeyPatch, name: str, most: float) -> None:
    monkeypatch.setattr(refused_module, name, most)
    assert refusal_of(target, net(ONE, [*ROWS, (50, BAD)])).where == Where(table="all.t")
    assert target.refusals == 1


def test_a_refusal_before_the_first_row_names_no_row(target: RefusingTarget) -> None:
    there_is_none = Table(TableName("all", "none"), COLUMNS, (PRIMARY,))
    error = refusal_of(target, net(OTHER, ROWS), net(there_is_none, [(1, 1)]))
    assert error.where == Where(table="all.none")
    always = Halted("no", "no", where=Where(table="all.t"))
    assert first_refused([net(ONE, ROWS)], lambda _: always, "no") is None


@given(
    st.lists(st.tuples(st.integers(0, 6), st.integers(0, 40), st.booleans()), min_size=1, max_size=4),
    st.data(),
)
def test_the_first_of_all_refused_rows_is_found_in_few_tries(
    sizes: list[tuple[int, int, bool]], data: st.DataObject
) -> None:
    number, changes, keys = 0, [], []
    for gone, written, keyless in sizes:
        removed = list(range(number, number + gone))
        added = list(range(number + gone, number + gone + written))
        changes.append(net(LOOSE if keyless else ONE, [(one, one) for one in added], removed))
        number += gone + written
        keys += [*removed, *added]
    bad = data.draw(st.sets(st.sampled_from(keys))) if keys else set()
    tries = 0

    def refusal(some: Sequence[NetChange]) -> Halted | None:
        nonlocal tries
        tries += 1
        for change in some:
            for ids in (change.deletes["id"], change.upserts["id"]):
                if bad & set(ids.to_pylist()):
                    assert change.times is None or len(change.times) == change.deletes.num_rows
                    return Halted("no", "no", where=Where(table=str(change.table.name)))
        return None

    found = first_refused(changes, refusal, "no")
    if not bad:
        assert found is None
        return
    assert found is not None
    assert found.row["id"].to_pylist() == [min(bad)]
    assert first_refused(changes, refusal, "other") is None
    assert tries <= 2 * (2 + (number + len(changes)).bit_length())


def test_keys_are_shown_as_the_source_has_them() -> None:
    rows = pa.table(
        {
            "d": pa.array([days.days(2024, 0, 15)], pa.int32()).view(pa.date32()),
            "t": pa.array([days.microseconds(days.days(2024, 2, 29), 3_600_000_001)], pa.int64()).view(
                pa.timestamp("us")
            ),
            "s": pa.array(["it's"]),
            "n": pa.nulls(1, pa.int32()),
        }
    )
    row = RefusedRow(ONE, rows, written=True, error=Halted("no", "no"))
    assert str(row) == 'd=2024-00-15, t=2024-02-29 01:00:00.000001, s="it\'s", n=NULL'
