"""A source, a target and a log in memory. Between any two questions of a comparison, time passes."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from pidts.model import Lsn, Table, TableName
from pidts.verify import EstimatedSize, Key, KeySpan, MergedCatchUp, MergedSource, MergedTable, NotCaughtUp, Order, Sum

Row = tuple[Any, ...]
Rows = dict[Any, Row]


def arrow(table: Table, rows: Sequence[Row]) -> pa.Table:
    columns = zip(*rows, strict=True) if rows else [()] * len(table.columns)
    return pa.Table.from_arrays(
        [pa.array(values, field.type) for values, field in zip(columns, table.arrow, strict=True)], schema=table.arrow
    )


@dataclass
class ComparedTable:
    """One table whose first column is its key, a number."""

    table: Table
    source: Rows
    target: Rows
    tick: Callable[[ComparedTable], None] = lambda _: None
    """What happens between two questions of a comparison."""
    log: list[tuple[Any, Row | None]] = field(default_factory=list)
    applied: int = 0
    on_apply: Callable[[Any], None] = lambda _: None
    runs: bool = True
    waits: str = ""
    """The reason why the applier waits."""
    knows_log: bool = True
    order: Order = Order.SAME
    sums: bool = True
    questions: list[str] = field(default_factory=list)
    extracted: dict[str, str] = field(default_factory=dict)
    documents: Collection[str] = ()
    """The columns that are JSON on the target."""
    locked: set[Any] = field(default_factory=set)
    """The keys whose rows are set aside."""
    largest: int = 0
    """The largest number of rows that were returned at once."""

    def write(self, key: Any, row: Row | None) -> None:
        self.log.append((key, row))
        _put(self.source, key, row)

    def apply(self, upto: int) -> None:
        upto = min(upto, len(self.log))
        for key, row in self.log[self.applied : upto]:
            _put(self.target, key, row)
            self.on_apply(key)
        self.applied = max(self.applied, upto)

    def asked(self, question: str) -> None:
        self.questions.append(question)
        # Another thread reads the target's rows, while the questions to the source make time pass.
        if threading.current_thread() is threading.main_thread():
            self.tick(self)

    def handed(self, rows: Sequence[Row]) -> pa.Table:
        self.largest = max(self.largest, len(rows))
        return arrow(self.table, rows)


def _put(rows: Rows, key: Any, row: Row | None) -> None:
    if row is None:
        rows.pop(key, None)
    else:
        rows[key] = row


def _in(span: KeySpan, key: Any) -> bool:
    return (span.after is None or key > span.after[0]) and (span.upto is None or key <= span.upto[0])


class Source:
    """The source of a compared table as the only member of the target's table."""

    def __init__(self, compared: ComparedTable, label: str = "one") -> None:
        self.compared, self.label, self.catch_up = compared, label, self

    @property
    def name(self) -> TableName:
        return self.compared.table.name

    @property
    def extracted(self) -> dict[str, str]:
        return self.compared.extracted

    def size(self) -> EstimatedSize:
        return EstimatedSize(len(self.compared.source), 16)

    def highest(self) -> Key | None:
        return [max(self.compared.source)] if self.compared.source else None

    def spans(self, span: KeySpan, rows: int) -> Iterator[KeySpan]:
        after = span.after
        while True:
            keys = sorted(key for key in self.compared.source if _in(KeySpan(after, span.upto), key))
            if len(keys) <= rows:
                yield KeySpan(after, span.upto)
                return
            yield KeySpan(after, [keys[rows - 1]])
            after = [keys[rows - 1]]

    def sum(self, span: KeySpan) -> Sum | None:
        self.compared.asked("source.sum")
        return _sum(self.compared.source, span)

    def rows(self, span: KeySpan) -> pa.Table:
        self.compared.asked("source.rows")
        return self.compared.handed([row for key, row in self.compared.source.items() if _in(span, key)])

    def find(self, keys: pa.Table) -> pa.Table:
        self.compared.asked("source.find")
        return self.compared.handed(_found(self.compared.source, keys))

    def count(self) -> int:
        return len(self.compared.source)

    def all(self) -> Iterator[pa.Table]:
        self.compared.asked("source.all")
        yield arrow(self.compared.table, list(self.compared.source.values()))

    def settled(self) -> Lsn:
        return Lsn(0, 1, len(self.compared.log))

    def place(self) -> Lsn:
        self.compared.asked("place")
        return Lsn(0, 1, len(self.compared.log))

    def await_target(self, table: TableName, lsn: Lsn) -> NotCaughtUp | None:
        self.compared.asked("reached")
        if self.compared.runs and not self.compared.waits:
            self.compared.apply(lsn.offset)
        return None if self.compared.applied >= lsn.offset else NotCaughtUp(self.compared.waits)

    def untouched(self, table: TableName, after: Lsn, upto: Lsn) -> bool:
        return self.compared.knows_log and after == upto


