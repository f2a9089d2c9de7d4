"""Applies all rules of a source to a change, a copied row and a table's structure.

A change passes the event filter, the expression filter, the column mappings and the route, in this order: filters read
the source's values under the source's names. After the route, only the target's names are used.

    shop_1.t_7  INSERT (1, 'a')   ->   shop.t  INSERT (1, 'a', 't_7')          where the route extracts the table's name

A copied row passes only the mappings and the route: as in DM, filters do not apply to existing rows.

If several tables map to one target table, rows of two of these tables may have the same key. They stay two rows if the
extracted columns are part of the target's key (`keyed`), as in `PRIMARY KEY (id, from_table)`. Then the extracted
columns are part of every unique key, and their collation distinguishes all texts. So rows of tables with different
extracted values never have equal keys.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pidts.model import (
    ChangeBatch,
    Column,
    ColumnType,
    EarlyFilter,
    Halted,
    Key,
    Kind,
    Lsn,
    Op,
    Table,
    TableName,
    Where,
)
from pidts.rules.allow_list import AllowList
from pidts.rules.column_mapping import PARTITION_ID, ColumnMapping, mapping_of
from pidts.rules.event_filter import EventFilter, FilterDecision
from pidts.rules.expressions import ExpressionFilter
from pidts.rules.routes import Routes
from pidts.schema.computed import mentions

EXTRACTED = ColumnType(Kind.VARCHAR, length=255, charset="utf8mb4", collation="utf8mb4_bin")
"""The type of extracted columns. It can store any name, and its collation distinguishes `T_1` and `t_1` in a key."""

_EMPTYING = ("truncate table", "drop table", "truncate table partition", "drop table partition")
"""Statements that remove rows without row events."""

_EVENTS = {Op.INSERT: "insert", Op.UPDATE: "update", Op.DELETE: "delete"}


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules that a task file has for one source. Without rules, each batch and each table stays as it is."""

    allow: AllowList = field(default_factory=AllowList)
    events: EventFilter = field(default_factory=EventFilter)
    expressions: ExpressionFilter = field(default_factory=ExpressionFilter)
    mappings: tuple[ColumnMapping, ...] = ()
    routes: Routes = field(default_factory=Routes)
    keyed: frozenset[TableName] = frozenset()
    """Target tables whose key is the source's key followed by the extracted columns."""
    several: bool = False
    """Whether the task has several sources, which may compute a target column by different expressions."""

    def with_keyed(self, keyed: frozenset[TableName]) -> Rules:
        """Returns these rules with further target tables in `keyed`: their key has the extracted columns."""
        return replace(self, keyed=self.keyed | keyed) if keyed else self

    def target_name(self, name: TableName) -> TableName:
        """Returns the table's name on the target."""
        return self.routes.destination(name).name

    def target_table(self, table: Table) -> Table:
        """Returns the table's structure on the target: renamed, mapped, with the extracted columns last.

        An extracted column is nullable unless it is part of a key: other programs may write rows that belong to no
        source. PiDTS itself never writes NULL into such a column.
        """
        mapping = mapping_of(self.mappings, table.name)
        if mapping is not None:
            table = mapping.mapped_table(_not_computed(table, mapping.target_column))
        destination = self.routes.destination(table.name)
        if (plain := table.of_any_shard) is not table and (self.several or self.routes.may_merge(table.name)):
            table = plain  # shards may compute the same column by different expressions, and not all may have ZEROFILL
        if destination.extracted:
            is_keyed = destination.name in self.keyed and bool(table.identity)
            columns = (*table.columns, *_appended(table, destination.extracted, nullable=not is_keyed))
            keys = tuple(_extended(key, destination.extracted) for key in table.keys) if is_keyed else table.keys
            table = replace(table, columns=columns, keys=keys)
        return table if destination.name == table.name else table.renamed(destination.name)

    def upstream(self, table: Table) -> TableName | None:
        """Returns the source table's name if the target table differs from the source table; otherwise None."""
        return None if self.target_table(table) is table else table.name

    def check(self, table: Table) -> None:
        """Raises if a rule cannot be applied to a table, before a change or a row needs the rule."""
        self.target_table(table)
        if self.expressions.rules:
            self.expressions.check(table)

    def drops(self, name: TableName) -> bool:
        """Whether a filter may leave out changes of this table, so that the target's rows may differ."""
        if self.expressions.concerns(name):
            return True
        return any(verdict is not FilterDecision.TAKE for verdict in self._verdicts(name).values())

    def keeps_away(self, name: TableName) -> bool:
        """Whether a filter may have left out the change that made a row, so that the target lacks the row."""
        if any(rule.concerns(name) and not rule.delete for rule in self.expressions.rules):
            return True
        return bool(self.events.rules) and any(
            self.events(name, {event}) is FilterDecision.SKIP for event in ("insert", "update")
        )

    def keeps_rows(self, name: TableName) -> bool:
        """Whether a filter may have left out the DELETE of a row, so that only the target has the row."""
        return self.drops(name) or any(self.events(name, {event}) is not FilterDecision.TAKE for event in _EMPTYING)

    def keeps_keys(self, table: Table) -> bool:
        """Whether a row has the same key on source and target, so that each can be searched with the other's keys."""
        return self.target_name(table.name) not in self.keyed and not self.maps_key(table)

    def maps_key(self, table: Table) -> bool:
        """Whether a mapping changes the keys of the table's rows."""
        mapping = mapping_of(self.mappings, table.name)
        return mapping is not None and mapping.target_column in table.identity

    def apart(self, name: TableName) -> tuple[tuple[str, str], ...]:
        """Returns the extracted values in the target's key. Rows of tables with the same values may have equal keys."""
        destination = self.routes.destination(name)
        return destination.extracted if destination.name in self.keyed else ()

    def maps_alike(self, name: TableName, other: TableName) -> bool:
        """Whether a row would get the same mapped values, and the same key, in both of these source tables."""
        here, there = self.routes.destination(name), self.routes.destination(other)
        if here.name in self.keyed and (here.name, here.extracted) != (there.name, there.extracted):
            return False
        mapping = mapping_of(self.mappings, name)
        if mapping is None or mapping != mapping_of(self.mappings, other):
            return mapping is mapping_of(self.mappings, other)
        return mapping.expression != PARTITION_ID or mapping.base(name) == mapping.base(other)

    def mapped_column(self, column: Column, name: TableName) -> Column:
        """Returns a column as the target should have it, for a clause of an ALTER."""
        mapping = mapping_of(self.mappings, name)
        return column if mapping is None else mapping.mapped_column(column, name)

    def changes(self, batch: ChangeBatch) -> ChangeBatch | None:
        """Returns the changes that the filters keep, as changes of the target's table; None if there are none."""
        early_filter = self.early_filter(batch.table)
        passed = batch if early_filter is None else early_filter.of(batch)
        return self.passed(passed) if len(passed) else None

    def early_filter(self, table: Table) -> EarlyFilter | None:
        """Returns a filter for decoding, which keeps only changes that pass all filters; None if all changes pass."""
        verdicts = self._verdicts(table.name)
        unwanted = frozenset(op for op, verdict in verdicts.items() if verdict is FilterDecision.SKIP)
        refused = frozenset(op for op, verdict in verdicts.items() if verdict is FilterDecision.REFUSE)
        if not (unwanted or refused or self.expressions.concerns(table.name)):
            return None
        dropped = partial(self._dropped, unwanted, refused)
        at = dropped if self.expressions.asks_for_time(table.name) else None
        return EarlyFilter(unwanted, dropped, at)

    def _verdicts(self, name: TableName) -> dict[Op, FilterDecision]:
        return {op: self.events(name, {event}) for op, event in _EVENTS.items()} if self.events.rules else {}

    def passed(self, batch: ChangeBatch) -> ChangeBatch:
        """Returns changes that have passed the filters, as changes of the target's table."""
        if not (self.mappings or self.routes.rules or self.several):
            return batch  # the code below would return the same, in more time
        table = batch.table
        target_table = self.target_table(table)
        if target_table is table and mapping_of(self.mappings, table.name) is None:
            return batch
        rows = batch.rows
        more = self._more(table, len(batch))
        before, after = (self._image(table, rows.column(side), more) for side in ("before", "after"))
        held = _held(rows.column("partial"), len(table.columns), len(more))
        moved = ChangeBatch.of(target_table, rows.column("lsn"), rows.column("op"), before, after, held)
        return moved if target_table is table else replace(moved, upstream=table.name)

    def rows(self, table: Table, rows: pa.Table) -> pa.Table:
        """Returns copied rows of the source's table as rows of the target's table."""
        if not self.routes.destination(table.name).extracted and mapping_of(self.mappings, table.name) is None:
            return rows
        images = (
            self._image(table, batch.to_struct_array(), self._more(table, batch.num_rows))
            for batch in rows.to_batches()
        )
        return pa.Table.from_batches(
            map(pa.RecordBatch.from_struct_array, images), schema=self.target_table(table).arrow
        )

    def _dropped(
        self, unwanted: frozenset[Op], refused: frozenset[Op], batch: ChangeBatch, times: pa.Array | None = None
    ) -> pa.BooleanArray | None:
        """Returns TRUE for changes that the expression filter drops; None if no rule applies to any of the changes.

        Halts at the first refused change. `times` has the times of the changes in the source's log.
        """
        if refused:
            _demand_none(batch, refused)
        return self.expressions.dropped(batch, unwanted, times)

    def _more(self, table: Table, count: int) -> dict[str, pa.Array]:
        """Returns the extracted columns, each with its value `count` times."""
        extracted = self.routes.destination(table.name).extracted
        return {name: _repeated(value, count) for name, value in extracted}

    def _image(self, table: Table, image: pa.StructArray, more: dict[str, pa.Array]) -> pa.StructArray:
        """Returns rows of the source's table as rows of the target's table; a null row stays null."""
        mapping = mapping_of(self.mappings, table.name)
        if mapping is not None:
            image = mapping.mapped(image, table)
        if not more:
            return image
        fields = [*image.type, *(pa.field(name, EXTRACTED.arrow) for name in more)]
        if image.null_count == len(image):
            return pa.nulls(len(image), pa.struct(fields))
        columns = [*(image.field(place) for place in range(image.type.num_fields)), *more.values()]
        mask = image.is_null() if image.null_count else None
        return pa.StructArray.from_arrays(columns, fields=fields, mask=mask)


