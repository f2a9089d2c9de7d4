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
from pidts.model import Op, OrderKind, TableName
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
    world = make_story(THREE, **settings)
    world.looks = False
    world["one: shard_1.t_1"].source.commit((TableName("shard_1", "t_1"), [(Op.INSERT, None, row(world[FIRST]))]))
    world.plan(*plan)
    if renames:
        world.shards.groups["t"].say("ALTER TABLE {t} CHANGE COLUMN v w INT", renames)
    world.finish()
    for name in waiting or (FIRST,):
        world[name].alter()
    if finishes:
        world.finish()
        assert world.waiting() == sorted(waiting or (FIRST,))
    return world


def row(shard: Shard, key: int = KEY, **values: int) -> dict[str, Any]:
    made = {column.name: fill(column) for column in shard.table.columns}
    return {**made, "id": key, "v": 1, "u": None, **values}


def moved(one: Shard, other: Shard, key: int = KEY, to: int | None = None, *, first: str = "insert") -> list[Any]:
    """Returns the two steps of a move, in either order."""
    (old,) = (old for old in one.rows if old["id"] == key)
    new = {c.name: old.get(c.name, fill(c)) for c in other.table.columns} | {"id": key if to is None else to, "u": None}
    steps = [(other.name, [(Op.INSERT, None, new)]), (one.name, [(Op.DELETE, old, None)])]
    return steps if first == "insert" else steps[::-1]


def move(world: Story, one: str, other: str, *, first: str = "insert", apart: bool = False, **where: int) -> None:
    steps = moved(world[one], world[other], first=first, **where)
    for transaction in [[step] for step in steps] if apart else [steps]:
        world[one].source.commit(*transaction)


def updated(world: Story, name: str, key: int = KEY, **values: int) -> None:
    shard = world[name]
    (old,) = (old for old in shard.rows if old["id"] == key)
    shard.source.commit((shard.name, [(Op.UPDATE, old, {**old, **values})]))


def ends(world: Story) -> None:
    """Lets all shards make the changes that the others have made, and checks the target."""
    world.crash_after(None)
    world.shards.level()
    world.finish()
    assert world.waiting() == []
    check(world)


def check(world: TaskInMemory) -> None:
    world.check_places()
    assert world.target.store.moves == {}, "what nobody needs is forgotten"


@pytest.mark.parametrize("first", ["insert", "delete"])
@pytest.mark.parametrize("apart", [False, True])
def test_a_row_moves_from_a_waiting_shard(story: MakeStory, first: str, *, apart: bool) -> None:
    """The waiting shard's DELETE is applied long after the other shard has inserted the row."""
    world = begun(story)
    move(world, FIRST, SECOND, first=first, apart=apart)
    world.finish()
    assert [one["id"] for one in world.content(T) if one["id"] == KEY], "as the second one's"
    assert {key[3:] for key in world.target.store.moves} == {("7|", TableName("shard_1", "t_2"))}
    world.write(times=3)
    ends(world)


def test_a_row_moves_in_the_batch_in_which_its_shard_begins_to_wait(story: MakeStory) -> None:
    """No shard of the table waited before this batch."""
    world = begun(story, finishes=False)
    move(world, FIRST, SECOND)
    world.finish()
    assert world.target.store.moves
    ends(world)


def test_a_row_moves_to_a_shard_that_begins_to_wait_within_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """The waiting shard's INSERT is written before the other shard's DELETE, although it is later in the log."""
    monkeypatch.setattr(applying, "_ORDINARY_BYTES", 1)
    with stories(limits=Limits(transactions=9, idle_entries=1)) as make_story:
        world = begun(make_story, FIRST, plan=("ALTER TABLE {t} ADD INDEX kk (v)",))
        two, three = world[SECOND], world[THIRD]
        two.source.commit((two.name, [(Op.INSERT, None, row(two, 8))]))
        world.finish()
        move(world, SECOND, THIRD, key=8, first="delete")
        world.shards.drop(world[FIRST], three)
        world.write(SECOND)
        world.finish()
        assert world.waiting() == [FIRST, THIRD]
        assert 8 in {one["id"] for one in world.content(T)}
        world.order(FIRST, OrderKind.SKIP)
        world.finish()
        assert world.waiting() == []
        assert 8 in {one["id"] for one in world.content(T)}
        assert world.target.store.moves == {}


