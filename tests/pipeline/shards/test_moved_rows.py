"""A row moves from one shard of a source to another while one of them waits: the row is never lost and never doubled.

While a shard waits, the target may have a moved row as either shard has it. So the target is checked when all shards
have arrived: it has the rows of the shards, and no records about moved rows.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
from tests.examples import EXAMPLES

from pidts.batch import applying
from pidts.model import CommandKind, Op, TableName
from pidts.plan import Limits

from .shard_servers import Shard
from .shard_source import fill
from .step_by_step import C, D, MakeStory, Story, T, stories
from .task_in_memory import TaskInMemory

THREE = {"one": ("shard_1.t_1", "shard_1.t_2", "shard_1.t_3", "alone.x")}
FIRST, SECOND, THIRD = ("one: shard_1.t_1", "one: shard_1.t_2", "one: shard_1.t_3")
KEY = 7


@pytest.fixture(params=[1, 2, 3] if EXAMPLES else [1, 3])
def story(request: pytest.FixtureRequest) -> Iterator[MakeStory]:
    """Begins histories in which a shard needs several batches to catch up."""
    with stories(workers=request.param, limits=Limits(transactions=2, idle_entries=1)) as make_story:
        yield make_story


def begun(
    make_story: MakeStory,
    *waiting: str,
    plan: tuple[str, ...] = (C,),
    renames: Any = None,
    finishes: bool = True,
    **settings: Any,
) -> Story:
    """Returns a history in which the first shard has the row of key 7, and the shards in `waiting` (otherwise the first
    shard) wait.
    """
    task = make_story(THREE, **settings)
    task.looks = False
    task["one: shard_1.t_1"].source.commit((TableName("shard_1", "t_1"), [(Op.INSERT, None, row(task[FIRST]))]))
    task.plan(*plan)
    if renames:
        task.shards.groups["t"].say("ALTER TABLE {t} CHANGE COLUMN v w INT", renames)
    task.finish()
    for name in waiting or (FIRST,):
        task[name].alter()
    if finishes:
        task.finish()
        assert task.waiting() == sorted(waiting or (FIRST,))
    return task


def row(shard: Shard, key: int = KEY, **values: int) -> dict[str, Any]:
    made = {column.name: fill(column) for column in shard.table.columns}
    return {**made, "id": key, "v": 1, "u": None, **values}


def moved(one: Shard, other: Shard, key: int = KEY, to: int | None = None, *, first: str = "insert") -> list[Any]:
    """Returns the two steps of a move, in either order."""
    (old,) = (old for old in one.rows if old["id"] == key)
    new = {c.name: old.get(c.name, fill(c)) for c in other.table.columns} | {"id": key if to is None else to, "u": None}
    steps = [(other.name, [(Op.INSERT, None, new)]), (one.name, [(Op.DELETE, old, None)])]
    return steps if first == "insert" else steps[::-1]


def move(task: Story, one: str, other: str, *, first: str = "insert", apart: bool = False, **where: int) -> None:
    steps = moved(task[one], task[other], first=first, **where)
    for transaction in [[step] for step in steps] if apart else [steps]:
        task[one].source.commit(*transaction)


def updated(task: Story, name: str, key: int = KEY, **values: int) -> None:
    shard = task[name]
    (old,) = (old for old in shard.rows if old["id"] == key)
    shard.source.commit((shard.name, [(Op.UPDATE, old, {**old, **values})]))


def ends(task: Story) -> None:
    """Lets all shards make the changes that the others have made, and checks the target."""
    task.crash_after(None)
    task.shards.level()
    task.finish()
    assert task.waiting() == []
    check(task)


def check(task: TaskInMemory) -> None:
    task.check_places()
    assert task.target.store.moves == {}, "what nobody needs is forgotten"


@pytest.mark.parametrize("first", ["insert", "delete"])
@pytest.mark.parametrize("apart", [False, True])
def test_a_row_moves_from_a_waiting_shard(story: MakeStory, first: str, *, apart: bool) -> None:
    """The waiting shard's DELETE is applied long after the other shard has inserted the row."""
    task = begun(story)
    move(task, FIRST, SECOND, first=first, apart=apart)
    task.finish()
    assert [one["id"] for one in task.content(T) if one["id"] == KEY], "as the second one's"
    assert {key[3:] for key in task.target.store.moves} == {("7|", TableName("shard_1", "t_2"))}
    task.write(times=3)
    ends(task)


