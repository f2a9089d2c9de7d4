"""Random histories of one target table, and runs that carry them to the target.

The oracle has no keys and no batches. It keeps rows in a list, removes the first row that equals a before image, and
appends the after image. The target compares every row that it writes with all existing rows. After each crash, the log
is cut anew from the place of the slowest worker, and workers that were ahead leave out the changes that they have
written.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from tests.crashes import Crashes, ProcessDied
from tests.target.conformance.samples import create
from tests.values_target.session import ValuesSession, ValuesTarget

from pidts.apply import ApplyRules, Committer
from pidts.batch.applying import apply, apply_long
from pidts.batch.blobs import Blob
from pidts.batch.context import JobContext
from pidts.batch.lagging_merge import MovedKeysCleanup
from pidts.batch.log_parts import LogPart
from pidts.batch.workers import Commit
from pidts.model import (
    ChangeBatch,
    Checkpoint,
    Column,
    ColumnType,
    Key,
    Kind,
    Lsn,
    Op,
    Position,
    Table,
    TableName,
    change_schema,
)
from pidts.reduce import NetChange, buckets, with_whole_keys
from pidts.rules import RouteRule, Routes, Rules
from pidts.schema import Dialect
from pidts.source import SourceConfig

INT = ColumnType(Kind.INT)
TEXT = ColumnType(Kind.VARCHAR, length=9, charset="utf8mb4", collation="utf8mb4_general_ci")
EXACT = ColumnType(Kind.VARCHAR, length=9, charset="utf8mb4", collation="utf8mb4_bin")
DOUBLE = ColumnType(Kind.DOUBLE)
NAME = TableName("shop", "cart")
SHARDS = (TableName("shop", "cart_1"), TableName("shop", "cart_2"))
MERGING = Rules(routes=Routes((RouteRule("shop", "cart_*", NAME.schema, NAME.name),), "s"))

Row = dict[str, Any]
Change = tuple[int, Op, Row | None, Row | None]
"""The number of the source's table, the operation, the before image, the after image."""


def table_of(identity: dict[str, ColumnType], *unique: str, **others: ColumnType) -> Table:
    columns = [Column(name, kind, nullable=False) for name, kind in identity.items()]
    columns += [Column(name, kind) for name, kind in others.items()]
    keys = [Key("PRIMARY", tuple(identity), unique=True, primary=True)] if identity else []
    keys += [Key(names, tuple(names), unique=True) for names in unique]
    return Table(NAME, tuple(columns), tuple(keys))


COMPOSITE = table_of({"a": INT, "b": EXACT}, "u", "vw", u=TEXT, v=INT, w=INT)
TABLES = {
    "composite key, two unique keys": COMPOSITE,
    "composite key": replace(COMPOSITE, keys=COMPOSITE.keys[:1]),
    "text key": table_of({"b": TEXT}, u=TEXT, v=INT, w=INT),
    "text key, unique key": table_of({"b": TEXT}, "u", u=TEXT, v=INT, w=INT),
    "composite text key": table_of({"a": INT, "b": TEXT}, u=TEXT, v=INT, w=INT),
    "no key": table_of({}, u=TEXT, v=INT, w=DOUBLE),
    "no key, unique key": table_of({}, "u", u=TEXT, v=INT, w=INT),
}
POOL: dict[ColumnType, tuple[Any, ...]] = {
    INT: (1, 2, 3, None),
    TEXT: ("x", "X", "y", None),
    EXACT: ("p", "P", "q", None),
    DOUBLE: (0.0, -0.0, 1.5, None),
}


def known_to_task(table: Table, keeps_keys: bool) -> Table:
    """Returns the table's structure on the source, which is the only structure that the task knows.

    Without `keeps_keys`, only the target has the further unique keys.
    """
    return table if keeps_keys else replace(table, keys=table.keys[: len(table.identity) > 0])


class Server:
    """A source with one table, which is a list of rows."""

    def __init__(self, table: Table, rows: Sequence[Row] = ()) -> None:
        self.table, self.rows = table, list(rows)

    def fits(self) -> bool:
        """Returns whether a server would accept these rows together."""
        for key in self.table.keys:
            values = [[_folded(self.table.column(name), row[name]) for name in key.columns] for row in self.rows]
            values = [value for value in values if None not in value]
            if any(one == two for one, two in itertools.combinations(values, 2)):
                return False
        return True

    def change(self, before: Row | None, after: Row | None) -> bool:
        """Makes the change, if a server would accept it."""
        kept = list(self.rows)
        if before is not None:
            del self.rows[[repr(row) for row in self.rows].index(repr(before))]  # The repr distinguishes 0.0 from -0.0.
        if after is not None:
            self.rows.append(after)
        if not self.fits():
            self.rows = kept
            return False
        return True


