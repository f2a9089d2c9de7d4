"""The index of held tables, which is made from that of the state before it, is the index of all held tables."""

from __future__ import annotations

import json
import pickle
import random
from collections.abc import Iterator
from dataclasses import replace

import pytest
from tests.examples import seeds

from pidts.batch.workers import KnownPlaces, Workers
from pidts.model import Lsn, TableName
from pidts.plan import CopyState, HeldTables, Places, PlanState
from pidts.plan.state import HeldIndex

from .small_log import checkpoint, table

NAMES = [TableName(schema, name) for schema in ('a"b', "a") for name in ("t", "t10", "t2", 'q"', "é", "w\\", "u", "v")]


def place(number: int) -> Lsn:
    return Lsn(0, 1, 100 * number)


def histories(seed: str) -> Iterator[tuple[HeldTables, ...]]:
    """Yields the held tables of successive states: tables are held, move, and are released, alone and together."""
    chosen = random.Random(seed)
    held: list[HeldTables] = []
    for _ in range(chosen.randint(2, 12)):
        for _ in range(chosen.choice([0, 1, 1, 3])):
            free = [name for name in NAMES if not any(name in one.tables for one in held)]
            if free and chosen.random() < 0.7:
                names = frozenset(chosen.sample(free, min(len(free), chosen.choice([1, 1, 2]))))
                due = place(chosen.randint(1, 9)) if chosen.random() < 0.6 else None
                held.insert(chosen.randint(0, len(held)), HeldTables(names, place(chosen.randint(1, 9)), due))
            elif held and chosen.random() < 0.5:
                number = chosen.randrange(len(held))
                held[number] = replace(held[number], lsn=place(chosen.randint(1, 9)))
            elif held:
                held.pop(chosen.randrange(len(held)))
        if chosen.random() < 0.2:
            chosen.shuffle(held)
        yield tuple(held)


def text_of(state: PlanState, copied_at: PlanState | None = None) -> str:
    """Returns the text of a checkpoint as earlier versions have made it."""

    def places(one: PlanState) -> list[list[str]]:
        behind = (held for held in one.held if held.lsn != one.lsn)
        return sorted([name.schema, name.name, str(held.lsn)] for held in behind for name in held.tables)

    copy = [[name.schema, name.name, one.unread.to_json()] for name, one in state.copy.items()]
    if not copy and not places(state) and copied_at is None:
        return ""
    data = {"copy": copy, "held": places(state), "run": 3, "dealing": ""}
    if copied_at is not None:
        data["copied_at"] = {"lsn": str(copied_at.lsn), "held": places(copied_at)}
    return json.dumps(data)


@pytest.mark.parametrize("seed", seeds(60))
def test_a_state_made_from_another_one_has_the_places_and_the_text_of_its_own_tables(seed: str) -> None:
    chosen = random.Random(seed)
    index, former = HeldIndex(), PlanState(place(9))
    for held in histories(seed):
        index = index.moved_to(held)
        state = PlanState(place(chosen.choice([5, 9, 10])), {}, held).with_index(index)
        alone = PlanState(state.lsn, {}, held)
        assert index.places == {name: one.lsn for one in held for name in one.tables}
        assert state.dues == {one.due for one in held if one.due is not None}
        assert state.needs == min([state.lsn, *(one.lsn for one in held)])
        assert state.places == alone.places
        copy = {table("c"): CopyState(rows=7)} if chosen.random() < 0.3 else {}
        copied = replace(state, copy=copy).with_index(index)
        assert copied.copy_json(3) == text_of(copied)
        assert copied.copy_json(3, "", former) == text_of(copied, former)
        former = state


@pytest.mark.parametrize("seed", seeds(60))
def test_places_of_related_states_compare_as_those_that_were_read(seed: str) -> None:
    """A worker must neither go back nor take a table for one that has not moved, whatever is kept from state to state."""
    chosen = random.Random(seed)
    index, states = HeldIndex(), list[PlanState]()
    for held in histories(seed):
        index = index.moved_to(held)
        states.append(PlanState(place(chosen.choice([9, 10, 11])), {}, held).with_index(index))
    for _ in range(20):
        one, other = chosen.choice(states[-2:]), chosen.choice(states)
        read, other_read = (Places.of_text(state.lsn, state.copy_json(1)) for state in (one, other))
        names = {*read.exceptions, *other_read.exceptions}
        expected = all(other_read.at(name) <= read.at(name) for name in NAMES) and other.lsn <= one.lsn
        moved = {name for name in names if other_read.at(name) < read.at(name)}
        sent, other_sent = pickle.loads(pickle.dumps((one.places, other.places)))
        for mine, theirs in ((one.places, other.places), (read, other.places), (one.places, other_read)):
            assert mine.has_all_of(theirs) == expected
            assert mine.moved_since(theirs) == moved
        assert (sent, other_sent) == (one.places, other.places)
        assert (sent.has_all_of(other_sent), sent.moved_since(other_sent)) == (expected, moved)
        assert one.places.targets("key", lambda name: TableName("all", name.name)) == {
            TableName("all", name.name) for name in read.exceptions
        }


def test_a_copy_of_an_index_in_another_process_knows_its_own_objects() -> None:
    """Numbers that identify objects mean other objects there."""
    held = tuple(HeldTables(frozenset({name}), place(1)) for name in NAMES)
    sent = pickle.loads(pickle.dumps(HeldIndex.of(held)))
    assert sent.unlike(HeldIndex.of(held)) == set(NAMES)
    assert not sent.unlike(sent.moved_to((*sent.held,)))
    assert sent.moved_to((*sent.held, HeldTables(frozenset({table("x")}), place(2)))).unlike(sent) == {table("x")}


class CountedName(TableName):
    """A table's name that counts how often it is looked up."""

    looked_up = 0

    def __hash__(self) -> int:
        CountedName.looked_up += 1
        return hash(self.name)


def test_the_work_of_a_batch_depends_on_the_tables_that_have_moved() -> None:
    """A thousand shards may wait for days, while each batch of the other tables stores their places."""

    def held_at(number: int) -> HeldTables:
        return HeldTables(frozenset({CountedName("shop", f"t{number:03}")}), place(number + 1))

    held = tuple(map(held_at, range(300)))
    state = PlanState(place(1000), {}, held)
    row = checkpoint(state)
    workers = Workers((row,), KnownPlaces({(row.lsn, row.copy): state.places}))
    CountedName.looked_up = 0
    later = (*held, held_at(999))
    end = PlanState(place(1001), {}, later).with_index(state.index.moved_to(later))
    moved = workers.moved(end)
    assert CountedName.looked_up < 20
    assert moved.checkpoints[0].copy == PlanState(end.lsn, {}, later).copy_json(row.epoch)