def test_a_row_moves_in_the_batch_in_which_its_shard_begins_to_wait(story: MakeStory) -> None:
    """No shard of the table waited before this batch."""
    task = begun(story, finishes=False)
    move(task, FIRST, SECOND)
    task.finish()
    assert task.target.store.moves
    ends(task)


def test_a_row_moves_to_a_shard_that_begins_to_wait_within_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """The waiting shard's INSERT is written before the other shard's DELETE, although the DELETE is earlier."""
    monkeypatch.setattr(applying, "_ORDINARY_BYTES", 1)
    with stories(limits=Limits(transactions=9, idle_entries=1)) as make_story:
        task = begun(make_story, FIRST, plan=("ALTER TABLE {t} ADD INDEX kk (v)",))
        two, three = task[SECOND], task[THIRD]
        two.source.commit((two.name, [(Op.INSERT, None, row(two, 8))]))
        task.finish()
        move(task, SECOND, THIRD, key=8, first="delete")
        task.shards.drop(task[FIRST], three)
        task.write(SECOND)
        task.finish()
        assert task.waiting() == [FIRST, THIRD]
        assert 8 in {one["id"] for one in task.content(T)}
        task.command(FIRST, CommandKind.SKIP)
        task.finish()
        assert task.waiting() == []
        assert 8 in {one["id"] for one in task.content(T)}
        assert task.target.store.moves == {}


@pytest.mark.parametrize("first", ["insert", "delete"])
def test_a_row_moves_to_a_waiting_shard(story: MakeStory, first: str) -> None:
    task = begun(story, SECOND)
    move(task, FIRST, SECOND, first=first)
    task.finish()
    task.write(times=3)
    ends(task)


def test_an_update_before_the_move_is_older(story: MakeStory) -> None:
    """The update is applied in a later batch than the row that it must not overwrite."""
    task = begun(story)
    updated(task, FIRST, v=20)
    task.write(FIRST, times=4)
    move(task, FIRST, SECOND)
    updated(task, SECOND, v=30)
    task.finish()
    task.write(FIRST, times=4)
    ends(task)


def test_a_row_is_changed_in_the_transaction_that_moves_it(story: MakeStory) -> None:
    """The later change belongs to the row that moves away, and has no effect."""
    task = begun(story)
    a, b = task[FIRST], task[SECOND]
    insert, delete = moved(a, b)
    (_, [(_, old, _)]) = delete
    a.source.commit(insert, (a.name, [(Op.UPDATE, old, {**old, "v": 99}), (Op.DELETE, {**old, "v": 99}, None)]))
    task.finish()
    ends(task)


@pytest.mark.parametrize("waiting", [(FIRST,), (SECOND,), (FIRST, SECOND)])
@pytest.mark.parametrize("times", [2, 3])
def test_a_row_moves_to_another_shard_and_back(story: MakeStory, waiting: tuple[str, ...], times: int) -> None:
    task = begun(story, *waiting)
    for one, other in itertools.islice(itertools.cycle([(FIRST, SECOND), (SECOND, FIRST)]), times):
        move(task, one, other)
        updated(task, other, v=task.chance.randrange(1000))
        task.write(FIRST)
        task.go(task.chance.randrange(20))
    task.finish()
    ends(task)


