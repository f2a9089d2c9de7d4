"""Changes logged in part get the same result as changes logged in full, with as few reads of the target as possible."""

from __future__ import annotations

import random
from collections.abc import Collection
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.apply.table_history import INT, PLAIN, PRIMARY, TEXT, UNIQUE, Change, Row, batch_of, minimal, noblob, rows_of
from tests.examples import examples

from pidts.apply.rows.partial_images import ImageCompletion
from pidts.apply.uncopied_keys import ahead, unread
from pidts.model import ChangeBatch, Column, Halted, Key, Lsn, Op, Table
from pidts.plan.copy.state import CopyMode, CopyState, Phase
from pidts.reduce import buckets, net_changes, with_whole_keys
from pidts.reduce.multiset import multiset_change

SEEDS = st.integers(0, 10**9)


def history(table: Table, chance: random.Random, start: dict[int, Row], length: int) -> list[Change]:
    """Returns changes that a source could have made. Applies them to `start`, which then has the final rows."""
    changes: list[Change] = []
    rows = start

    def free(value: int | None) -> int | None:
        taken = {row["u"] for row in rows.values()}
        return None if table.secondary_unique and value in taken else value

    for _ in range(length):
        key = chance.randrange(5)
        old = rows.get(key)
        if old is None:
            new = {
                "id": key,
                "a": chance.choice([7, 1, None]),
                "b": chance.choice([None, "x", "yy"]),
                "u": free(chance.randrange(6)),
            }
            changes.append((Op.INSERT, None, new))
            rows[key] = new
        elif chance.random() < 0.25:
            changes.append((Op.DELETE, rows.pop(key), None))
        else:
            new = dict(old)
            for name in chance.sample(["id", "a", "b", "u"], chance.choice([0, 1, 1, 2])):
                if name == "id":
                    new["id"] = chance.choice([number for number in range(7) if number not in rows] or [key])
                else:
                    new[name] = {
                        "a": chance.randrange(9),
                        "b": chance.choice(["x", None, "z"]),
                        "u": free(chance.randrange(6)),
                    }[name]
            del rows[key]
            changes.append((Op.UPDATE, old, new))
            rows[new["id"]] = new
    return changes


def completed(batch: ChangeBatch, rows: dict[int, Row]) -> ChangeBatch:
    completion = ImageCompletion(with_whole_keys(batch))
    wanted = [key["id"] for key in completion.keys.to_pylist()]
    assert len(wanted) == len(set(wanted))
    return completion.written(completion.images(rows_of(batch.table, [rows[key] for key in wanted if key in rows])))


@settings(max_examples=examples(60), deadline=None)
@given(SEEDS, st.sampled_from([PLAIN, UNIQUE]), st.sampled_from(["minimal", "noblob", "mixed"]))
def test_a_history_logged_in_part_is_the_one_logged_in_full(seed, table, image):
    chance = random.Random(seed)
    rows: dict[int, Row] = {}
    history(table, chance, rows, 8)
    before = {key: dict(row) for key, row in rows.items()}
    changes = history(table, chance, rows, chance.randrange(1, 20))
    kinds = {"minimal": [minimal], "noblob": [noblob], "mixed": [minimal, noblob, None]}[image]
    held = [kind(table, change) if (kind := chance.choice(kinds)) else None for change in changes]
    whole = net_changes([batch_of(table, changes)])
    found = net_changes([completed(batch_of(table, changes, held=held), before)])
    for a, b in zip(whole, found, strict=True):
        assert a.upserts.to_pylist() == b.upserts.to_pylist()
        assert a.deletes.to_pylist() == b.deletes.to_pylist()
        assert a.counts == b.counts


