"""Rows that only the task writes never differ, whatever values they have. A change by another program is found.

Random tables of all types are filled and changed on a real source. Its log is applied to a real target in parts, and
each change is compared with the target's row: none may differ. Then single values are changed on the target, by as
little as the type allows. The DELETE of all rows must find these rows and no others.

PIDTS_EXAMPLES=7 with PIDTS_ROWS=1000 compares a million changes over all pairs of servers, in a quarter of an hour.
"""

from __future__ import annotations

import itertools
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from decimal import Context, Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, Phase, given, note, settings
from hypothesis import strategies as st
from tests.binlog.logs.random_tables import RandomTable, tables
from tests.binlog.logs.round_trip import RoundTrip
from tests.conftest import RunSql
from tests.examples import EXAMPLES, examples
from tests.target.conformance.samples import write

from pidts.apply import ApplyRules, TargetSession, prepared
from pidts.apply.locks.divergence import compared, joined
from pidts.apply.locks.key_rows import read_key_rows
from pidts.binlog import decode_slice
from pidts.model import ChangeBatch, Column, Halted, Kind, OnDivergence, Op, Table, TableName
from pidts.reduce import Counts, NetChange, with_whole_keys

from .test_on_servers import create, target_on

ROWS = int(os.environ.get("PIDTS_ROWS", "0")) or 60
ROUNDS = 4 if ROWS < 500 else 10
DIGITS = Context(prec=80)
TEXT = 1 << 20
"""The largest size of the SQL that fills a table, in bytes."""
PAIRS = [("mariadb", "postgres"), ("mysql97", "mariadb"), ("mysql56", "mysql97"), ("mysql97", "mysql56")]
SERVERS = ("mariadb", "mysql97", "mysql56"), ("postgres", "mariadb", "mysql97", "mysql56")
LONGER = [pair for pair in itertools.product(*SERVERS) if pair not in PAIRS]
RULES = ApplyRules(task="t", source="s", on_divergence=OnDivergence.HALT)
UNWRITABLE = {"target-refused", "nul-in-text"}
"""The error codes for a value or a table that a target cannot store."""


_numbers = itertools.count(int(time.time()) % 1_000_000 * 1000)