@pytest.mark.parametrize("waiting", [(FIRST,), (FIRST, SECOND), (FIRST, THIRD), (THIRD,)])
def test_over_three_shards_and_gone_in_the_end(story: MakeStory, waiting: tuple[str, ...]) -> None:
    task = begun(story, *waiting)
    move(task, FIRST, SECOND)
    task.go(9)
    move(task, SECOND, THIRD)
    task.finish()
    third = task[THIRD]
    (old,) = (old for old in third.rows if old["id"] == KEY)
    third.source.commit((third.name, [(Op.DELETE, old, None)]))
    task.write(FIRST, times=3)
    ends(task)
    assert KEY not in {one["id"] for one in task.content(T)}


def test_a_row_moves_and_gets_another_key(story: MakeStory) -> None:
    """One half of an update that gives a row another key may be set aside, while the other half is not."""
    task = begun(story)
    a, b = task[FIRST], task[SECOND]
    move(task, FIRST, SECOND, to=8)
    a.source.commit((a.name, [(Op.INSERT, None, row(a, 7)), (Op.INSERT, None, row(a, 9, v=5))]))
    (seven,) = (old for old in a.rows if old["id"] == 7)
    # In the first table, key 7 becomes 6, and the second table gets key 7. Key 9 becomes 5, which the second table had
    # for a while.
    a.source.commit((a.name, [(Op.UPDATE, seven, {**seven, "id": 6})]))
    b.source.commit((b.name, [(Op.INSERT, None, row(b, 7, v=70)), (Op.INSERT, None, row(b, 5, v=50))]))
    b.source.commit((b.name, [(Op.DELETE, row(b, 5, v=50), None)]))
    (nine,) = (old for old in a.rows if old["id"] == 9)
    a.source.commit((a.name, [(Op.UPDATE, nine, {**nine, "id": 5})]))
    # In the second table, key 8 becomes 4, and the row with key 4 moves to the third table.
    (eight,) = (old for old in b.rows if old["id"] == 8)
    b.source.commit((b.name, [(Op.UPDATE, eight, {**eight, "id": 4})]))
    move(task, SECOND, THIRD, key=4)
    task.finish()
    task.write(times=2)
    ends(task)
    assert {4, 5, 6, 7} <= {one["id"] for one in task.content(T)}


def test_a_row_moves_to_a_key_that_another_shard_gets_later(story: MakeStory) -> None:
    """The half of the update for the new key is set aside: another row has this key by then. Only a DELETE remains."""
    task = begun(story)
    a, b = task[FIRST], task[SECOND]
    (seven,) = (old for old in a.rows if old["id"] == 7)
    a.source.commit((a.name, [(Op.UPDATE, seven, {**seven, "id": 6})]))
    task.write(FIRST, times=4)
    move(task, FIRST, SECOND, key=6)
    b.source.commit((b.name, [(Op.UPDATE, {**b.rows[-1]}, {**b.rows[-1], "v": 66})]))
    task.finish()
    assert {6, 7} <= {one["id"] for one in task.content(T)}
    ends(task)


def test_a_shard_that_leaves_with_what_it_has_got(story: MakeStory) -> None:
    """No event removes the rows of the shard that leaves, so they stay. The waiting shard is then the only one left."""
    task = story({"one": ("shard_1.t_1", "shard_1.t_2", "alone.x"), "two": ("shard_1.t_1",)})
    task.looks = False
    a, b = task[FIRST], task[SECOND]
    a.source.commit((a.name, [(Op.INSERT, None, row(a))]))
    task.plan(C)
    task[FIRST].alter()
    task.finish()
    move(task, FIRST, SECOND)
    task.finish()
    task.shards.drop(b)
    task.finish()
    assert task.waiting() == [FIRST]
    ends(task)
    assert KEY in {one["id"] for one in task.content(T)}


@pytest.mark.parametrize("text", ["RENAME TABLE {t} TO {new}", "ALTER TABLE {t} RENAME TO {new}"])
def test_the_shard_that_has_got_the_row_is_renamed(story: MakeStory, text: str) -> None:
    """No shard has the old name any more, so no shard would ever delete the row."""
    task = begun(story)
    b = task[SECOND]
    move(task, FIRST, SECOND)
    task.finish()
    task.shards.rename(b, TableName("shard_1", "t_9"), text)
    task.finish()
    assert {key[4] for key in task.target.store.moves} == {TableName("shard_1", "t_9")}
    move(task, "one: shard_1.t_9", FIRST)
    task.finish()
    (old,) = (old for old in task[FIRST].rows if old["id"] == KEY)
    task[FIRST].source.commit((task[FIRST].name, [(Op.DELETE, old, None)]))
    ends(task)
    assert KEY not in {one["id"] for one in task.content(T)}