def test_no_row_is_read_for_values_that_the_batch_has():
    row = {"id": 1, "a": 7, "b": "x", "u": 1}
    changes: list[Change] = [(Op.INSERT, None, row), (Op.UPDATE, row, {**row, "b": "y"})]
    completion = ImageCompletion(
        with_whole_keys(batch_of(PLAIN, changes, held=[minimal(PLAIN, change) for change in changes]))
    )
    assert completion.keys.num_rows == 0
    images = completion.images(rows_of(PLAIN, []))
    assert not images.is_partial
    assert images.rows["after"].to_pylist() == [row, {**row, "b": "y"}]


def test_a_before_image_without_a_column_that_no_key_needs_reads_nothing():
    row = {"id": 1, "a": 7, "b": "x", "u": 1}
    change: Change = (Op.UPDATE, row, {**row, "a": 8})
    without_b = [(["id", "a", "u"], ["id", "a", "b", "u"])]
    completion = ImageCompletion(with_whole_keys(batch_of(UNIQUE, [change], held=without_b)))
    assert completion.keys.num_rows == 0
    assert completion.images(rows_of(UNIQUE, [])).rows["after"].to_pylist() == [{**row, "a": 8}]
    in_unique_key = Table(PLAIN.name, PLAIN.columns, (PRIMARY, Key("by_b", ("b",), unique=True)))
    assert ImageCompletion(with_whole_keys(batch_of(in_unique_key, [change], held=without_b))).keys.to_pylist() == [
        {"id": 1}
    ]


def test_a_copied_row_comes_before_all_that_the_log_says_of_it():
    row = {"id": 1, "a": 7, "b": "x", "u": 1}
    changes: list[Change] = [(Op.UPDATE, row, {**row, "a": 8}), (Op.COPY, None, {**row, "b": "copied"})]
    completion = ImageCompletion(with_whole_keys(batch_of(PLAIN, changes, held=[minimal(PLAIN, changes[0]), None])))
    assert completion.keys.num_rows == 0
    (net,) = net_changes([completion.written(completion.images(rows_of(PLAIN, [])))])
    assert net.upserts.to_pylist() == [{**row, "a": 8, "b": "copied"}]


def test_a_row_that_is_nowhere_halts_with_its_key():
    row = {"id": 1, "a": 7, "b": "x", "u": 1}
    change: Change = (Op.UPDATE, row, {**row, "a": 8})
    with pytest.raises(Halted, match="id = 1") as caught:
        completed(batch_of(PLAIN, [change], held=[minimal(PLAIN, change)]), {})
    assert_missing(caught.value, 100)


def assert_missing(error: Halted, offset: int) -> None:
    assert (error.code, error.where.table, error.where.position) == (
        "row-missing",
        str(PLAIN.name),
        str(Lsn(0, 1, offset)),
    )


def test_a_row_that_the_copy_has_not_reached_is_left_to_it():
    row = {"id": 1, "a": 7, "b": "x", "u": 1}
    update: Change = (Op.UPDATE, row, {**row, "a": 8})
    other: Change = (Op.INSERT, None, {**row, "id": 2})
    changes: list[Change] = [update, other, update, (Op.DELETE, row, None)]
    batch = batch_of(PLAIN, changes, held=[minimal(PLAIN, change) for change in changes])
    assert left_out(batch, is_unread=nothing) == [Op.INSERT, Op.DELETE]


def nothing(_key: tuple[object, ...]) -> bool:
    """Returns False for all keys: the copy has read all of them."""
    return False


def behind_5(key: tuple[Any, ...]) -> bool:
    """Returns True for keys above 5, which the copy has not read yet."""
    return bool(key[0] > 5)


ROW = {"id": 7, "a": 7, "b": "x", "u": 1}


def test_a_row_that_moves_to_where_the_copy_has_been_is_read_again_or_halts():
    for key, reads in ((9, True), (3, False)):
        moved: Change = (Op.UPDATE, ROW, {**ROW, "id": key})
        changed: Change = (Op.UPDATE, moved[2], {**ROW, "id": key, "a": 1})
        for changes in ([moved], [moved, changed]):
            batch = batch_of(PLAIN, changes, held=[minimal(PLAIN, change) for change in changes])
            if reads:
                assert removed(batch, is_unread=behind_5) == {7, 9}
            else:
                with pytest.raises(Halted, match="another key") as caught:
                    left_out(batch, is_unread=behind_5)
                assert caught.value.code == "partial-row-image"
            assert recorded(batch, is_unread=behind_5) == ([] if reads else [(3, 99 + len(changes))])
            assert removed(batch, is_unread=behind_5, can_record=True) == {7, key}


