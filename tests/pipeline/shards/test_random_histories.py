"""Any history of shards on several servers has the same result as replaying each shard alone and joining the results."""

from __future__ import annotations

import random

import pytest
from tests.examples import examples

from pidts.ddl.shards.arrivals import Examination
from pidts.ddl.shards.coordinator import ShardGroups
from pidts.plan import Limits
from pidts.shards.decide import Wait

from .free_changes import check_rows, check_waits_are_recorded, happens_to_one
from .shard_servers import Shards
from .task_in_memory import Settings, TaskInMemory, driven
from .unlocks import check_unlocked, unlock_one

LAYOUTS = (
    {"one": ("shard_1.t_1", "shard_1.t_2", "alone.x")},
    {"one": ("shard_1.t_1",), "two": ("shard_1.t_1", "alone.x")},
    {
        "one": ("shard_1.t_1", "shard_1.t_2", "shard_2.u_1", "alone.x"),
        "two": ("shard_1.t_1", "shard_3.t_1", "shard_3.u_1"),
    },
)


RENAME = "rename-moves-rows"


@pytest.fixture(autouse=True)
def _driven():
    with driven():
        yield


@pytest.fixture(autouse=True)
def _checked(monkeypatch):
    """Checks that an answer for several shards of a group is the answer that each of them would get alone."""
    decision, outlook, arrive = ShardGroups._decision, ShardGroups.outlook, ShardGroups.arrive

    def check(self, question, found):
        kept, self._examined = self._examined, {}
        assert question() == found
        self._examined = kept

    def checked(self, state, arrival):
        kept = self._examined.get(arrival.after.name, Examination()).waits.get(self._kind(arrival))
        found = decision(self, state, arrival)
        if found is kept:
            check(self, lambda: decision(self, state, arrival), found)
        return found

    def checked_outlook(self, halt, arrival):
        found = outlook(self, halt, arrival)
        if arrival.member in self._state(arrival.after.name).arrivals:
            check(self, lambda: outlook(self, halt, arrival), found)
        return found

    def checked_arrive(self, arrival, change, effect):
        moves, found = self.moves, arrive(self, arrival, change, effect)
        if isinstance(found, Wait):
            state = self._state(arrival.after.name)
            check(self, lambda: decision(self, state, arrival), found)
            if self.moves == moves:
                for one in state.arrivals.values():
                    assert isinstance(decision(self, state, one), Wait)
        return found

    for name, method in {"_decision": checked, "outlook": checked_outlook, "arrive": checked_arrive}.items():
        monkeypatch.setattr(ShardGroups, name, method)


def played(seed: int, ddl: float, *, strict: bool = False, **settings: object) -> TaskInMemory:
    """Returns servers and a task after a long history in which the process has died several times."""
    chance = random.Random(seed)
    shards = Shards(chance.choice(LAYOUTS), chance, keyed=chance.random() < 0.4)
    shards.creates = not strict
    for group in shards.all_groups:
        group.is_strict = strict
    limits = Limits(transactions=chance.randrange(1, 6), idle_entries=chance.choice((1, 3)))
    task = TaskInMemory(shards, Settings(workers=chance.choice((1, 1, 2, 3)), limits=limits, **settings), chance)
    task.looks, task.interrupts = True, chance.random() < 0.5
    task.start()
    for _ in range(chance.randrange(4, 50)):
        if not ddl and chance.random() < 0.2:
            shards.move()
        shards.step(ddl)
        if happens(task):
            task.check_places()
    task.crash_after(None)
    task.finish()
    task.check_places()
    return task


def happens(task: TaskInMemory) -> bool:
    """Changes something about the task between two transactions. Returns whether there is nothing left to do."""
    chance = task.chance
    match chance.randrange(20):
        case 0 | 1:
            task.crash_after(chance.randrange(30))
        case 2:
            task.begin_anew(chance.choice([*task.shards.sources]))
        case 3:
            task.take_over()
        case 4 | 5:
            task.finish()
            return True
        case _:
            task.go(chance.randrange(6))
    return False