def test_optimistic(story: MakeStory) -> None:
    """In optimistic mode, too, a change that leads to no common structure waits."""
    task = begun(story, plan=(), mode="optimistic", renames={"w": "v"})
    move(task, FIRST, SECOND)
    task.finish()
    ends(task)


def test_a_row_moves_to_a_shard_that_continues_alone(story: MakeStory) -> None:
    """An operator has given a ddl command for the change, so the other shards do not wait."""
    task = begun(story, plan=("ALTER TABLE {t} ADD INDEX kk (v)",))
    move(task, FIRST, SECOND)
    task.finish()
    task.command(FIRST, CommandKind.SKIP)
    task.finish()
    assert task.waiting() == []
    assert KEY in {one["id"] for one in task.content(T)}
    assert task.target.store.moves == {}


def test_a_row_moves_in_two_waits(story: MakeStory) -> None:
    """Records made during one wait do not count in the next one: by then, the first shard has the row again."""
    task = begun(story, plan=(C, D))
    move(task, FIRST, SECOND)
    task.alter(SECOND, THIRD)
    task.finish()
    assert task.target.store.moves == {}
    move(task, SECOND, FIRST)
    task.finish()
    task[FIRST].alter()
    task.finish()
    (old,) = (old for old in task[FIRST].rows if old["id"] == KEY)
    task[FIRST].source.commit((task[FIRST].name, [(Op.DELETE, old, None)]))
    ends(task)
    assert KEY not in {one["id"] for one in task.content(T)}


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_the_process_dies_anywhere(workers: int) -> None:
    """The process also dies between the last commit and the removal of the records, and between the commits of two
    workers.
    """
    step = 1 if EXAMPLES else 13
    for crash in itertools.count(workers, step):
        with stories(workers=workers, limits=Limits(transactions=2, idle_entries=1)) as make_story:
            task = begun(make_story, FIRST, seed=crash, transactional_ddl=crash % 2 == 0)
            task.crash_after(crash)
            move(task, FIRST, SECOND)
            task.write(FIRST, SECOND)
            move(task, SECOND, THIRD, first="delete")
            task.finish()
            task.shards.level()
            task.write(times=2)
            task.finish()
            came = task.deaths == 0
            ends(task)
        if came:
            break
    assert crash > 40, "there were some points"


@pytest.mark.parametrize("point", range(0, 30, 1 if EXAMPLES else 6))
def test_a_crash_between_two_workers_leaves_nothing_that_would_keep_a_row_later(point: int) -> None:
    """After a crash, a batch brings both workers to the same place. The records of this batch must not stay: they would
    set a DELETE aside.
    """
    keys = range(10, 18)
    with stories(workers=2, limits=Limits(transactions=9, idle_entries=1)) as make_story:
        task = make_story(THREE)
        task.looks = False
        task.finish()
        one, two = task[FIRST], task[SECOND]
        task.crash_after(point)
        two.source.commit((two.name, [(Op.INSERT, None, row(two, key)) for key in keys]))
        task.finish()
        task.crash_after(None)
        assert not task.target.store.moves
        for key in keys:
            move(task, SECOND, FIRST, key=key, first="delete")
        task.finish()
        task.plan(C)
        one.alter()
        task.finish()
        assert task.waiting() == [FIRST]
        for key in keys:
            (old,) = (old for old in one.rows if old["id"] == key)
            one.source.commit((one.name, [(Op.DELETE, old, None)]))
        task.finish()
        task.shards.level()
        task.finish()
        assert task.waiting() == []
        assert not {old["id"] for old in task.content(T)} & set(keys)