def test_only_the_last_key_of_a_moved_row_counts():
    there: Change = (Op.UPDATE, ROW, {**ROW, "id": 3})
    deleted: Change = (Op.DELETE, {**ROW, "id": 3}, None)
    onward: Change = (Op.UPDATE, {**ROW, "id": 3}, {**ROW, "id": 9})
    back: Change = (Op.UPDATE, {**ROW, "id": 3}, ROW)
    for changes, gone in (([there, deleted], {3, 7}), ([there, onward], {3, 7, 9}), ([there, back], {3, 7})):
        batch = batch_of(PLAIN, changes, held=[minimal(PLAIN, change) for change in changes])
        assert removed(batch, is_unread=behind_5) == gone
        assert recorded(batch, is_unread=behind_5) == []
    batch = batch_of(PLAIN, [there, back], held=[minimal(PLAIN, change) for change in (there, back)])
    with pytest.raises(Halted, match="row with id = 3"):
        left_out(batch, is_unread=nothing)
    assert recorded(batch, is_unread=nothing) == [(7, 101)]


def test_an_inserted_row_that_cannot_be_completed_is_left_to_the_copy_only_where_it_is_read():
    table = Table(PLAIN.name, (Column("id", INT, nullable=False), Column("b", TEXT, default="uuid()")), (PRIMARY,))
    for key, reads in ((9, True), (3, False)):
        batch = batch_of(table, [(Op.INSERT, None, {"id": key, "b": "?"})], held=[((), ["id"])])
        if reads:
            assert removed(batch, is_unread=behind_5) == {9}
        else:
            with pytest.raises(Halted, match="default is not known"):
                left_out(batch, is_unread=behind_5)
            assert recorded(batch, is_unread=behind_5) == [(3, 100)]


def test_an_update_of_what_may_have_a_unique_value_of_another_time_is_left_to_the_copy():
    """Row 7 on the target is older than the copy, so another row may have row 7's unique value now."""
    changed: Change = (Op.UPDATE, ROW, {**ROW, "a": 1})
    batch = with_whole_keys(batch_of(UNIQUE, [changed], held=[minimal(UNIQUE, changed)]))
    for is_unread in (behind_5, nothing):
        completion = ImageCompletion(batch, is_ahead=lambda _: True, is_foreign=lambda _: True)
        assert completion.keys.num_rows == 0
        written = completion.written(completion.images(rows_of(UNIQUE, [])), is_unread=is_unread, can_record=True)
        keys = completion.unread_keys()[1].to_pylist()
        assert (written.rows["op"].to_pylist(), keys) == (([], []) if is_unread is behind_5 else ([3, 3], [{"id": 7}]))


def recorded(batch: ChangeBatch, **why: Any) -> list[tuple[int, int]]:
    """Returns the keys that are read again, each with the offset of its change."""
    completion = ImageCompletion(with_whole_keys(batch))
    completion.written(completion.images(rows_of(batch.table, [])), can_record=True, **why)
    lsns, keys = completion.unread_keys()
    places = (Lsn.from_bytes(lsn.as_py()).offset for lsn in lsns)
    return list(zip(keys["id"].to_pylist(), places, strict=True))


def removed(batch: ChangeBatch, **why: Any) -> set[int]:
    """Returns the keys whose rows are removed; checks that no row is written."""
    completion = ImageCompletion(with_whole_keys(batch))
    rows = completion.written(completion.images(rows_of(batch.table, [])), **why).rows
    assert set(rows["op"].to_pylist()) == {Op.DELETE}
    return {row["id"] for row in rows["before"].to_pylist()}


