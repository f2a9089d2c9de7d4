"""Converts changes of one target table under several structures to changes under one structure with all columns.

The members of a merged table need not have the same columns at every moment: one shard already has a new column,
another does not. A batch with rows of both shards is reduced as one, so each row also gets the columns that its own
shard lacks. While a column has two types, as during a change from INT to BIGINT, all rows get the wider type.

If a row's shard lacks a column, the row gets the column's constant default, or else NULL. This value is written only
for tables without a key. In a table with a key, each row is written with the columns that its own table has (see
`own_columns`). In the other columns, the target fills in values if the row is new to its table (see
`pidts.apply.merge.extra_columns`). If the row is changed, these columns keep their values. Two shards may have
different defaults. Then only the target's rows show which default each row has.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TypeAlias

import pyarrow as pa

from pidts.apply.merge.differences import differences_text
from pidts.model import ChangeBatch, Column, Halted, Key, Table, TableName, Where
from pidts.schema.column_defaults import default_value
from pidts.shards.structures import joined, names_of


def aligned(batches: Sequence[ChangeBatch]) -> list[ChangeBatch]:
    """Returns these changes, converted so that all changes of a target table have one structure."""
    structures: dict[TableName, list[Table]] = {}
    for batch in batches:
        known = structures.setdefault(batch.table.name, [])
        if len(batch) and batch.table not in known:
            known.append(batch.table)
    wholes = {
        name: whole_of(tables)
        for name, tables in structures.items()
        if len({tuple(zip(table.arrow.names, table.arrow.types, strict=True)) for table in tables}) > 1
    }
    return [_under(batch, wholes[batch.table.name]) if batch.table.name in wholes else batch for batch in batches]


OwnColumns: TypeAlias = dict[TableName, dict[TableName, frozenset[str]]]
"""The columns of each source table, for target tables with changes under several structures."""


def own_columns(batches: Sequence[ChangeBatch]) -> OwnColumns:
    """Returns the columns of each source table, in lower case; `batches` have the changes before `aligned`."""
    found: OwnColumns = {}
    for batch in batches:
        if len(batch):
            tables = found.setdefault(batch.table.name, {})
            tables[batch.origin] = tables.get(batch.origin, frozenset()) | names_of(batch.table)
    return {name: tables for name, tables in found.items() if len(set(tables.values())) > 1}


def whole_of(tables: Sequence[Table]) -> Table:
    """Returns a structure that has all columns of all these tables."""
    whole = joined(tables)
    if whole is None:
        first, other = tables[0], next(table for table in tables if joined([tables[0], table]) is None)
        raise Halted(
            "structures-differ",
            f"tables that are merged have structures that cannot be combined: {differences_text(first, other)}",
            where=Where(table=str(first.name)),
            todo="Give these tables the same structure; until then, leave out those that differ (block-allow-list)",
        )
    return replace(whole, keys=_keys(tables))


def _keys(tables: Iterable[Table]) -> tuple[Key, ...]:
    keys: dict[tuple[tuple[str, ...], bool], Key] = {}
    for key in (key for table in tables for key in table.keys):
        keys.setdefault((key.columns, key.unique or key.primary), key)
    return tuple(keys.values())


def _under(batch: ChangeBatch, whole: Table) -> ChangeBatch:
    table, rows = batch.table, batch.rows
    if table.columns == whole.columns:
        return replace(batch, table=whole)
    names = {column.name.lower(): place for place, column in enumerate(table.columns)}
    places = [names.get(column.name.lower()) for column in whole.columns]
    more = [
        None if place is not None else _filling(column) for place, column in zip(places, whole.columns, strict=True)
    ]
    before, after = (_image(rows.column(side), places, more, whole) for side in ("before", "after"))
    partial = _moved(rows.column("partial"), len(table.columns), places)
    return replace(ChangeBatch.of(whole, rows["lsn"], rows["op"], before, after, partial), upstream=batch.upstream)


def _filling(column: Column) -> pa.Array:
    value = default_value(replace(column, auto_increment=False, generated=False))
    if value is None or (value.null_count and not column.nullable):
        return pa.nulls(1, column.type.arrow)
    return value


def _image(
    image: pa.StructArray, places: Sequence[int | None], more: Sequence[pa.Array | None], whole: Table
) -> pa.StructArray:
    fields, size = list(whole.arrow), len(image)
    if image.null_count == size:
        return pa.nulls(size, pa.struct(fields))
    columns = []
    for field, place, value in zip(fields, places, more, strict=True):
        if place is not None:
            columns.append(image.field(place).cast(field.type))
        else:
            assert value is not None, "a column that the table lacks has a value"  # noqa: S101
            columns.append(pa.repeat(value[0], size) if value[0].is_valid else pa.nulls(size, field.type))
    return pa.StructArray.from_arrays(columns, fields=fields, mask=image.is_null() if image.null_count else None)


def _moved(partial: pa.Array, own: int, places: Sequence[int | None]) -> pa.Array:
    """Converts the bitmaps of known columns from the columns of their own table to the common columns."""
    if partial.null_count == len(partial):
        return partial
    step, width = (own + 7) // 8, (len(places) + 7) // 8
    encoded = partial.dictionary_encode()
    maps = []
    for data in encoded.dictionary.to_pylist():
        found = b""
        for at in range(0, len(data), step):
            held = int.from_bytes(data[at : at + step], "little")
            bits = sum(1 << new for new, old in enumerate(places) if old is None or held >> old & 1)
            found += bits.to_bytes(width, "little")
        maps.append(found)
    return pa.array(maps, partial.type).take(encoded.indices)