def _not_computed(table: Table, mapped: str) -> Table:
    """Removes the expressions of computed columns that read a mapped column: the target would compute other values."""
    if not any(mentions(column.computed, mapped) for column in table.columns):
        return table
    columns = (replace(one, computed="") if mentions(one.computed, mapped) else one for one in table.columns)
    return replace(table, columns=tuple(columns))


def _repeated(value: str, count: int) -> pa.StringArray:
    """Returns an array with the same text `count` times. Arrow's own `repeat` takes six times as long."""
    data = value.encode()
    ends = np.arange(count + 1, dtype=np.int32) * np.int32(len(data))
    ends[-1] = len(data) * count  # raises beyond 2 GiB, Arrow's limit for texts, which `repeat` would exceed
    return pa.Array.from_buffers(pa.string(), count, [None, pa.py_buffer(ends), pa.py_buffer(data * count)])


def _demand_none(batch: ChangeBatch, refused: frozenset[Op]) -> None:
    ops = batch.rows.column("op")
    first = pc.index(pc.is_in(ops, value_set=pa.array(map(int, refused), ops.type)), value=True).as_py()
    if first < 0:
        return
    raise Halted(
        "event-refused",
        f"an event filter of the task file refuses each {_EVENTS[Op(ops[first].as_py())]} of this table",
        where=Where(table=str(batch.table.name), position=str(Lsn.from_bytes(batch.rows.column("lsn")[first].as_py()))),
        todo="See what the source wrote at this position; then change the filter's action, or leave the table out",
    )