def moved_within(batch: ChangeBatch, target: list[Row]) -> tuple[list[Row], list[Row]]:
    """Returns the rows that a batch writes and removes, if its updates of keys look for rows on the target at the new
    keys, too.
    """
    completion = ImageCompletion(with_whole_keys(batch), read_early=True)
    wanted = [key["id"] for key in completion.keys.to_pylist()]
    assert len(wanted) == len(set(wanted))
    held = [row for row in target if row["id"] in wanted]
    (net,) = net_changes([completion.written(completion.images(rows_of(PLAIN, held)), is_unread=nothing)])
    return net.upserts.to_pylist(), net.deletes.to_pylist()


def test_a_row_that_was_read_at_its_new_key_is_continued_there():
    """Each change of the log is later than the row that was read, or the row has it already."""
    moved: Change = (Op.UPDATE, ROW, {**ROW, "id": 3})
    changed: Change = (Op.UPDATE, {**ROW, "id": 3}, {**ROW, "id": 3, "a": 1})
    read = {**ROW, "id": 3, "b": "as it was read"}
    partly = [minimal(PLAIN, change) for change in (moved, changed)]
    loaded = moved_within(batch_of(PLAIN, [moved, changed], held=partly), [read])
    waiting = moved_within(batch_of(PLAIN, [moved, changed, (Op.COPY, None, read)], held=[*partly, None]), [])
    assert loaded[0] == waiting[0] == [{**read, "a": 1}]
    assert {"id": 7} in loaded[1]


def test_a_row_that_was_there_before_is_not_the_one_that_moved():
    """Row 5 was read before it was deleted. The row that has this key afterwards was not read."""
    other = {**ROW, "id": 5, "b": "another row"}
    changes: list[Change] = [(Op.DELETE, other, None), (Op.UPDATE, ROW, {**ROW, "id": 5})]
    partly = [minimal(PLAIN, change) for change in changes]
    for more, target in (([], [other]), ([(Op.COPY, None, other)], [])):
        with pytest.raises(Halted, match="row with id = 7"):
            moved_within(batch_of(PLAIN, [*changes, *more], held=[*partly, *(None for _ in more)]), target)


OTHER = {**ROW, "a": 9, "b": "another row"}
AWAY: Change = (Op.UPDATE, ROW, {**ROW, "id": 3, "a": 1})


@pytest.mark.parametrize("is_waiting", [False, True])
@pytest.mark.parametrize("how", ["inserted", "moved", "ahead"])
@pytest.mark.parametrize("options", [{}, {"filtered": True}, {"seen_until": Lsn(0, 1, 999)}])
def test_a_row_takes_nothing_from_another_row_that_was_read_at_its_old_key(
    how: str, is_waiting: bool, options: dict[str, Any]
) -> None:
    """Row 7 had moved away before the copy read key 7. So the row that the copy found there is another one."""
    later: dict[str, list[Change]] = {
        "inserted": [(Op.INSERT, None, OTHER)],
        "moved": [(Op.INSERT, None, {**OTHER, "id": 8}), (Op.UPDATE, {**OTHER, "id": 8}, OTHER)],
        "ahead": [],
    }
    changes = [AWAY, *later[how]]
    with pytest.raises(Halted, match="got another key") as caught:
        beside_copy(changes, [OTHER], is_waiting=is_waiting, is_ahead=how == "ahead", is_unread=nothing, **options)
    assert_partial(caught.value, 100)
    assert f"run: pidts run TASK --resync {PLAIN.name}" in caught.value.todo
    assert "Stop changing keys and unique values" in caught.value.todo
    assert "binlog_row_image = FULL" in caught.value.todo