@pytest.mark.parametrize("first", ["insert", "delete"])
def test_a_row_moves_to_a_waiting_shard(story: MakeStory, first: str) -> None:
    world = begun(story, SECOND)
    move(world, FIRST, SECOND, first=first)
    world.finish()
    world.write(times=3)
    ends(world)


def test_an_update_before_the_move_is_older(story: MakeStory) -> None:
    """The update is applied in a later batch than the row that it must not overwrite."""
    world = begun(story)
    updated(world, FIRST, v=20)
    world.write(FIRST, times=4)
    move(world, FIRST, SECOND)
    updated(world, SECOND, v=30)
    world.finish()
    world.write(FIRST, times=4)
    ends(world)


def test_a_row_is_changed_in_the_transaction_that_moves_it(story: MakeStory) -> None:
    """The later change belongs to the row that moves away, and has no effect."""
    world = begun(story)
    a, b = world[FIRST], world[SECOND]
    insert, delete = moved(a, b)
    (_, [(_, old, _)]) = delete
    a.source.commit(insert, (a.name, [(Op.UPDATE, old, {**old, "v": 99}), (Op.DELETE, {**old, "v": 99}, None)]))
    world.finish()
    ends(world)


@pytest.mark.parametrize("waiting", [(FIRST,), (SECOND,), (FIRST, SECOND)])
@pytest.mark.parametrize("times", [2, 3])
def test_a_row_moves_to_another_shard_and_back(story: MakeStory, waiting: tuple[str, ...], times: int) -> None:
    world = begun(story, *waiting)
    for one, other in itertools.islice(itertools.cycle([(FIRST, SECOND), (SECOND, FIRST)]), times):
        move(world, one, other)
        updated(world, other, v=world.chance.randrange(1000))
        world.write(FIRST)
        world.go(world.chance.randrange(20))
    world.finish()
    ends(world)


@pytest.mark.parametrize("waiting", [(FIRST,), (FIRST, SECOND), (FIRST, THIRD), (THIRD,)])
def test_over_three_shards_and_gone_in_the_end(story: MakeStory, waiting: tuple[str, ...]) -> None:
    world = begun(story, *waiting)
    move(world, FIRST, SECOND)
    world.go(9)
    move(world, SECOND, THIRD)
    world.finish()
    third = world[THIRD]
    (old,) = (old for old in third.rows if old["id"] == KEY)
    third.source.commit((third.name, [(Op.DELETE, old, None)]))
    world.write(FIRST, times=3)
    ends(world)
    assert KEY not in {one["id"] for one in world.content(T)}


def test_a_row_moves_and_gets_another_key(story: MakeStory) -> None:
    """One half of an update that gives a row another key may be set aside, while the other half is not."""
    world = begun(story)
    a, b = world[FIRST], world[SECOND]
    move(world, FIRST, SECOND, to=8)
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
    move(world, SECOND, THIRD, key=4)
    world.finish()
    world.write(times=2)
    ends(world)
    assert {4, 5, 6, 7} <= {one["id"] for one in world.content(T)}


def test_a_row_moves_to_a_key_that_another_shard_gets_later(story: MakeStory) -> None:
    """The half of the update for the new key is set aside: another row has this key by then. Only a DELETE remains."""
    world = begun(story)
    a, b = world[FIRST], world[SECOND]
    (seven,) = (old for old in a.rows if old["id"] == 7)
    a.source.commit((a.name, [(Op.UPDATE, seven, {**seven, "id": 6})]))
    world.write(FIRST, times=4)
    move(world, FIRST, SECOND, key=6)
    b.source.commit((b.name, [(Op.UPDATE, {**b.rows[-1]}, {**b.rows[-1], "v": 66})]))
    world.finish()
    assert {6, 7} <= {one["id"] for one in world.content(T)}
    ends(world)


def test_a_shard_that_leaves_with_what_it_has_got(story: MakeStory) -> None:
    """No event removes the rows of the shard that leaves, so they stay. Then the waiting shard is the only shard."""
    world = story({"one": ("shard_1.t_1", "shard_1.t_2", "alone.x"), "two": ("shard_1.t_1",)})
    world.looks = False
    a, b = world[FIRST], world[SECOND]
    a.source.commit((a.name, [(Op.INSERT, None, row(a))]))
    world.plan(C)
    world[FIRST].alter()
    world.finish()
    move(world, FIRST, SECOND)
    world.finish()
    world.shards.drop(b)
    world.finish()
    assert world.waiting() == [FIRST]
    ends(world)
    assert KEY in {one["id"] for one in world.content(T)}