@pytest.mark.parametrize("seed", range(examples(4)))
def test_without_schema_changes(seed: int) -> None:
    task = played(seed, ddl=0)
    task.check_nobody_waits()
    task.close()


@pytest.mark.parametrize("seed", range(examples(10)))
def test_one_order_of_schema_changes(seed: int) -> None:
    """All shards of a group make the same changes in the same order, each at its own time."""
    task = played(seed, ddl=0.25, strict=seed % 4 > 1, transactional_ddl=seed % 2 == 0)
    task.shards.level()
    for _ in range(5):
        task.shards.step(ddl=0)
    task.finish()
    task.check_places()
    task.check_nobody_waits()
    task.close()


@pytest.mark.parametrize("seed", range(examples(10)))
def test_ddl_commands_to_continue_without_the_others(seed: int) -> None:
    """From time to time, a waiting shard is unlocked.

    In the end all shards have made all changes, and no shard waits for one that is already past the change.
    """
    chance = random.Random(seed)
    shards = Shards(chance.choice(LAYOUTS), chance, keyed=chance.random() < 0.4)
    shards.creates = False
    settings = Settings(workers=chance.choice((1, 1, 2, 3)), transactional_ddl=seed % 2 == 0, presumes=True)
    task = TaskInMemory(shards, settings, chance)
    task.interrupts = chance.random() < 0.5
    task.start()
    for _ in range(chance.randrange(4, 60)):
        shards.step(ddl=0.3)
        if chance.random() < 0.3:
            unlock_one(task)
        if happens(task):
            check_unlocked(task)
    task.crash_after(None)
    shards.level()
    for _ in range(5):
        shards.step(ddl=0)
    task.finish()
    try_renames_again(task)
    task.check_places()
    task.check_nobody_waits()
    task.close()


def try_renames_again(task: TaskInMemory) -> None:
    """Repeats refused renames, as if an operator commanded a retry: a shard is not renamed while the target has
    columns that the shard has dropped.
    """
    halts = task.target.store.halts
    while found := {source for (_, source), its in halts.items() if any(one.code == RENAME for one in its.values())}:
        before = {source: task.place(source) for source in found}
        for source in found:
            task.begin_anew(source)
        task.finish()
        if before == {source: task.place(source) for source in found}:
            return


def optimistic(seed: int) -> tuple[random.Random, Shards, TaskInMemory]:
    """Returns servers and a task that has begun."""
    chance = random.Random(seed)
    shards = Shards(chance.choice(LAYOUTS), chance, keyed=chance.random() < 0.4)
    settings = Settings(workers=chance.choice((1, 1, 2, 3)), mode="optimistic", transactional_ddl=seed % 2 == 0)
    task = TaskInMemory(shards, settings, chance)
    task.start()
    return chance, shards, task


@pytest.mark.parametrize("seed", range(examples(8)))
def test_whatever_each_likes(seed: int) -> None:
    """Optimistic mode: shards add and drop columns at any time, and none waits for long."""
    chance, shards, task = optimistic(seed)
    for _ in range(chance.randrange(4, 40)):
        if chance.random() < 0.3:
            shards.tinker()
        else:
            shards.step(ddl=0)
        happens(task)
    task.crash_after(None)
    task.finish()
    task.check_nobody_waits()
    task.check_whole()
    task.close()


@pytest.mark.parametrize("seed", range(examples(8)))
def test_whatever_happens_to_each(seed: int) -> None:
    """Optimistic mode: defaults and keys change, tables are created and dropped.

    Each shard that has to wait is reported, and every row is right.
    """
    chance, shards, task = optimistic(seed)
    for _ in range(chance.randrange(4, 40)):
        if chance.random() < 0.4:
            happens_to_one(shards)
        else:
            shards.write(chance.choice(shards.everyone))
        if happens(task):
            check_rows(task)
    task.crash_after(None)
    task.finish()
    check_rows(task)
    check_waits_are_recorded(task)
    task.close()