@pytest.mark.parametrize("is_waiting", [False, True])
def test_where_the_copy_brings_the_row_at_its_new_key_only_the_old_key_is_removed(is_waiting: bool) -> None:
    inserted: Change = (Op.INSERT, None, OTHER)
    moved: Change = (Op.UPDATE, ROW, {**ROW, "id": 9})
    upserts, _ = beside_copy([moved, inserted], [OTHER], is_waiting=is_waiting, is_unread=behind_5)
    assert upserts == [OTHER]
    with pytest.raises(Halted, match="row with id = 7"):
        beside_copy([moved], [OTHER], is_waiting=is_waiting, is_ahead=True, is_unread=behind_5)


def test_a_row_that_may_have_given_way_to_another_is_not_left_to_the_copy() -> None:
    """Row 7 was loaded with u = 2, and then removed because of another row with u = 2."""
    taken: Change = (Op.UPDATE, ROW, {**ROW, "u": 2})
    batch = with_whole_keys(batch_of(UNIQUE, [taken], held=[minimal(UNIQUE, taken)]))
    for is_ahead in (False, True):
        completion = ImageCompletion(batch, is_ahead=lambda _, is_ahead=is_ahead: is_ahead)
        images = completion.images(rows_of(UNIQUE, []))
        if is_ahead:
            with pytest.raises(Halted, match="another key or unique value"):
                completion.written(images, is_unread=behind_5)
        else:
            assert not len(completion.written(images, is_unread=behind_5))


def test_a_row_that_is_logged_whole_or_deleted_later_needs_nothing_of_the_other_row() -> None:
    inserted: Change = (Op.INSERT, None, OTHER)
    moved: Change = (Op.UPDATE, ROW, {"id": 3, "a": 1, "b": "y", "u": 2})
    assert beside_copy([moved, inserted], [OTHER], is_unread=nothing)[0] == [moved[2], OTHER]
    deleted: Change = (Op.DELETE, AWAY[2], None)
    upserts, deletes = beside_copy([AWAY, inserted, deleted], [OTHER], is_unread=nothing)
    assert (upserts, {"id": 3} in deletes) == ([OTHER], True)


def test_a_row_that_moves_from_a_key_that_nothing_else_takes_is_continued_beside_a_copy() -> None:
    assert beside_copy([AWAY], [ROW], is_unread=nothing)[0] == [AWAY[2]]


def test_a_row_that_may_be_another_one_at_its_new_key_is_not_continued_there() -> None:
    """Key 3 was read after the row that had moved to it was deleted, when another row had the key."""
    moved: Change = (Op.UPDATE, ROW, {**ROW, "id": 3})
    onward: Change = (Op.UPDATE, {**ROW, "id": 3}, {**ROW, "id": 9})
    again: Change = (Op.INSERT, None, {**OTHER, "id": 3})
    for changes, is_ahead in (([moved, onward, again], False), ([moved], True)):
        with pytest.raises(Halted, match="another key"):
            beside_copy(changes, [{**OTHER, "id": 3}], is_ahead=is_ahead, is_unread=nothing)


def beside_copy(
    changes: list[Change], read: list[Row], *, is_waiting: bool = False, is_ahead: bool = False, **why: Any
) -> tuple[list[Row], list[Row]]:
    """Returns the rows that changes with MINIMAL images write and remove. The rows in `read` are on the target or, with
    `is_waiting`, in the batch.
    """
    found = [minimal(PLAIN, change) for change in changes]
    copied: list[Change] = [(Op.COPY, None, row) for row in read] if is_waiting else []
    batch = with_whole_keys(batch_of(PLAIN, [*changes, *copied], held=[*found, *(None for _ in copied)]))
    completion = ImageCompletion(batch, read_early=True, is_ahead=lambda _: is_ahead)
    wanted = completion.keys.to_pylist()
    held = [] if is_waiting else [row for row in read if {"id": row["id"]} in wanted]
    (net,) = net_changes([completion.written(completion.images(rows_of(PLAIN, held)), **why)])
    return net.upserts.to_pylist(), net.deletes.to_pylist()