@pytest.mark.parametrize("text", ["RENAME TABLE {t} TO {new}", "ALTER TABLE {t} RENAME TO {new}"])
def test_the_shard_that_has_got_the_row_is_renamed(story: MakeStory, text: str) -> None:
    """No shard has the old name any more, so no shard would ever delete the row."""
    world = begun(story)
    b = world[SECOND]
    move(world, FIRST, SECOND)
    world.finish()
    world.shards.rename(b, TableName("shard_1", "t_9"), text)
    world.finish()
    assert {key[4] for key in world.target.store.moves} == {TableName("shard_1", "t_9")}
    move(world, "one: shard_1.t_9", FIRST)
    world.finish()
    (old,) = (old for old in world[FIRST].rows if old["id"] == KEY)
    world[FIRST].source.commit((world[FIRST].name, [(Op.DELETE, old, None)]))
    ends(world)
    assert KEY not in {one["id"] for one in world.content(T)}


def test_optimistic(story: MakeStory) -> None:
    """In optimistic mode, too, a change that leads to no common structure waits."""
    world = begun(story, plan=(), mode="optimistic", renames={"w": "v"})
    move(world, FIRST, SECOND)
    world.finish()
    ends(world)


def test_a_row_moves_to_a_shard_that_continues_alone(story: MakeStory) -> None:
    """An operator has unlocked the change. Then the other shards do not wait."""
    world = begun(story, plan=("ALTER TABLE {t} ADD INDEX kk (v)",))
    move(world, FIRST, SECOND)
    world.finish()
    world.order(FIRST, OrderKind.SKIP)
    world.finish()
    assert world.waiting() == []
    assert KEY in {one["id"] for one in world.content(T)}
    assert world.target.store.moves == {}


def test_a_row_moves_in_two_waits(story: MakeStory) -> None:
    """Records made during one wait do not count in the next one: by then, the first shard has the row again."""
    world = begun(story, plan=(C, D))
    move(world, FIRST, SECOND)
    world.alter(SECOND, THIRD)
    world.finish()
    assert world.target.store.moves == {}
    move(world, SECOND, FIRST)
    world.finish()
    world[FIRST].alter()
    world.finish()
    (old,) = (old for old in world[FIRST].rows if old["id"] == KEY)
    world[FIRST].source.commit((world[FIRST].name, [(Op.DELETE, old, None)]))
    ends(world)
    assert KEY not in {one["id"] for one in world.content(T)}


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_the_process_dies_anywhere(workers: int) -> None:
    """The process also dies between the last commit and the removal of the records, and between the commits of two
    workers.
    """
    step = 1 if EXAMPLES else 13
    for crash in itertools.count(workers, step):
        with stories(workers=workers, limits=Limits(transactions=2, idle_entries=1)) as make_story:
            world = begun(make_story, FIRST, seed=crash, transactional_ddl=crash % 2 == 0)
            world.crash_after(crash)
            move(world, FIRST, SECOND)
            world.write(FIRST, SECOND)
            move(world, SECOND, THIRD, first="delete")
            world.finish()
            world.shards.level()
            world.write(times=2)
            world.finish()
            came = world.deaths == 0
            ends(world)
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
        world = make_story(THREE)
        world.looks = False
        world.finish()
        one, two = world[FIRST], world[SECOND]
        world.crash_after(point)
        two.source.commit((two.name, [(Op.INSERT, None, row(two, key)) for key in keys]))
        world.finish()
        world.crash_after(None)
        assert not world.target.store.moves
        for key in keys:
            move(world, SECOND, FIRST, key=key, first="delete")
        world.finish()
        world.plan(C)
        one.alter()
        world.finish()
        assert world.waiting() == [FIRST]
        for key in keys:
            (old,) = (old for old in one.rows if old["id"] == key)
            one.source.commit((one.name, [(Op.DELETE, old, None)]))
        world.finish()
        world.shards.level()
        world.finish()
        assert world.waiting() == []
        assert not {old["id"] for old in world.content(T)} & set(keys)
