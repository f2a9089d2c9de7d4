"""Changes told in part become what they are told in full, and the target is read for no more than that takes."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pidts.apply.complete import Completion, keyed
from pidts.model import ChangeBatch, Column, Halted, Key, Lsn, Op, Table
from pidts.reduce import buckets, net_changes

from .made import INT, PLAIN, PRIMARY, TEXT, UNIQUE, Change, Row, batch_of, minimal, noblob, rows_of

SEEDS = st.integers(0, 10**9)


def history(table: Table, chance: random.Random, start: dict[int, Row], length: int) -> list[Change]:
    """Changes that a source could have made, of which `start` becomes the end."""
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
    completion = Completion(keyed(batch))
    wanted = [key["id"] for key in completion.keys.to_pylist()]
    assert len(wanted) == len(set(wanted))
    return completion.written(completion.images(rows_of(batch.table, [rows[key] for key in wanted if key in rows])))


@settings(max_examples=120, deadline=None)
@given(SEEDS, st.sampled_from([PLAIN, UNIQUE]), st.sampled_from(["minimal", "noblob", "mixed"]))
def test_a_history_told_in_part_is_the_one_told_in_full(seed, table, image):
    chance = random.Random(seed)
    rows: dict[int, Row] = {}
    history(table, chance, rows, 8)
    before = {key: dict(row) for key, row in rows.items()}
    changes = history(table, chance, rows, chance.randrange(1, 20))
    kinds = {"minimal": [minimal], "noblob": [noblob], "mixed": [minimal, noblob, None]}[image]
    held = [kind(table, change) if (kind := chance.choice(kinds)) else None for change in changes]
    whole = net_changes([batch_of(table, changes)])
    told = net_changes([completed(batch_of(table, changes, held=held), before)])
    for a, b in zip(whole, told, strict=True):
        assert a.upserts.to_pylist() == b.upserts.to_pylist()
        assert a.deletes.to_pylist() == b.deletes.to_pylist()
        assert a.counts == b.counts


def test_nothing_is_read_for_what_the_batch_itself_tells():
    row = {"id": 1, "a": 7, "b": "x", "u": 1}
    changes: list[Change] = [(Op.INSERT, None, row), (Op.UPDATE, row, {**row, "b": "y"})]
    completion = Completion(keyed(batch_of(PLAIN, changes, held=[minimal(PLAIN, change) for change in changes])))
    assert completion.keys.num_rows == 0
    images = completion.images(rows_of(PLAIN, []))
    assert not images.is_partial
    assert images.rows["after"].to_pylist() == [row, {**row, "b": "y"}]


def test_a_before_image_without_a_column_that_no_key_needs_reads_nothing():
    row = {"id": 1, "a": 7, "b": "x", "u": 1}
    change: Change = (Op.UPDATE, row, {**row, "a": 8})
    without_b = [(["id", "a", "u"], ["id", "a", "b", "u"])]
    completion = Completion(keyed(batch_of(UNIQUE, [change], held=without_b)))
    assert completion.keys.num_rows == 0
    assert completion.images(rows_of(UNIQUE, [])).rows["after"].to_pylist() == [{**row, "a": 8}]
    in_unique_key = Table(PLAIN.name, PLAIN.columns, (PRIMARY, Key("by_b", ("b",), unique=True)))
    assert Completion(keyed(batch_of(in_unique_key, [change], held=without_b))).keys.to_pylist() == [{"id": 1}]


def test_a_copied_row_comes_before_all_that_the_log_says_of_it():
    row = {"id": 1, "a": 7, "b": "x", "u": 1}
    changes: list[Change] = [(Op.UPDATE, row, {**row, "a": 8}), (Op.COPY, None, {**row, "b": "copied"})]
    completion = Completion(keyed(batch_of(PLAIN, changes, held=[minimal(PLAIN, changes[0]), None])))
    assert completion.keys.num_rows == 0
    (net,) = net_changes([completion.written(completion.images(rows_of(PLAIN, [])))])
    assert net.upserts.to_pylist() == [{**row, "a": 8, "b": "copied"}]


def test_a_row_that_is_nowhere_halts_with_its_key():
    row = {"id": 1, "a": 7, "b": "x", "u": 1}
    change: Change = (Op.UPDATE, row, {**row, "a": 8})
    with pytest.raises(Halted, match="id = 1") as caught:
        completed(batch_of(PLAIN, [change], held=[minimal(PLAIN, change)]), {})
    assert caught.value.code == "row-missing"


def test_a_row_that_the_copy_has_not_reached_is_left_to_it():
    row = {"id": 1, "a": 7, "b": "x", "u": 1}
    update: Change = (Op.UPDATE, row, {**row, "a": 8})
    other: Change = (Op.INSERT, None, {**row, "id": 2})
    changes: list[Change] = [update, other, update, (Op.DELETE, row, None)]
    batch = batch_of(PLAIN, changes, held=[minimal(PLAIN, change) for change in changes])
    assert left_out(batch, copying=True) == [Op.INSERT, Op.DELETE]
    moved: Change = (Op.UPDATE, row, {**row, "id": 9})
    batch = batch_of(PLAIN, [moved], held=[minimal(PLAIN, moved)])
    with pytest.raises(Halted):
        left_out(batch, copying=True)


def test_a_row_that_a_later_change_of_a_range_seen_before_has_deleted_is_left_out():
    row = {"id": 1, "a": 7, "b": "x", "u": 1}
    changes: list[Change] = [
        (Op.UPDATE, row, {**row, "id": 2}),
        (Op.UPDATE, {**row, "id": 2}, {**row, "id": 2, "a": 1}),
    ]
    batch = batch_of(PLAIN, changes, held=[minimal(PLAIN, change) for change in changes])
    assert left_out(batch, seen_until=Lsn(0, 1, 101)) == []
    with pytest.raises(Halted, match="id = 2"):
        left_out(batch, seen_until=Lsn(0, 1, 100))


def left_out(batch: ChangeBatch, **why: Any) -> list[int]:
    """The changes of a batch that are written over an empty target."""
    completion = Completion(keyed(batch))
    found: list[int] = completion.written(completion.images(rows_of(batch.table, [])), **why).rows["op"].to_pylist()
    return found


def test_a_row_that_was_deleted_before_is_not_taken_from_the_target():
    row = {"id": 1, "a": 7, "b": "x", "u": 1}
    changes: list[Change] = [(Op.DELETE, row, None), (Op.UPDATE, row, {**row, "a": 8})]
    with pytest.raises(Halted):
        completed(batch_of(PLAIN, changes, held=[minimal(PLAIN, change) for change in changes]), {1: row})


def test_an_insert_that_leaves_out_what_the_server_computed_halts():
    table = Table(PLAIN.name, (Column("id", INT, nullable=False), Column("b", TEXT, default="uuid()")), (PRIMARY,))
    batch = batch_of(table, [(Op.INSERT, None, {"id": 1, "b": "?"})], held=[((), ["id"])])
    with pytest.raises(Halted) as caught:
        completed(batch, {})
    assert caught.value.code == "partial-row-image"


def test_a_generated_column_that_no_update_tells_is_never_guessed():
    columns = (*PLAIN.columns, Column("g", INT, generated=True))
    table = Table(PLAIN.name, columns, (PRIMARY,))
    row = {"id": 1, "a": 7, "b": "x", "u": 1, "g": 8}
    names = ["id", "a", "b", "u"]
    changes: list[Change] = [(Op.UPDATE, row, {**row, "a": 8, "g": 9}), (Op.DELETE, {**row, "a": 8, "g": 9}, None)]
    batch = batch_of(table, changes, held=[(names, names), (names, ())])
    with pytest.raises(Halted, match="generated column g"):
        completed(batch, {1: row})
    computed = Completion(keyed(batch), computed={"g"})
    assert computed.keys.num_rows == 0
    assert computed.images(rows_of(table, [])).rows["after"].to_pylist() == [{**row, "a": 8, "g": None}, None]
    only_deleted = Completion(keyed(batch_of(table, changes[1:], held=[(names, ())])))
    assert only_deleted.keys.num_rows == 0
    assert len(only_deleted.images(rows_of(table, []))) == 1


def test_an_update_that_moves_its_row_to_another_worker_halts_unless_its_new_image_is_whole():
    row = {"id": 1, "a": 7, "b": "x", "u": 1}
    changes: list[Change] = [(Op.UPDATE, {**row, "id": key}, {**row, "id": key + 100}) for key in range(20)]

    def dealt(table: Table, after: list[str]) -> list[ChangeBatch | None]:
        return buckets(keyed(batch_of(table, changes, held=[(["id"], after)] * 20)), 2)

    with pytest.raises(Halted, match="two workers") as caught:
        dealt(PLAIN, ["id"])
    assert "worker-count: 1" in caught.value.todo
    dealt(UNIQUE, ["id"])  # unique values may be traded, so one worker has the whole table
    parts = dealt(PLAIN, ["id", "a", "b", "u"])
    halves = [Completion(part).images(rows_of(PLAIN, [])) for part in parts if part is not None]
    assert sorted(new["id"] for half in halves for new in half.rows["after"].to_pylist() if new) == list(
        range(100, 120)
    )