def test_a_row_that_is_at_its_old_key_is_continued_from_there():
    moved: Change = (Op.UPDATE, ROW, {**ROW, "id": 3})
    batch = batch_of(PLAIN, [moved], held=[minimal(PLAIN, moved)])
    assert moved_within(batch, [{**ROW, "b": "here"}])[0] == [{**ROW, "id": 3, "b": "here"}]


@pytest.mark.parametrize(
    ("copy", "unread_keys"),
    [
        (CopyState(), [1, 5, 10, 11]),
        (CopyState(after=(4,), upto=(10,)), [5, 10]),
        (CopyState(after=(4, 1), upto=(10, 1)), []),
        (CopyState(after=("4",), upto=("9",)), []),
        (CopyState(phase=Phase.EXTRAS), []),
        (CopyState(phase=Phase.FINISH), []),
    ],
)
def test_the_copy_shows_which_keys_it_is_still_to_read(copy: CopyState, unread_keys: list[int]) -> None:
    found = unread(copy, same_keys=True)
    assert found is not None
    assert [key for key in (1, 5, 10, 11) if found((key,))] == unread_keys
    mapped = unread(copy, same_keys=False)
    assert mapped is not None
    assert mapped((5,)) == (copy == CopyState())
    assert unread(None, same_keys=True) is None


@pytest.mark.parametrize(
    ("copy", "all_changes", "keys"),
    [
        (CopyState(), True, []),
        (CopyState(), False, [1, 5]),
        (CopyState(mode=CopyMode.ADD), True, [1, 5]),
        (CopyState(mode=CopyMode.OWN), True, [1, 5]),
        (CopyState(after=(4,), upto=(10,), reads=2, settled=1, ahead=True), True, [5]),
        (CopyState(after=(4,), upto=(10,), reads=2, settled=2, ahead=True), True, [1]),
        (CopyState(after=("4",), upto=("9",), reads=2, settled=1, ahead=True), True, [1, 5]),
        (CopyState(reads=1, ahead=True), True, [1, 5]),
    ],
)
def test_the_copy_shows_at_which_keys_the_target_may_be_ahead(
    copy: CopyState, all_changes: bool, keys: list[int]
) -> None:
    found = ahead(copy, same_keys=True, all_changes=all_changes)
    assert found is not None
    assert [key for key in (1, 5) if found((key,))] == keys
    assert ahead(None, same_keys=True, all_changes=True) is None


def test_a_row_that_a_later_change_of_a_range_seen_before_has_deleted_is_left_out():
    row = {"id": 1, "a": 7, "b": "x", "u": 1}
    changes: list[Change] = [(Op.UPDATE, row, {**row, "u": 2}), (Op.UPDATE, {**row, "u": 2}, {**row, "u": 2, "a": 1})]
    batch = batch_of(PLAIN, changes, held=[minimal(PLAIN, change) for change in changes])
    assert left_out(batch, seen_until=Lsn(0, 1, 101)) == []
    with pytest.raises(Halted, match="id = 1, ") as caught:
        left_out(batch, seen_until=Lsn(0, 1, 100))
    assert_missing(caught.value, 101)


@pytest.mark.parametrize("filtered", [False, True])
def test_a_missing_row_that_gets_another_key_may_have_been_deleted_by_a_change_of_the_former_row(
    *, filtered: bool
) -> None:
    """The target had row 2 already, and an earlier batch has repeated the DELETE of the former row 2."""
    row = {"id": 1, "a": 7, "b": "x", "u": 1}
    change: Change = (Op.UPDATE, row, {**row, "id": 2})
    with pytest.raises(Halted, match="id = 1, ") as caught:
        left_out(batch_of(PLAIN, [change], held=[minimal(PLAIN, change)]), filtered=filtered, seen_until=Lsn(0, 1, 100))
    assert_missing(caught.value, 100)