def merged(*compared_tables: ComparedTable) -> tuple[MergedSource, MergedCatchUp]:
    """Makes the tables members of one merged table."""
    table = compared_tables[0].table
    members = tuple(Source(compared, f"s{number}") for number, compared in enumerate(compared_tables))
    merged = MergedTable(table, table, members)
    source = MergedSource(lambda: {table.name: merged}, lambda _: frozenset(one.label for one in members))
    return source, MergedCatchUp(lambda: source.merged_tables)


class Target:
    def __init__(self, compared: ComparedTable) -> None:
        self.compared = compared

    @property
    def has_sums(self) -> bool:
        return self.compared.sums

    def order(self, table: Table) -> Order:
        return self.compared.order

    def misfits(self, table: Table) -> list[str] | None:
        return []

    def documents(self, table: Table) -> Collection[str]:
        return self.compared.documents

    def sum(self, table: Table, span: KeySpan) -> Sum | None:
        self.compared.questions.append("target.sum")  # The source's question, on another thread, makes time pass.
        return _sum(dict(self.compared.target), span) if self.compared.sums else None

    def find(self, table: Table, keys: pa.Table) -> pa.Table:
        self.compared.asked("target.find")
        return self.compared.handed(_found(self.compared.target, keys))

    def locked(self, table: Table, keys: pa.Table) -> list[int]:
        return [place for place, key in enumerate(keys.column(0).to_pylist()) if key in self.compared.locked]

    def keys(self, table: Table, after: Key | None, rows: int) -> tuple[pa.Table, Key | None]:
        self.compared.asked("target.keys")
        backwards, target = self.compared.order is Order.OTHER, dict(self.compared.target)
        keys = sorted(target, reverse=backwards)
        if after is not None:
            keys = [key for key in keys if (key < after[0] if backwards else key > after[0])]
        found = arrow(table, [target[key] for key in keys[:rows]]).select(list(table.identity))
        return found, [keys[:rows][-1]] if keys else None

    def all(self, table: Table) -> Iterator[pa.Table]:
        self.compared.asked("target.all")
        yield arrow(table, list(self.compared.target.values()))


def _found(rows: Mapping[Any, Row], keys: pa.Table) -> list[Row]:
    found = (rows.get(key) for key in keys.column(0).to_pylist())
    return [row for row in found if row is not None]


def _sum(rows: Rows, span: KeySpan) -> Sum:
    inside = [row for key, row in rows.items() if _in(span, key)]
    return Sum(len(inside), sum(hash(row) % 2**60 for row in inside))


class Traffic:
    """Random writes on the source and progress on the target; records which of the target's rows are wrong."""

    def __init__(self, seed: int, keys: Sequence[int], lag: int = 6, writes: int = 3) -> None:
        self._dice, self._keys, self._lag, self._writes = random.Random(seed), keys, lag, writes
        self.wrong: set[int] = set()

    def __call__(self, compared: ComparedTable) -> None:
        for _ in range(self._dice.randrange(self._writes)):
            key = self._dice.choice(self._keys)
            # Only two values: rows often get a former value again.
            compared.write(key, None if self._dice.random() < 0.3 else (key, self._dice.randrange(2)))
        behind = len(compared.log) - compared.applied
        compared.apply(compared.applied + self._dice.randrange(max(behind - self._lag, 0) + 2))

    def plant(self, compared: ComparedTable, key: int, row: Row | None) -> None:
        compared.on_apply = self.wrong.discard
        self.wrong.add(key)
        _put(compared.target, key, row)