def _appended(table: Table, extracted: tuple[tuple[str, str], ...], *, nullable: bool) -> list[Column]:
    taken = {column.name.lower() for column in table.columns} & {name.lower() for name, _ in extracted}
    if taken:
        raise Halted(
            "extracted-column-exists",
            f"the route extracts a column {min(taken)}, but the table itself has a column of this name",
            where=Where(table=str(table.name)),
            todo="Give the extracted column another name: target-column in the task file's routes",
        )
    return [Column(name, EXTRACTED, nullable=nullable) for name, _ in extracted]


def _extended(key: Key, extracted: tuple[tuple[str, str], ...]) -> Key:
    return replace(key, columns=(*key.columns, *(name for name, _ in extracted))) if key.unique or key.primary else key


def _held(partial: pa.Array, own: int, appended: int) -> pa.Array:
    """Extends the bitmaps of partial images by the appended columns, which every image has."""
    if not appended or partial.null_count == len(partial):
        return partial
    step, width = (own + 7) // 8, (own + appended + 7) // 8
    bits = ((1 << appended) - 1) << own
    encoded = partial.dictionary_encode()
    maps = [
        b"".join(
            (int.from_bytes(data[at : at + step], "little") & ((1 << own) - 1) | bits).to_bytes(width, "little")
            for at in range(0, len(data), step)
        )
        for data in encoded.dictionary.to_pylist()
    ]
    return pa.array(maps, partial.type).take(encoded.indices)


def together(rules: Rules, names: Iterable[TableName]) -> dict[TableName, tuple[TableName, ...]]:
    """Returns, for each target table, the source's tables that are routed to it."""
    found: dict[TableName, list[TableName]] = {}
    for name in names:
        found.setdefault(rules.target_name(name), []).append(name)
    return {target_table: tuple(sorted(members)) for target_table, members in found.items()}


def merged(rules: Rules, names: Iterable[TableName]) -> frozenset[TableName]:
    """Returns the target tables to which several of the source tables `names` map."""
    if not rules.routes.rules:
        return frozenset()
    return frozenset(target_table for target_table, members in together(rules, names).items() if len(members) > 1)