@pytest.mark.parametrize(("offset", "halts"), [(99, False), (100, True)])
def test_a_row_takes_nothing_from_another_row_that_the_target_got_later(offset: int, *, halts: bool) -> None:
    """The target already had the log up to the INSERT. So row 5 is the moved row, and row 1 is another one."""
    row = {"id": 1, "a": 7, "b": "x", "u": 1}
    changes: list[Change] = [
        (Op.UPDATE, row, {**row, "id": 5}),
        (Op.UPDATE, {**row, "id": 5}, {**row, "id": 5, "a": 8}),
        (Op.INSERT, None, {**row, "b": "other"}),
    ]
    held = [minimal(PLAIN, change) for change in changes]
    batch = batch_of(PLAIN, changes, held=held)
    there = rows_of(PLAIN, [{**row, "b": "other"}])
    completion = ImageCompletion(with_whole_keys(batch))
    images = completion.images(there)
    if halts:
        with pytest.raises(Halted, match="got the key id = 5") as caught:
            completion.written(images, seen_until=Lsn(0, 1, offset))
        assert_partial(caught.value, 101)
        assert completion.written(images, seen_until=Lsn(0, 1, offset), is_unread=nothing) == images
    else:
        assert completion.written(images, seen_until=Lsn(0, 1, offset)) == images
    removed = batch_of(PLAIN, [*changes, (Op.DELETE, {**row, "id": 5}, None)], held=[*held, (["id"], ())])
    completion = ImageCompletion(with_whole_keys(removed))
    assert len(completion.written(completion.images(there), seen_until=Lsn(0, 1, 999))) == 4


@pytest.mark.parametrize("filtered", [False, True])
@pytest.mark.parametrize(("watched", "column"), [(["u"], "u"), (["u"], "a"), ([], "u")])
def test_a_missing_row_that_gets_a_unique_value_may_have_been_removed_by_safe_mode(
    watched: list[str], column: str, *, filtered: bool
) -> None:
    row = {"id": 1, "a": 7, "b": "x", "u": 1}
    change: Change = (Op.UPDATE, row, {**row, column: 9})
    batch = batch_of(UNIQUE, [change], held=[minimal(UNIQUE, change)])
    if watched and column == "u":
        with pytest.raises(Halted, match="id = 1, ") as caught:
            left_out(batch, watched, filtered=filtered, seen_until=Lsn(0, 1, 999))
        assert_missing(caught.value, 100)
    else:
        assert left_out(batch, watched, filtered=filtered, seen_until=Lsn(0, 1, 999)) == []
    if filtered:
        assert left_out(batch, watched, filtered=True, seen_until=Lsn(0, 1, 99)) == []


def left_out(batch: ChangeBatch, needed: Collection[str] = (), **why: Any) -> list[int]:
    """Returns the operations that a batch makes on an empty target."""
    completion = ImageCompletion(with_whole_keys(batch), needed)
    found: list[int] = completion.written(completion.images(rows_of(batch.table, [])), **why).rows["op"].to_pylist()
    return found


def test_a_row_that_was_deleted_before_is_not_taken_from_the_target():
    row = {"id": 1, "a": 7, "b": "x", "u": 1}
    changes: list[Change] = [(Op.DELETE, row, None), (Op.UPDATE, row, {**row, "a": 8})]
    with pytest.raises(Halted, match="id = 1, ") as caught:
        completed(batch_of(PLAIN, changes, held=[minimal(PLAIN, change) for change in changes]), {1: row})
    assert_missing(caught.value, 101)


def test_an_insert_that_leaves_out_what_the_server_computed_halts():
    table = Table(PLAIN.name, (Column("id", INT, nullable=False), Column("b", TEXT, default="uuid()")), (PRIMARY,))
    batch = batch_of(table, [(Op.INSERT, None, {"id": 1, "b": "?"})], held=[((), ["id"])])
    with pytest.raises(Halted, match="whose default is not known") as caught:
        completed(batch, {})
    assert_partial(caught.value, 100)


def assert_partial(error: Halted, offset: int) -> None:
    assert (error.code, error.where.table, error.where.position) == (
        "partial-row-image",
        str(PLAIN.name),
        str(Lsn(0, 1, offset)),
    )