def _folded(column: Column, value: Any) -> Any:
    return value.lower() if value is not None and column.type == TEXT else value


Wish = tuple[str, int, int, tuple[int, ...], int, int]


KINDS = ("insert", "insert", "insert", "set", "set", "set", "delete", "swap", "swap", "swap", "twin", "give", "take")
WORDS = ("insert", "set", "set", "delete", "respell", "respell", "respell")
"""Kinds for histories in which rows get other spellings of their keys, which are equal for the server."""


def wishes(chance: random.Random, transactions: int, kinds: Sequence[str] = KINDS) -> list[list[Wish]]:
    """Draws which changes a history tries to make. It uses a plain generator: hypothesis itself prefers short lists of
    small numbers, in which little happens.
    """
    few = lambda: chance.randrange(4)  # noqa: E731
    many = lambda: (chance.choice(kinds), few() % 2, chance.randrange(12), (few(), few(), few(), few(), few()))  # noqa: E731
    return [[(*many(), few() + few(), few()) for _ in range(chance.randrange(1, 7))] for _ in range(transactions)]


@dataclass
class History:
    """The transactions of the source, and its rows after each transaction."""

    table: Table
    """The structure with all keys: those of the source, and those that only the target has."""
    shards: int
    structure: Table
    """The structure on the source."""
    minimal: bool = False
    """Whether the log has MINIMAL images: the key before the change, and the changed columns after it. Updates of keys
    are logged in full.
    """
    is_cut: bool = False
    """Whether transactions may be cut between any two changes. Then no two tables may have a row with the same key or
    the same unique value, not even inside a transaction. The exception is a row that has just been inserted into one
    table, and is now deleted from the other.
    """
    transactions: list[list[Change]] = field(default_factory=list)
    states: list[list[Row]] = field(default_factory=lambda: [[]])

    def play(self, transactions: Sequence[Sequence[Wish]]) -> None:
        """Runs the transactions. A transaction that would leave a row in two of the merged tables is rolled back."""
        servers = [Server(self.table) for _ in range(self.shards)]
        for transaction in transactions:
            tried = [Server(self.table, server.rows) for server in servers]
            changes, is_valid = [], True
            for wish in transaction:
                for change in self._wished(tried, wish):
                    changes.append(change)
                    is_valid = is_valid and not (self.is_cut and self._collide(tried, is_moving=wish[0] == "give"))
                is_valid = is_valid and not (self.is_cut and self._collide(tried, is_moving=False))
            whole = [row for server in tried for row in server.rows]
            if changes and is_valid and Server(self.table, whole).fits():
                servers = tried
                self.transactions.append(changes)
                self.states.append(whole)

    def _collide(self, servers: Sequence[Server], *, is_moving: bool) -> bool:
        """Returns whether rows of two tables have the same key or unique value; while a row moves, it is one row."""
        rows = [row for server in servers for row in server.rows]
        if is_moving and (identity := self.table.identity):
            rows = list({tuple(row[name] for name in identity): row for row in rows}.values())
        return not Server(self.table, rows).fits()

    def _wished(self, servers: list[Server], wish: Wish) -> Iterator[Change]:
        what, shard, at, values, column, to = wish
        number = shard % self.shards
        mine, other = servers[number], servers[(number + 1) % self.shards]
        columns = self.table.columns
        made = {c.name: POOL[c.type][at % (3 + c.nullable)] for c, at in zip(columns, values, strict=False)}
        old = mine.rows[at % len(mine.rows)] if mine.rows else None
        changed = columns[column % len(columns)]
        value = POOL[changed.type][to % (3 + changed.nullable)]
        steps: list[tuple[Server, Op, Row | None, Row | None]] = []
        if what == "insert":
            steps = [(mine, Op.INSERT, None, made)]
        elif old is None:
            return
        elif what == "twin":
            steps = [(mine, Op.INSERT, None, dict(old))]
        elif what == "delete":
            steps = [(mine, Op.DELETE, old, None)]
        elif what == "respell":
            keys = {name: old[name].swapcase() for name in self.table.identity if isinstance(old[name], str)}
            steps = [(mine, Op.UPDATE, old, {**old, **keys})]
        elif what == "set":
            steps = [(mine, Op.UPDATE, old, {**old, changed.name: value})]
        elif what == "swap":
            # An application has to swap values in this way, too: one of the two rows gets a third value first.
            second, name = mine.rows[to % len(mine.rows)], changed.name
            aside = {**old, name: None if changed.nullable else POOL[changed.type][2]}
            if second is not old:
                steps = [
                    (mine, Op.UPDATE, old, aside),
                    (mine, Op.UPDATE, second, {**second, name: old[name]}),
                    (mine, Op.UPDATE, aside, {**aside, name: second[name]}),
                ]
        elif self.shards > 1:  # The row moves to the other table. Either the INSERT or the DELETE comes first.
            new = {**old, changed.name: value} if to % 2 else dict(old)
            steps = [(other, Op.INSERT, None, new), (mine, Op.DELETE, old, None)]
            if what == "take":
                steps.reverse()
        for server, op, before, after in steps:
            if not server.change(before, after):
                return
            yield servers.index(server), op, before, after

    def decoded(self, first: int, last: int, slices: int) -> Iterator[list[ChangeBatch]]:
        """Returns transactions `first` to `last` as the decoder does: for each slice, one batch of each table."""
        count = max(1, -(-(last - first) // slices))
        for begin in range(first, last, count):
            rows: dict[int, list[tuple[Lsn, Change]]] = {}
            for number in range(begin, min(begin + count, last)):
                for row, change in enumerate(self.transactions[number]):
                    at = Lsn(0, 1, self.end(number).offset - 50, row)
                    rows.setdefault(change[0], []).append((at, change))
            yield [self._batch(shard, mine) for shard, mine in sorted(rows.items())]

    def _batch(self, shard: int, rows: list[tuple[Lsn, Change]]) -> ChangeBatch:
        columns = [
            [lsn.to_bytes() for lsn, _ in rows],
            [int(op) for _, (_, op, _, _) in rows],
            [self._image(change, 0) for _, change in rows],
            [self._image(change, 1) for _, change in rows],
        ]
        schema = change_schema(self.structure)
        arrays = [pa.array(values, its.type) for values, its in zip(columns, schema, strict=False)]
        batch = ChangeBatch.of(
            self.structure, *arrays, pa.array([self._presence(*change) for _, change in rows], pa.binary())
        )
        return replace(batch, upstream=SHARDS[shard] if self.shards > 1 else None)

    def _presence(self, _: int, op: Op, before: Row | None, after: Row | None) -> bytes | None:
        """Removes columns from the images, and returns the bitmaps of the remaining columns."""
        names = self.structure.arrow.names
        identity = self.structure.identity
        if not self.minimal or before is None or (after and any(before[name] != after[name] for name in identity)):
            return None
        changed = [name for name in names if after and repr(before[name]) != repr(after[name])]
        found_by = identity or names
        held = [found_by, changed] if op is Op.UPDATE else [found_by]
        return bytes(sum(1 << names.index(name) for name in image) for image in held)

    def _image(self, change: Change, side: int) -> Row | None:
        row, found = change[2 + side], self._presence(*change)
        if row is None or found is None:
            return row
        bits = found[side - len(found)] if change[1] is Op.UPDATE else found[0]
        return {name: value if bits >> place & 1 else None for place, (name, value) in enumerate(row.items())}

    @staticmethod
    def end(number: int) -> Lsn:
        """Returns the Lsn at which a transaction ends.

        The Lsns of its rows are after the end of the transaction before it.
        """
        return Lsn(0, 1, 100 * (number + 1))


class Shuffled(ValuesSession):
    """Writes the rows of a change in random order."""

    chance: random.Random

    def write(self, change: NetChange) -> None:
        gone, new = (
            pa.array(self.chance.sample(range(len(rows)), len(rows)), pa.int64())
            for rows in (change.deletes, change.upserts)
        )
        times = None if change.times is None else change.times.take(gone)
        super().write(replace(change, deletes=change.deletes.take(gone), upserts=change.upserts.take(new), times=times))


@dataclass(frozen=True, slots=True)
class ShuffledTarget(ValuesTarget):
    chance: random.Random = field(default_factory=random.Random)

    def connect(self) -> ValuesSession:
        session = Shuffled(self.store, transactional_ddl=True)
        session.chance = self.chance
        session.at("connect")
        return session


def bag(rows: Sequence[Row]) -> list[str]:
    """Returns the rows as sorted texts, so that two lists with the same rows in another order are equal.

    If a table has no key, a server treats rows with 0.0 and -0.0 as equal, and may keep either.
    """
    return sorted(
        str({name: value + 0.0 if isinstance(value, float) else value for name, value in row.items()}) for row in rows
    )


_numbers = itertools.count()


class Run:
    """The target of one task; every `attempt` is a new process that continues."""

    def __init__(
        self, history: History, workers: int, chance: random.Random, *, folds: bool, is_long: bool, split: int | None
    ) -> None:
        self.history, self.workers, self.chance = history, workers, chance
        self.is_long, self.split = is_long, split
        name, abilities = f"any history {next(_numbers)}", ("expects", "refuses_known_keys")
        able = {ability: chance.random() < 0.5 for ability in abilities}
        self.target = ShuffledTarget(name, folds=folds, **able, chance=chance)
        session = ValuesTarget.connect(self.target)
        create(session, history.table)
        session.close()

    def attempt(self) -> None:
        """Runs from the claim to the end of the log, which is cut at random."""
        history = self.history
        first = Checkpoint(task="t", source="s", worker=0, lsn=Lsn(0, 1, 4), position=str(Position("bin.000001", 4)))
        session = self.target.connect()
        checkpoints = session.meta.checkpoints.claim("t", "s", self.workers, first)
        watched = session.schema.collision_columns(history.structure)
        session.close()
        begin = sum(history.end(number) <= min(c.lsn for c in checkpoints) for number in range(len(history.states) - 1))
        rules = self.writing()
        context = self.context(checkpoints[0].epoch, rules)
        moved_keys = MovedKeysCleanup(context, checkpoints, lambda _: None)
        with Committer(self.target, "t", "s", checkpoints[0].epoch, sleep=lambda _: None, rules=rules) as committer:
            while begin < len(history.transactions):
                end = min(len(history.transactions), begin + self.chance.randrange(1, 6))
                position = str(Position("bin.000001", history.end(end - 1).offset))
                moved = [
                    replace(c, lsn=max(c.lsn, history.end(end - 1)), batch=c.batch + 1, position=position)
                    for c in checkpoints
                ]
                blobs: list[list[Blob]] = [[] for _ in range(self.workers)]
                for number, batches in enumerate(history.decoded(begin, end, self.chance.randrange(1, 4))):
                    for place, batch in enumerate(map(with_whole_keys, batches)):
                        for worker, part in enumerate(buckets(batch, self.workers, watched)):
                            if part is not None:
                                order = Blob.first_order(number) + place
                                blobs[worker].append(Blob.unpack(worker, order, Blob(worker, order, part).pack()))
                for worker in self.chance.sample(range(self.workers), self.workers):
                    self.apply(committer, Commit(tuple(checkpoints), tuple(moved)), worker, blobs[worker])
                moved_keys.batch_done(context, Commit(tuple(checkpoints), tuple(moved)), cut=self.is_long)
                begin, checkpoints = end, moved
                if any(checkpoint.lsn > history.end(end - 1) for checkpoint in checkpoints):
                    continue  # One worker is still ahead of the others.
                self.look(end)

    def look(self, end: int) -> None:
        """Compares the target with the source, when all workers have the first `end` transactions."""
        assert bag(self.rows()) == bag(self.history.states[end])

    def writing(self) -> ApplyRules:
        """Returns the rules with which the task writes."""
        if self.history.shards == 1:
            return ApplyRules(source="s")
        return ApplyRules(task="t", source="s", filters=MERGING, merged=frozenset({self.history.structure.name}))

    def context(self, epoch: int, rules: ApplyRules) -> JobContext:
        source = SourceConfig("memory", 1, "u", "p", source_id="s")
        return JobContext(
            task="t", source=source, relay=Path(), staging=Path(), target=self.target, workers=self.workers,
            epoch=epoch, change_no=0, structures={}, dialect=Dialect(), charsets={}, rules=rules.filters,
        )  # fmt: skip

    def apply(self, committer: Committer, commit: Commit, worker: int, blobs: list[Blob]) -> None:
        """Applies a batch at once, or as one that is too large: slice by slice, or some rows at a time."""
        if not self.is_long:
            apply(committer, commit, worker, blobs)
            return
        slices = [list(mine) for _, mine in itertools.groupby(blobs, key=lambda blob: blob.slice)]
        inside = None if self.split is None else Lsn(0, 1, 4)
        log_parts = [LogPart([blob.changes for blob in mine], inside) for mine in slices]
        apply_long(committer, commit, worker, lambda: log_parts, self.split, SHARDS if self.history.shards > 1 else ())

    def rows(self) -> list[Row]:
        return list(self.target.store.content(NAME).values())

    def to_the_end(self, crashes: Sequence[int]) -> None:
        """Runs to the end of the log in several processes.

        For each number in `crashes`, one process dies after this number of points of the target's transactions. The
        last process does not die.
        """
        for points in crashes:
            self.target.store.hook = Crashes([points])
            with suppress(ProcessDied):
                self.attempt()
        self.target.store.hook = None
        self.attempt()
        assert bag(self.rows()) == bag(self.history.states[-1])
        self.target.forget()
