"""Rows of the target that differ from the source's rows are found, and no other rows.

The model handles one event after the other. It has the target's rows by key, and no batches, Arrow or net effects.
"""

from __future__ import annotations

import random
from contextlib import closing, suppress
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.crashes import Crashes, ProcessDied
from tests.examples import examples

from pidts.apply import ApplyRules
from pidts.apply.locks.resolve import ResolveWith, resolve
from pidts.apply.uncopied_keys import unpacked
from pidts.model import Halted, OnDivergence, RowLock, Table

from .any_history import NAME, POOL, TABLES, WORDS, Change, History, Row, Run, Server, known_to_task, wishes


class Watching(Run):
    """A task that halts at a row that differs."""

    def writing(self) -> ApplyRules:
        return replace(super().writing(), on_divergence=OnDivergence.HALT)


class Hostile(Watching):
    """A task to whose target other programs write, so that the target need not equal the source."""

    def look(self, end: int) -> None:
        del end


@pytest.mark.parametrize("kind", TABLES)
@settings(max_examples=examples(20), deadline=None)
@given(
    transactions=st.integers(0, 25),
    workers=st.integers(1, 3),
    folds=st.booleans(),
    keeps_keys=st.booleans(),
    minimal=st.booleans(),
    is_long=st.booleans(),
    split=st.sampled_from([None, 1, 3]),
    crashes=st.lists(st.integers(0, 40), max_size=3),
    shards=st.integers(1, 2),
    seed=st.integers(0, 2**32),
)
def test_if_no_other_program_writes_no_row_differs(
    kind: str,
    transactions: int,
    workers: int,
    folds: bool,
    keeps_keys: bool,
    minimal: bool,
    is_long: bool,
    split: int | None,
    crashes: list[int],
    shards: int,
    seed: int,
) -> None:
    """The histories, the batches and the crashes are random."""
    chance = random.Random(seed)
    history = History(TABLES[kind], shards, known_to_task(TABLES[kind], keeps_keys), minimal)
    history.play(wishes(chance, transactions))
    run = Watching(history, workers, chance, folds=folds, is_long=is_long, split=split if shards == 1 else None)
    run.to_the_end(crashes)


Key = tuple[Any, ...]


def key_of(history: History, row: Row, *, folds: bool = False) -> Key:
    """Returns the key of a row, in a target that ignores case or in one that does not."""
    return folded(tuple(row[name] for name in history.table.identity), folds=folds)


def folded(key: Key, *, folds: bool) -> Key:
    return tuple(value.lower() if folds and isinstance(value, str) else value for value in key)


def logged(history: History, before: Row | None, after: Row | None) -> tuple[Row | None, Row | None]:
    """Returns the images of a change with the columns that the log has."""
    key = history.table.identity
    if not history.minimal or before is None or (after and any(before[name] != after[name] for name in key)):
        return before, after
    changed = after and {name: value for name, value in after.items() if name in key or value != before[name]}
    return {name: before[name] for name in key}, changed


def events(history: History, changes: list[Change], *, folds: bool = False) -> list[tuple[Key, Row | None, Row | None]]:
    """Returns each change as its effects on one key, or on two."""
    found: list[tuple[Key, Row | None, Row | None]] = []
    for _, _, before, after in changes:
        old = key_of(history, before, folds=folds) if before is not None else None
        new = key_of(history, after, folds=folds) if after is not None else None
        if old is not None and new is not None and old != new:
            found += [(old, before, None), (new, None, after)]
        else:
            key = new if old is None else old
            assert key is not None
            found.append((key, *logged(history, before, after)))
    return found


def fits(row: Row | None, image: Row | None) -> bool:
    """Returns whether this is the row of an image, in the columns that the image has."""
    if row is None or image is None:
        return row is image
    return all(row[name] == value for name, value in image.items())


def is_respelled(before: Row | None, after: Row | None) -> bool:
    """Returns whether an event changes the spelling of its key; `b` is the text in the keys."""
    return before is not None and after is not None and before["b"] != after["b"]