def test_a_generated_column_that_no_update_shows_is_never_guessed():
    columns = (*PLAIN.columns, Column("g", INT, generated=True))
    table = Table(PLAIN.name, columns, (PRIMARY,))
    row = {"id": 1, "a": 7, "b": "x", "u": 1, "g": 8}
    names = ["id", "a", "b", "u"]
    changes: list[Change] = [(Op.UPDATE, row, {**row, "a": 8, "g": 9}), (Op.DELETE, {**row, "a": 8, "g": 9}, None)]
    batch = batch_of(table, changes, held=[(names, names), (names, ())])
    with pytest.raises(Halted, match="generated column g") as caught:
        completed(batch, {1: row})
    assert_partial(caught.value, 100)
    computed = ImageCompletion(with_whole_keys(batch), computed={"g"})
    assert computed.keys.num_rows == 0
    assert computed.images(rows_of(table, [])).rows["after"].to_pylist() == [{**row, "a": 8, "g": None}, None]
    only_deleted = ImageCompletion(with_whole_keys(batch_of(table, changes[1:], held=[(names, ())])))
    assert only_deleted.keys.num_rows == 0
    assert len(only_deleted.images(rows_of(table, []))) == 1


def test_two_updates_of_a_row_without_key_remove_only_the_first_row_if_the_target_computes_a_column():
    """MINIMAL logs the generated column only before each update."""
    table = Table(PLAIN.name, (*PLAIN.columns, Column("g", INT, generated=True)))
    row = {"id": 1, "a": 7, "b": "x", "u": 1, "g": 8}
    second = {**row, "u": 2}
    changes: list[Change] = [(Op.UPDATE, row, second), (Op.UPDATE, second, {**second, "b": "y"})]
    batch = batch_of(table, changes, held=[(list(row), ["u"]), (list(row), ["b"])])
    removed, times, added = multiset_change(ImageCompletion(batch, computed={"g"}).images(rows_of(table, [])))
    assert (removed.to_pylist(), times.to_pylist()) == ([{**row, "g": None}], [1])
    assert added.to_pylist() == [{**second, "b": "y", "g": None}]


def test_an_update_that_moves_its_row_to_another_worker_halts_unless_its_new_image_is_whole():
    row = {"id": 1, "a": 7, "b": "x", "u": 1}
    changes: list[Change] = [(Op.UPDATE, {**row, "id": key}, {**row, "id": key + 100}) for key in range(20)]

    def dealt(table: Table, after: list[str]) -> list[ChangeBatch | None]:
        return buckets(with_whole_keys(batch_of(table, changes, held=[(["id"], after)] * 20)), 2)

    completions = [ImageCompletion(part) for part in dealt(PLAIN, ["id"]) if part is not None]
    rows = rows_of(PLAIN, [old for _, old, _ in changes if old is not None])
    images = [completion.images(rows) for completion in completions]
    for completion, part in zip(completions, images, strict=True):
        for why in ({}, {"seen_until": Lsn(0, 1, 999)}):
            with pytest.raises(Halted, match="two workers") as caught:
                completion.written(part, **why)
            assert "worker-count: 1" in caught.value.todo
            assert caught.value.code == "partial-row-image"
        new = [
            row for row in completion.written(part, is_unread=nothing, can_record=True).rows["after"].to_pylist() if row
        ]
        keys = completion.unread_keys()[1].to_pylist()
        assert len(keys) > 0
        assert {row["id"] for row in new}.isdisjoint(row["id"] for row in keys)
    dealt(UNIQUE, ["id"])  # Rows may swap unique values, so one worker has the whole table.
    parts = dealt(PLAIN, ["id", "a", "b", "u"])
    halves = [ImageCompletion(part).images(rows_of(PLAIN, [])) for part in parts if part is not None]
    assert sorted(new["id"] for half in halves for new in half.rows["after"].to_pylist() if new) == list(
        range(100, 120)
    )
