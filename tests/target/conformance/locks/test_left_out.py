"""Between zones, a task records the notes of its source's log, and sets aside the changes that they name."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa
import pytest
from tests.crashes import ProcessDied
from tests.target.conformance.breaking import Breaking
from tests.target.conformance.locks.test_early_removals import FOLDED, ZoneTask
from tests.target.conformance.locks.test_row_locks import Change, content, locks, put
from tests.target.conformance.samples import INT, create, table, text
from tests.values_target import ValuesTarget

from pidts.apply import Target, TargetSession
from pidts.apply.locks.resolve import ResolveWith, resolve
from pidts.apply.locks.zone_notes import row_digest, show_left_out
from pidts.apply.rows.tombstone_keys import row_texts
from pidts.apply.uncopied_keys import packed
from pidts.model import Key, Op, Table, TableName
from pidts.model.zone_notes import NOTES
from pidts.target import MySqlTarget

pytestmark = pytest.mark.repeats("values-journaled", "mysql56", "mysql97")
ONE, TWO, SIX = (5, "one", 1, None), (5, "two", 1, None), (6, "six", 6, "t")
BACK: Change = (Op.UPDATE, TWO, ONE)


@pytest.fixture
def ours(target: Target, task: str, structure: Table) -> Iterator[ZoneTask]:
    """Returns the task from the zone that has left a change out."""
    del structure
    made = ZoneTask(target, task, "c")
    yield made
    made.leave()


@pytest.fixture
def other(target: Target, task: str, structure: Table) -> Iterator[ZoneTask]:
    del structure
    made = ZoneTask(target, f"{task} other", "a")
    yield made
    made.leave()


def note(structure: Table, *key: object, removed: tuple[object, ...] | None = None) -> Change:
    """Returns a note in the source's log, as its row: a task has left out a change of the row with this key. `removed`
    is the row that the change removed, if any.
    """
    names = structure.identity
    keys = pa.Table.from_arrays([pa.array([value]) for value in key], list(names)).cast(
        pa.schema([structure.arrow.field(name) for name in names])
    )
    text = None
    if removed is not None:
        row = dict(zip(structure.arrow.names, removed, strict=True))
        (text,) = row_texts(pa.Table.from_pylist([row], schema=structure.arrow))
    name = structure.name
    values = ("ac", "a", name.schema, name.name, "digest", row_digest(text), packed(keys), int(time.time()))
    return Op.INSERT, None, values


def test_the_next_change_of_the_row_is_set_aside(
    session: TargetSession, structure: Table, ours: ZoneTask, other: ZoneTask
) -> None:
    put(session, structure, TWO, SIX)
    ours.apply(NOTES, note(structure, 5))
    other.apply(structure, (Op.UPDATE, TWO, (5, "three", 1, None)))
    assert locks(session, other.task, structure) == [], "it is about changes of the note's zone only"
    put(session, structure, TWO)
    ours.apply(structure, BACK, (Op.UPDATE, SIX, (6, "sechs", 6, "t")))
    assert content(session, structure) == [TWO, (6, "sechs", 6, "t")]
    (lock,) = locks(session, ours.task, structure)
    assert lock.shown == "id=5"
    assert lock.why.startswith(f"the row's previous change, which task {ours.task} has applied, was made in two zones")


def test_after_a_delete_only_an_equal_row_is_set_aside(
    session: TargetSession, structure: Table, ours: ZoneTask
) -> None:
    ours.apply(NOTES, note(structure, 5, removed=ONE), note(structure, 6, removed=SIX))
    ours.apply(structure, (Op.INSERT, None, ONE), (Op.INSERT, None, (6, "other", 6, "t")))
    assert content(session, structure) == [(6, "other", 6, "t")]
    assert [one.shown for one in locks(session, ours.task, structure)] == ["id=5"]


def test_a_resolved_row_continues(session: TargetSession, structure: Table, ours: ZoneTask) -> None:
    put(session, structure, TWO)
    ours.apply(NOTES, note(structure, 5))
    ours.apply(structure, BACK)
    (lock,) = locks(session, ours.task, structure)
    resolve(session, ours.task, "s", structure.name, {lock.id}, ResolveWith.SOURCE)
    ours.apply(structure, (Op.UPDATE, ONE, TWO))
    assert content(session, structure) == [TWO]
    assert locks(session, ours.task, structure) == []


def test_a_key_is_compared_as_the_target_compares_it(
    target: Target, session: TargetSession, name: TableName, ours: ZoneTask
) -> None:
    if isinstance(target, ValuesTarget):
        pytest.skip("it has no collations")
    folded = table(TableName(name.schema, f"{name.name}_f"), {"id": FOLDED, "u": INT})
    create(session, folded)
    put(session, folded, ("ADA", 2))
    ours.apply(NOTES, note(folded, "ada"))
    ours.apply(folded, (Op.UPDATE, ("ADA", 2), ("ADA", 1)))
    assert content(session, folded) == [("ADA", 2)]
    assert len(locks(session, ours.task, folded)) == 1


def test_a_note_about_a_table_with_another_key_is_left_out(
    session: TargetSession, structure: Table, ours: ZoneTask
) -> None:
    put(session, structure, TWO)
    gone = table(TableName(structure.name.schema, f"{structure.name.name}_gone"), {"id": INT})
    rekeyed = replace(structure, keys=(Key("PRIMARY", ("u",), unique=True, primary=True),))
    retyped = replace(
        structure, columns=tuple(replace(one, type=text()) if one.name == "id" else one for one in structure.columns)
    )
    ours.apply(NOTES, note(gone, 5), note(rekeyed, 5), note(retyped, "no number"), note(structure, 6))
    ours.apply(structure, BACK)
    assert content(session, structure) == [ONE]
    ours.apply(structure, (Op.INSERT, None, SIX))
    assert [one.shown for one in locks(session, ours.task, structure)] == ["id=6"], "the others are recorded"


def test_a_process_that_dies_anywhere_records_the_note(
    target: Target, session: TargetSession, task: str, structure: Table, other: ZoneTask
) -> None:
    del other
    whole = ZoneTask(target, f"{task} dying", "c")
    counting = whole.target = Breaking(target)
    whole.apply(NOTES, note(structure, 5))
    for broken in range(len(counting.points)):
        key = 100 + broken
        one, two = (key, *ONE[1:]), (key, *TWO[1:])
        put(session, structure, two)
        running = ZoneTask(target, whole.task, "c")
        before, running.target = running.at, Breaking(target, broken)
        try:
            running.apply(NOTES, note(structure, key))
        except ProcessDied:
            running = ZoneTask(target, whole.task, "c")
            if running.at == before:
                running.apply(NOTES, note(structure, key))
        running.target = target
        running.apply(structure, (Op.UPDATE, two, one))
        assert two in content(session, structure)
    whole.target = target
    whole.leave()
    assert len(locks(session, whole.task, structure)) == len(counting.points) > 3


def test_notes_stay_in_no_table(target: Target, session: TargetSession, structure: Table) -> None:
    if not isinstance(target, MySqlTarget):
        pytest.skip("it keeps no table of them")
    keys = pa.Table.from_pylist(
        [{"id": 5}, {"id": 6}, {"id": 5}], schema=structure.arrow.empty_table().select(["id"]).schema
    )
    session.begin()
    show_left_out(session, "ac", "a", structure, keys, [None, "six", None], [1, 2, 3])
    session.commit()
    assert session.rows("SELECT COUNT(*) FROM pidts_meta.left_out", ()) == [(0,)]