class Model:
    """A model of the target, row by row."""

    def __init__(self) -> None:
        self.rows: dict[Key, Row] = {}
        self.diverged: list[Key] = []

    def take(self, key: Key, before: Row | None, after: Row | None) -> None:
        """Applies an event, or finds that its row differs."""
        row = self.rows.get(key)
        # A key that changes its spelling and has no row counts as a new key: the row is inserted.
        moves = row is None and is_respelled(before, after)
        if not moves and not fits(row, before) and not fits(row, after):
            self.diverged.append(key)
        elif after is None:
            self.rows.pop(key, None)
        else:
            self.rows[key] = {**(row or {}), **after}


def written_by_somebody_else(
    run: Run, chance: random.Random, model: Model, table: Table, *, folds: bool = False, removes: float = 0.3
) -> None:
    """Inserts, changes or removes a row as another program, unless a unique key forbids it."""
    stored = run.target.store.tables[NAME]
    row = {c.name: chance.choice(POOL[c.type][: 3 + c.nullable]) for c in table.columns}
    key = key_of(run.history, row, folds=folds)
    if chance.random() < removes:
        model.rows.pop(key, None)
        stored.rows.pop(key, None)
    else:
        model.rows[key] = row
        stored.rows[key] = tuple(row.values())


@pytest.mark.parametrize("kind", ["composite key", "text key"])
@settings(max_examples=examples(60), deadline=None)
@given(transactions=st.integers(1, 25), writes=st.integers(0, 4), seed=st.integers(0, 2**32))
def test_a_table_halts_where_a_row_differs_and_not_before(kind: str, transactions: int, writes: int, seed: int) -> None:
    chance = random.Random(seed)
    table = TABLES[kind]
    history = History(table, 1, table)
    history.play(wishes(chance, transactions))
    whole, begun = history.transactions, chance.randrange(len(history.transactions) + 1)
    history.transactions = whole[:begun]
    run = Hostile(history, 1, chance, folds=False, is_long=False, split=None)
    run.attempt()
    model = Model()
    model.rows = {key_of(history, row): row for row in run.rows()}
    for _ in range(writes):
        written_by_somebody_else(run, chance, model, table)
    history.transactions = whole
    for changes in whole[begun:]:
        for event in events(history, changes):
            model.take(*event)
    if model.diverged:
        with pytest.raises(Halted) as halted:
            run.attempt()
        assert (halted.value.code, halted.value.where.table) == ("row-diverged", str(NAME))
    else:
        run.attempt()
        assert {key_of(history, row): row for row in run.rows()} == model.rows
    run.target.forget()


class Locking(Hostile):
    """A task that sets rows aside."""

    def writing(self) -> ApplyRules:
        return replace(super().writing(), task="t", on_divergence=OnDivergence.LOCK)

    def locks(self) -> list[RowLock]:
        with closing(self.target.connect()) as session:
            return session.meta.row_locks.read("t", "s", NAME)

    def resolve(self, ids: set[str], take: ResolveWith) -> None:
        with closing(self.target.connect()) as session:
            resolve(session, "t", "s", NAME, ids, take)


class LockingModel(Model):
    """A model that also has locks."""

    def __init__(self) -> None:
        super().__init__()
        self.held: dict[Key, list[tuple[Row | None, Row | None]]] = {}

    def take(self, key: Key, before: Row | None, after: Row | None) -> None:
        if key in self.held:
            self.held[key].append((before, after))
            return
        super().take(key, before, after)
        if self.diverged and self.diverged[-1] == key:
            self.held[key] = [(before, after)]

    def resolve(self, key: Key, take: ResolveWith, columns: int) -> bool:
        """Resolves a lock; returns False if the row's values are not known in all columns."""
        changes, row = self.held[key], self.rows.get(key)
        if take is ResolveWith.SOURCE:
            first = changes[0][0]
            row = None if first is None else {**(row or {}), **first}
        for before, after in changes if take is not ResolveWith.KEEP else ():
            if after is None:
                row = None
            elif before is None:
                row = after if row is None or take is ResolveWith.SOURCE else row
            elif take is ResolveWith.SOURCE:
                row = {**(row or {}), **after}
            elif row is not None:
                row = {**row, **{n: value for n, value in after.items() if n not in before or value != before[n]}}
        if row is not None and len(row) < columns:
            return False
        del self.held[key]
        self.diverged.remove(key)
        if row is None:
            self.rows.pop(key, None)
        else:
            self.rows[key] = row
        return True