class Pair:
    """Random tables that are carried from a source to a target."""

    def __init__(self, trip: RoundTrip, target: TargetSession, chance: random.Random, counts: Counter[str]) -> None:
        self.trip, self.target, self.chance, self.counts = trip, target, chance, counts
        self.schema = f"no_false_locks_{next(_numbers)}"
        self.holds_nul = not target.schema.transactional_ddl
        """PostgreSQL cannot store the character NUL in a text."""

    def filled(self, drawn: Sequence[RandomTable]) -> list[ChangeBatch]:
        """Fills, changes and empties the tables. Returns the changes from the source's log."""
        self.trip.run("FLUSH LOGS")  # Otherwise the log could change to the next file in the middle of the changes.
        begin = self.trip.begin()
        for number, table in enumerate(drawn):
            for statement in self._statements(f"{self.trip.schema}.t{number}", table):
                self.trip.run(statement)
        structures = self.trip.structures()
        emptied = [f"DELETE FROM {name}" for name in structures]
        for statement in emptied:
            self.trip.run(statement)
        if self.trip.end().file != begin.file:
            self.counts["too long for a file of the log"] += 1
            return []
        log, form, (file, offset) = self.trip.log_since(begin)
        found: dict[TableName, list[ChangeBatch]] = {}
        for part in decode_slice(log, format=form, log_file=file, change_no=0, structures=structures, offset=offset):
            found.setdefault(part.table.name, []).append(part)
        return [joined(parts) for parts in found.values()]

    def _statements(self, name: str, table: RandomTable) -> Iterator[str]:
        chance, known = self.chance, [*table.rows, *table.later]
        if not self.holds_nul:
            known = [[without_nul(value) for value in row] for row in known]
        filled = [column.quoted for column in table.columns if column.values is not None]
        size = max(1, *(sum(map(len, row)) for row in known))
        count = min(ROWS, TEXT // size + 1)
        yield table.statements(name)[0]
        rows = [[chance.choice(known)[place] for place in range(len(filled))] for _ in range(count)]
        values = ", ".join(f"({', '.join([str(number), *row])})" for number, row in enumerate(rows))
        yield f"INSERT INTO {name} ({', '.join(['`i d`', *filled])}) VALUES {values}"
        for _ in range(ROUNDS if filled else 0):
            changed = chance.sample(filled, chance.randrange(1, len(filled) + 1))
            sets = ", ".join(f"a.{column} = b.{column}" for column in changed)
            other = f"(a.`i d` + {chance.randrange(1, count + 1)}) % {count}"
            yield f"UPDATE {name} a JOIN {name} b ON b.`i d` = {other} SET {sets} WHERE a.`i d` % 3 <> {chance.randrange(3)}"

    def carry(self, batch: ChangeBatch) -> None:
        """Applies all changes except the last change of each row, changes rows on the target, and compares the last
        changes.
        """
        table = batch.table.renamed(TableName(self.schema, batch.table.name.name))
        changes = with_whole_keys(ChangeBatch(table, batch.rows))
        is_last = pc.equal(changes.rows.column("op"), int(Op.DELETE))
        rest, last = (changes.rows.filter(mask) for mask in (pc.invert(is_last), is_last))
        try:
            create(self.target, table)
            for part in self._cut(rest):
                self.target.begin()
                for change in prepared(self.target, [ChangeBatch(table, part)], RULES):
                    self.target.write(change)
                self.target.commit()
        except Halted as halted:
            self.target.rollback()
            if halted.code not in UNWRITABLE:
                raise
            self.counts[f"not held by the target: {halted.code}"] += 1
            self.counts["_" + str(halted.what)[:150]] += 1
            return
        self.counts["changes"] += len(changes)
        planted = self._planted(table, last.num_rows)
        self.counts["planted"] += len(planted)
        self.target.begin()
        found = compared(self.target, read_key_rows(self.target, ChangeBatch(table, last)), (), None).divergence()
        self.target.rollback()
        keys = [] if found is None else found.events.keys.take(pa.array(found.keys)).column(0).to_pylist()
        note(f"planted {planted}")
        assert set(keys) == set(planted), {
            key: planted.get(key, found and found.why(keys.index(key))) for key in {*keys} ^ {*planted}
        }

    def _cut(self, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        begin = 0
        while begin < rows.num_rows:
            size = self.chance.randrange(1, max(2, ROWS))
            yield rows.slice(begin, size)
            begin += size

    def _planted(self, table: Table, count: int) -> dict[int, str]:
        """Changes rows on the target. Returns the key and the column of each change."""
        found = {}
        keys = self.chance.sample(range(count), min(count, 3 * len(table.columns)))
        for place, key in enumerate(keys):
            column = table.columns[1 + place % (len(table.columns) - 1)]
            wanted = pa.table({"i d": pa.array([key], pa.int32())})
            before = self.target.read_rows(table, keys=wanted)
            value = other_value(before[column.name].combine_chunks(), column, self.chance)
            if column.generated or value is None or not before.num_rows:
                continue
            row = before.set_column(table.columns.index(column), table.arrow.field(column.name), value)
            try:
                write(self.target, NetChange(table, before.select(["i d"]).slice(0, 0), row, Counts()))
            except Halted:
                self.target.rollback()
                continue
            if not same(self.target.read_rows(table, keys=wanted), before):
                found[key] = f"{column.name} {column.type}: {before[column.name]} -> {value}"
        return found


def without_nul(literal: str) -> str:
    """Returns the literal without NUL characters, which PostgreSQL cannot store."""
    if not literal.startswith("_utf8mb4 x'"):
        return literal
    return f"_utf8mb4 x'{bytes.fromhex(literal[11:-1]).replace(bytes(1), b'').hex()}'"


def same(one: pa.Table, other: pa.Table) -> bool:
    """Returns whether all bytes of two tables are the same."""
    return all(
        bits(mine.combine_chunks()) == bits(theirs.combine_chunks())
        for mine, theirs in zip(one.columns, other.columns, strict=True)
    )


def bits(values: pa.Array) -> list[Any]:
    return [None if each is None else float(each).hex() if isinstance(each, float) else each for each in plain(values)]


def plain(values: pa.Array) -> list[Any]:
    """Returns dates and times as the numbers of their Arrow arrays, since some are not real dates."""
    kind = values.type
    if pa.types.is_date32(kind):
        values = values.view(pa.int32())
    elif pa.types.is_temporal(kind):
        values = values.view(pa.int64())
    return list(values.to_pylist())


def other_value(values: pa.Array, column: Column, chance: random.Random) -> pa.Array | None:
    """Returns an array with NULL, or with a value next to the one in `values`; None if there is no such value."""
    (value,) = plain(values)
    if value is not None and column.nullable and chance.random() < 0.2:
        return pa.nulls(1, values.type)
    made = near(value, column, chance)
    if made is None:
        return None
    kind = values.type
    if pa.types.is_temporal(kind):
        return pa.array([made], pa.int32() if pa.types.is_date32(kind) else pa.int64()).view(kind)
    return pa.array([f"{made:f}"]).cast(kind) if isinstance(made, Decimal) else pa.array([made], kind)


def near(value: Any, column: Column, chance: random.Random) -> Any:
    kind = column.type
    if kind.kind in (Kind.UUID, Kind.INET4, Kind.INET6, Kind.GEOMETRY):
        return None  # The test makes no nearby value of these types.
    if kind.kind is Kind.ENUM or kind.kind is Kind.SET:
        return chance.choice([label for label in kind.labels if label != value] or [None])
    if kind.kind is Kind.JSON:
        return '{"planted": 1}'
    if kind.is_text and not value:
        return " " if value == "" else ""
    if value is None:
        return {Kind.DECIMAL: Decimal(0), Kind.DATE: 10_000, Kind.YEAR: 2000}.get(
            kind.kind, b"" if kind.is_bytes else 0
        )
    if kind.kind is Kind.YEAR:
        return value + 1 if 1901 <= value < 2155 else 1901
    if kind.is_integer or kind.kind is Kind.BIT:
        return value ^ 1
    if kind.kind is Kind.DECIMAL:
        last = Decimal(1).scaleb(-(kind.scale or 0))
        return DIGITS.subtract(value, last) if value > 0 else DIGITS.add(value, last)
    if kind.kind is Kind.FLOAT:
        return float(np.nextafter(np.float32(value), np.float32(0 if value else 1)))
    if kind.kind is Kind.DOUBLE:
        return float(np.nextafter(value, 0.0 if value else 1.0))
    if kind.kind is Kind.DATE:
        return value + 1
    if kind.kind in (Kind.TIME, Kind.DATETIME, Kind.TIMESTAMP):
        unit = 10 ** (6 - kind.fsp)
        return value - unit if value > 0 else value + unit
    if kind.is_bytes:
        return bytes([*value[:-1], value[-1] ^ 1]) if value else b"\1"
    return chance.choice([value.swapcase(), value[:-1], value + " ", " " + value[1:], value[:-1] + "e"])


def carried(request: Any, run_sql: RunSql, pair: tuple[str, str]) -> Counter[str]:
    server, other = (request.getfixturevalue(kind) for kind in pair)
    found: Counter[str] = Counter()
    with (
        closing(RoundTrip(server, [], f"nfl_{pair[0]}_{pair[1]}")) as trip,
        closing(target_on(other).connect()) as target,
    ):
        target.meta.prepare()

        @settings(
            max_examples=examples(6),
            deadline=None,
            phases=[Phase.reuse, Phase.generate, *([Phase.shrink] if EXAMPLES == 2 else [])],
            suppress_health_check=list(HealthCheck),
        )
        @given(tables(server.kind), st.integers(0, 2**32))
        def holds(drawn: list[RandomTable], seed: int) -> None:
            way = Pair(trip, target, random.Random(seed), found)
            for table in drawn:
                note(repr(table))
            try:
                for batch in way.filled(drawn):
                    way.carry(batch)
            finally:
                schema = "SCHEMA" if other.kind == "postgres" else "DATABASE"
                run_sql(other, f"DROP {schema} IF EXISTS {way.schema}" + (" CASCADE" if schema == "SCHEMA" else ""))

        try:
            holds()
        finally:
            trip.run(f"DROP DATABASE IF EXISTS {trip.schema}")
    sys.stdout.write(f"{pair}: {dict(found)}\n")
    return found


@pytest.mark.timeout(3600 if EXAMPLES else 300)
@pytest.mark.parametrize("pair", PAIRS, ids="-".join)
def test_no_row_differs_except_those_that_another_program_has_changed(request, run_sql, pair):
    carried(request, run_sql, pair)


@pytest.mark.long
@pytest.mark.timeout(3600 if EXAMPLES else 300)
@pytest.mark.parametrize("pair", LONGER, ids="-".join)
def test_no_row_differs_between_other_servers_either(request, run_sql, pair):
    carried(request, run_sql, pair)