@pytest.mark.parametrize(
    ("kind", "folds"),
    [("composite key", False), ("text key", False), ("text key", True), ("composite text key", True)],
)
@settings(max_examples=examples(60), deadline=None)
@given(
    transactions=st.integers(1, 25),
    workers=st.integers(1, 3),
    is_long=st.booleans(),
    split=st.sampled_from([None, 1, 3]),
    minimal=st.booleans(),
    rounds=st.integers(1, 4),
    seed=st.integers(0, 2**32),
)
def test_locks_are_those_that_a_row_by_row_model_keeps(
    kind: str,
    folds: bool,
    transactions: int,
    workers: int,
    is_long: bool,
    split: int | None,
    minimal: bool,
    rounds: int,
    seed: int,
) -> None:
    """Between any two parts of the log, another program writes, processes die, and people resolve locks.

    For a target that ignores case, 'x' and 'X' are the same key, whichever program writes it in which spelling.
    """
    compared_with_the_model(
        kind,
        transactions,
        workers,
        folds=folds,
        is_long=is_long,
        split=split,
        minimal=minimal,
        rounds=rounds,
        seed=seed,
    )


@pytest.mark.parametrize("kind", ["text key", "composite text key"])
@settings(max_examples=examples(40), deadline=None)
@given(
    transactions=st.integers(10, 40),
    workers=st.integers(1, 3),
    is_long=st.booleans(),
    split=st.sampled_from([None, 1, 3]),
    minimal=st.booleans(),
    rounds=st.integers(2, 6),
    seed=st.integers(0, 2**32),
)
def test_locks_of_rows_that_are_gone_are_those_of_the_model_in_whatever_words(
    kind: str,
    transactions: int,
    workers: int,
    is_long: bool,
    split: int | None,
    minimal: bool,
    rounds: int,
    seed: int,
) -> None:
    """The other program mostly deletes rows, and most changes give a key another spelling."""
    compared_with_the_model(
        kind,
        transactions,
        workers,
        folds=True,
        in_words=True,
        is_long=is_long,
        split=split,
        minimal=minimal,
        rounds=rounds,
        seed=seed,
    )


def test_an_image_that_shows_more_than_those_before_it_is_compared() -> None:
    """The log of UPDATE x SET v = 2 has only b and v.

    UPDATE x SET b = 'X', in the same batch, says that w was 2, but it is 1.
    """
    compared_with_the_model("text key", 10, 2, is_long=False, split=None, minimal=True, rounds=2, seed=8401815)


def compared_with_the_model(
    kind: str,
    transactions: int,
    workers: int,
    *,
    folds: bool = False,
    in_words: bool = False,
    is_long: bool,
    split: int | None,
    minimal: bool,
    rounds: int,
    seed: int,
) -> None:
    chance = random.Random(seed)
    table = TABLES[kind]
    history = History(table, 1, table, minimal)
    history.play(wishes(chance, transactions, WORDS) if in_words else wishes(chance, transactions))
    whole = history.transactions
    run = Locking(history, workers, chance, folds=folds, is_long=is_long, split=split)
    model, begun = LockingModel(), 0
    for _ in range(rounds):
        end = chance.randrange(begun, len(whole) + 1)
        history.transactions = whole[:end]
        for points in [chance.randrange(60) for _ in range(chance.randrange(3))]:
            run.target.store.hook = Crashes([points])
            with suppress(ProcessDied):
                run.attempt()
        run.target.store.hook = None
        run.attempt()
        for changes in whole[begun:end]:
            for event in events(history, changes, folds=folds):
                model.take(*event)
        begun = end
        assert {key_of(history, row, folds=folds): row for row in run.rows()} == model.rows
        held = {one.id: one for one in run.locks()}
        shown = {folded(tuple(unpacked(one.key).to_pylist()[0].values()), folds=folds): one.id for one in held.values()}
        assert len(shown) == len(held)
        assert shown.keys() == model.held.keys()
        for key in chance.sample(sorted(shown, key=repr), chance.randrange(len(shown) + 1)):
            take = chance.choice(list(ResolveWith))
            if not model.resolve(key, take, len(table.columns)):
                with pytest.raises(Halted, match="partial-row-image"):
                    run.resolve({shown[key]}, take)
                continue
            broken_off(run, chance, {shown[key]}, take)
        assert {key_of(history, row, folds=folds): row for row in run.rows()} == model.rows
        for _ in range(chance.randrange(3)):
            written_by_somebody_else(run, chance, model, table, folds=folds, removes=0.8 if in_words else 0.3)
    run.target.forget()


def broken_off(run: Locking, chance: random.Random, ids: set[str], take: ResolveWith) -> None:
    """Resolves locks in a process that may die. Another process tries again, with what is left."""
    run.target.store.hook = Crashes([chance.randrange(12)])
    with suppress(ProcessDied):
        run.resolve(ids, take)
    run.target.store.hook = None
    run.resolve(ids, take)


@pytest.mark.parametrize("kind", TABLES)
@settings(max_examples=examples(40), deadline=None)
@given(
    transactions=st.integers(1, 25),
    workers=st.integers(1, 3),
    keeps_keys=st.booleans(),
    is_long=st.booleans(),
    writes=st.integers(1, 3),
    crashes=st.lists(st.integers(0, 60), max_size=2),
    seed=st.integers(0, 2**32),
)
def test_all_rows_are_those_of_the_source_when_every_lock_is_resolved(
    kind: str,
    transactions: int,
    workers: int,
    keeps_keys: bool,
    is_long: bool,
    writes: int,
    crashes: list[int],
    seed: int,
) -> None:
    """The rows become equal even if rows of the source swap unique values meanwhile."""
    if kind.startswith("no key"):
        return
    chance = random.Random(seed)
    table = TABLES[kind]
    history = History(table, 1, known_to_task(table, keeps_keys))
    history.play(wishes(chance, transactions))
    whole, begun = history.transactions, chance.randrange(len(history.transactions) + 1)
    history.transactions = whole[:begun]
    run = Locking(history, workers, chance, folds=False, is_long=is_long, split=None)
    run.attempt()
    stored = run.target.store.tables[NAME]
    for _ in range(writes):  # rows that the source has or had, with any values that no unique key forbids
        known = list(stored.rows.items())
        if not known:
            continue
        key, row = chance.choice(known)
        if chance.random() < 0.3:
            del stored.rows[key]
            continue
        place = chance.randrange(len(table.identity), len(row))
        column = table.columns[place]
        values = list(row)
        values[place] = chance.choice(POOL[column.type][: 3 + column.nullable])
        others = [dict(zip(stored.table.arrow.names, each, strict=True)) for at, each in known if at != key]
        if Server(table, [*others, dict(zip(stored.table.arrow.names, values, strict=True))]).fits():
            stored.rows[key] = tuple(values)
    touched = {key_of(history, row) for changes in whole[begun:] for _, _, *images in changes for row in images if row}
    left = {key_of(history, row): row for row in run.rows()}
    history.transactions = whole
    for points in crashes:
        run.target.store.hook = Crashes([points])
        with suppress(ProcessDied, Halted):
            run.attempt()
    run.target.store.hook = None
    try:
        run.attempt()
    except Halted as halted:
        if halted.code != "target-refused":
            raise
        run.target.forget()
        return  # A row that no change of the log concerns has a unique value of the source.
    while locks := run.locks():
        heads = {one.id for one in locks if not one.needs or one.needs not in {other.id for other in locks}}
        assert heads
        run.resolve(heads, ResolveWith.SOURCE)
    final = {key_of(history, row): row for row in history.states[-1]}
    here = {key_of(history, row): row for row in run.rows()}
    for key in touched:
        assert here.get(key) == final.get(key)
    for key in left.keys() - touched:
        assert here.get(key) == left[key], "what the log does not speak of stays"
    run.target.forget()
