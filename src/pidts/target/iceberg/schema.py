"""The structures of a warehouse's tables, and the statements, in JSON, that change these structures.

A table contains the source's structure as a property, in addition to the Iceberg schema that readers see. Columns are
identified by ids, so adding, dropping, renaming or widening a column rewrites no row. A change that gives existing rows
other values rewrites the table's rows.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pyarrow as pa
import structlog
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.table.update import AddSchemaUpdate, SetCurrentSchemaUpdate, SetPropertiesUpdate
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    NestedField,
    PrimitiveType,
    StringType,
    TimestampType,
    TimestamptzType,
)

import pidts.schema.actions as alter
import pidts.schema.statements as ddl
from pidts.model import Column, ColumnType, Halted, Kind, RenderedChange, Table, TableName, Where
from pidts.model.advice import RESYNC, SKIP
from pidts.model.errors import named
from pidts.reduce import watched_columns
from pidts.schema import Statement
from pidts.schema.column_defaults import default_value
from pidts.schema.kept_names import kept_names
from pidts.schema.statement_time import UNKNOWN_TIME, StatementTime
from pidts.target.difference import difference, recomputed, refuse_unfillable, unfillable
from pidts.target.iceberg.catalog import Catalog
from pidts.target.iceberg.columns import decode, encode, stored_type
from pidts.target.iceberg.conversion import converted, keeps_letters, surely_fits, widens
from pidts.target.iceberg.metadata_file import STRUCTURE, MetadataFile, data_field
from pidts.target.iceberg.open_table import OpenTable, filling
from pidts.target.iceberg.publish import replace_metadata, write_metadata

Structures = Mapping[TableName, Table | None]

_log = structlog.get_logger(__name__)
_UNREAL = frozenset({Kind.DATE, Kind.DATETIME})
"""Kinds of columns in which NULL may stand for a zero or partial date, even after the column has become NOT NULL."""
_PLAIN: dict[pa.DataType, PrimitiveType] = {
    pa.bool_(): BooleanType(),
    pa.int32(): IntegerType(),
    pa.int64(): LongType(),
    pa.float32(): FloatType(),
    pa.float64(): DoubleType(),
    pa.date32(): DateType(),
    pa.timestamp("us"): TimestampType(),
    pa.timestamp("us", "UTC"): TimestamptzType(),
    pa.string(): StringType(),
    pa.binary(): BinaryType(),
}
_UNSAFE = re.compile(r"[^A-Za-z0-9_-]")
_PROPERTIES = {"format-version": "2", "write.delete.mode": "merge-on-read", "write.update.mode": "merge-on-read"}


class IcebergSchema:
    """The structures and the statements of one session."""

    transactional_ddl = True
    holds_unreal_dates = False

    def __init__(self, catalog: Catalog, read: Callable[[TableName], MetadataFile | None]) -> None:
        self._catalog, self._read = catalog, read

    def structure(self, name: TableName) -> Table | None:
        """Returns the structure that is stored in the table; None if there is no table."""
        found = self._read(name)
        return found.table if found else None

    def collision_columns(self, table: Table) -> tuple[str, ...]:
        """Returns no columns: an Iceberg table has no unique keys besides the identity."""
        return watched_columns(table, ())

    def read_ahead(self, tables: Iterable[Table]) -> None:
        """Does nothing: each table has its own metadata file, so reading several tables at once would save no time."""

    def misfits(self, table: Table) -> list[str] | None:
        """Returns why rows of this structure do not fit the stored table; None if there is no such table."""
        stored = self.structure(table.name)
        return None if stored is None else misfits(table, stored)

    def declared(self, name: TableName) -> Table | None:
        """Returns the same as `structure`."""
        return self.structure(name)

    def write_obstacles(self, name: TableName) -> list[str]:  # noqa: ARG002 - nothing checks rows here
        """Returns nothing: a warehouse has no foreign keys or triggers."""
        return []

    def computed_otherwise(self, table: Table) -> list[str]:  # noqa: ARG002 - generated columns are plain ones here
        """Returns nothing: a warehouse computes no columns."""
        return []

    def fingerprint(self, name: TableName) -> str | None:
        """Returns the structure as text; None if there is no such table."""
        stored = self.structure(name)
        return json.dumps(stored.to_json()) if stored else None

    def column_types(self, table: Table) -> tuple[str, ...]:
        """Returns each column's type in Iceberg."""
        return tuple(str(iceberg_type(column.type)) for column in table.columns)

    def create_statements(self, table: Table, *, before_copy: bool = False) -> RenderedChange:  # noqa: ARG002 - no keys
        """Returns the statement that creates the table."""
        return RenderedChange((json.dumps({"create": table.to_json()}),))

    def finish_statements(self, table: Table) -> RenderedChange:  # noqa: ARG002 - no keys or counters
        """Returns nothing: there are no keys or counters to make."""
        return RenderedChange(())

    def ddl_statements(
        self, statement: Statement, before: Structures, after: Structures, executed_at: StatementTime = UNKNOWN_TIME
    ) -> RenderedChange:
        """Returns one statement for each table."""
        return RenderedChange(tuple(json.dumps(step) for step in _steps(statement, before, after, executed_at)))


def iceberg_type(kind: ColumnType) -> PrimitiveType:
    """Returns the type that readers of the table see."""
    stored = stored_type(kind)
    if pa.types.is_decimal(stored):
        return DecimalType(stored.precision, stored.scale)
    return _PLAIN[stored]


def misfits(table: Table, stored: Table) -> list[str]:
    """Returns the reasons why rows of a structure cannot be written to a table."""
    have = {column.name: column for column in stored.columns}
    missing = [column.name for column in table.columns if column.name not in have]
    found = [f"it lacks {named('column', sorted(missing))}"] if missing else []
    if set(stored.identity) != set(table.identity):
        found.append(f"its identity is ({', '.join(stored.identity)})")
    needy = [
        one.name
        for one in stored.columns
        if one.name not in table.arrow.names and not one.nullable and one.default is None and not one.generated
    ]
    if needy:
        found.append(f"its {named('column', needy, 'needs', 'need')} a value, and the source has no such column")
    narrow = [one for one in table.columns if one.name in have and not _holds(have[one.name].type, one.type)]
    return found + [
        f"column {one.name} is {iceberg_type(have[one.name].type)} and cannot hold every value of the source's "
        f"{iceberg_type(one.type)}"
        for one in narrow
    ]


def truncations(statements: Iterable[str]) -> Iterator[tuple[TableName, int]]:
    """Yields the tables that statements empty, with the source's time of the statement, in seconds since 1970."""
    for sql in statements:
        with suppress(ValueError):
            step = json.loads(sql)
            if "truncate" in step:
                yield TableName(*step["truncate"]), step.get("executed_at", 0)


def run_statement(
    sql: str, files: str, catalog: Catalog, opened: Callable[[TableName], OpenTable], settle: Callable[[], None]
) -> None:
    """Executes one statement, which is JSON, in the open transaction.

    `files` is the folder in which new tables get their folders. `opened` opens a table for writing. `settle` writes the
    transaction's changes so far as snapshots.
    """
    step = json.loads(sql)
    settle()
    if "create" in step:
        table = Table.from_json(step["create"])
        if step.get("replaces"):
            catalog.drop(table.name)
        _create(table, files, catalog)
    elif "drop" in step:
        catalog.drop(TableName(*step["drop"]))
    elif "truncate" in step:
        opened(TableName(*step["truncate"])).clear()
        settle()
    elif "rename" in step:
        catalog.rename(TableName(*step["rename"]), TableName(*step["to"]))
    else:
        _alter(Table.from_json(step["alter"]), step, opened, catalog, settle)


def _steps(
    statement: ddl.Statement, before: Structures, after: Structures, executed_at: StatementTime
) -> Iterator[dict[str, Any]]:
    """Yields the steps of a statement, each for one table."""
    match statement:
        case ddl.CreateTable(table=name, or_replace=replaces) | ddl.CreateTableLike(table=name, or_replace=replaces):
            if (table := after.get(name)) is not None:
                yield {"create": table.to_json(), "replaces": replaces}
        case ddl.DropTable(tables=names):
            yield from ({"drop": _pair(name)} for name in names)
        case ddl.DropDatabase(name=schema):
            yield from ({"drop": _pair(name)} for name in sorted(before) if name.schema == schema)
        case ddl.TruncateTable(table=name):
            yield {"truncate": _pair(name), "executed_at": executed_at.seconds}
        case ddl.RenameTable(pairs=pairs):
            yield from ({"rename": _pair(old), "to": _pair(new)} for old, new in pairs)
        case ddl.AlterTable(table=name, actions=actions):
            goal = next((action.name for action in actions if isinstance(action, alter.RenameTo)), name)
            old, new = before.get(name), after.get(goal)
            if old is not None and new is not None:
                difference(statement, old, new)  # raises for changes that move rows
                yield {
                    "alter": new.renamed(name).to_json(),
                    "known": old.arrow.names,
                    "kept": kept_names(statement, old, new),
                    "unfillable": list(
                        dict.fromkeys([*unfillable(statement, old, new, executed_at), *recomputed(statement, old, new)])
                    ),
                    "executed_at": executed_at.seconds,
                    "micros": executed_at.micros,
                }
                if goal != name:
                    yield {"rename": _pair(name), "to": _pair(goal)}
        case _:
            pass


def _create(table: Table, files: str, catalog: Catalog) -> None:
    fields = [
        NestedField(place, column.name, iceberg_type(column.type), required=False, doc=column.comment or None)
        for place, column in enumerate(table.columns, start=1)
    ]
    folder = f"{_UNSAFE.sub('_', table.name.schema)}/{_UNSAFE.sub('_', table.name.name)}-{uuid.uuid4().hex[:8]}"
    metadata = new_table_metadata(
        Schema(*fields),
        UNPARTITIONED_PARTITION_SPEC,
        UNSORTED_SORT_ORDER,
        f"{files}/{folder}",
        {**_PROPERTIES, STRUCTURE: json.dumps(table.to_json(), ensure_ascii=True)},
    )
    catalog.create(table.name, write_metadata(metadata))


def _alter(
    new: Table,
    step: Mapping[str, Any],
    opened: Callable[[TableName], OpenTable],
    catalog: Catalog,
    settle: Callable[[], None],
) -> None:
    table = opened(new.name)
    base, old = table.base, table.base.table
    new, kept = _with_others(new, old, step)
    has_rows = table.rows > 0
    if step["unfillable"] and has_rows:
        raise refuse_unfillable(step["unfillable"], old)
    last = base.metadata.last_column_id
    fields, made = [], {}
    for column in new.columns:
        origin, goal = kept.get(column.name), stored_type(column.type)
        values: pa.Array | None = None
        number = 0
        if origin is None:
            values = (
                _filled(table, column, StatementTime(step["executed_at"], step.get("micros"))) if has_rows else None
            )
            values = values if values is not None and values.null_count < len(values) else None
        else:
            before = old.column(origin).type
            if has_rows:
                _refuse_guesses(table, old.column(origin), column)
            if stored_type(before) == goal or widens(stored_type(before), goal):
                number = base.fields[origin][0]
            if has_rows and not (number and surely_fits(before, column.type)):
                values = _converted(table, origin, before, column.type)  # raises for values that do not fit
            if number and values is not None and values.equals(_stored(table, origin).cast(goal)):
                values = None
        if values is not None:
            made[column.name] = values
        if not number:
            last = number = last + 1
        fields.append(
            NestedField(number, column.name, iceberg_type(column.type), required=False, doc=column.comment or None)
        )
    schema = Schema(*fields, schema_id=max(each.schema_id for each in base.metadata.schemas) + 1)
    published = replace_metadata(
        base.location,
        base.metadata,
        [
            AddSchemaUpdate(schema=schema),
            SetCurrentSchemaUpdate(schema_id=-1),
            SetPropertiesUpdate(updates={STRUCTURE: json.dumps(new.to_json(), ensure_ascii=True)}),
        ],
    )
    rows = None
    if made:
        _log.warning("a schema change writes all rows of a table anew", table=str(new.name), columns=sorted(made))
        rows = _rewritten(table, new, kept, made, {each.name: each.field_id for each in fields})
    catalog.replace(new.name, base.location, published)
    settle()
    if rows is not None:
        fresh = opened(new.name)
        fresh.clear()
        fresh.add_stored(rows)
        settle()


def _with_others(new: Table, old: Table, step: Mapping[str, Any]) -> tuple[Table, dict[str, str]]:
    """Returns the statement's structure with the columns that only the table has, and the old name of each kept column.

    Columns that the statement's structure lacks belong to other tables that are merged into this table.
    """
    kept, known = dict(step["kept"]), set(step["known"])
    others = [column for column in old.columns if column.name not in known]
    if twice := [column.name for column in others if column.name in new.arrow.names]:
        raise Halted(
            "target-refused",
            f"the table already has a column {', '.join(twice)}",
            where=Where(table=str(new.name)),
            todo=f"If this column is the one that the statement adds, run {SKIP}",
        )
    kept |= {column.name: column.name for column in others}
    return replace(new, columns=(*new.columns, *others)), kept


def _rewritten(
    table: OpenTable, new: Table, kept: Mapping[str, str], made: Mapping[str, pa.Array], ids: Mapping[str, int]
) -> pa.Table:
    columns, fields = [], []
    for column in new.columns:
        goal = stored_type(column.type)
        fields.append(data_field(ids[column.name], column.name, goal))
        if column.name in made:
            columns.append(made[column.name])
        elif column.name in kept:
            columns.append(_stored(table, kept[column.name]).cast(goal))
        else:
            columns.append(pa.nulls(table.rows, goal))
    return pa.table(columns, schema=pa.schema(fields))


def _stored(table: OpenTable, name: str) -> pa.Array:
    """Returns a column of all rows, with the type that data files have."""
    return table.read_stored([name])[name].combine_chunks()


def _filled(table: OpenTable, column: Column, executed_at: StatementTime) -> pa.Array:
    """Returns the default of a new column for the existing rows. The current time becomes the source's time, in UTC.

    Refuses a default whose value only the source knows. For example, the default of a TIMESTAMP depends on a session's
    time zone.
    """
    goal = stored_type(column.type)
    if (filled := executed_at.filling(column)) is not None:
        return pa.repeat(pa.array([filled], pa.int64()).cast(goal)[0], table.rows)
    if default_value(column) is None:
        raise refuse_unfillable([column.name], table.base.table)
    return pa.repeat(filling(column, goal)[0], table.rows)


def _refuse_guesses(table: OpenTable, old: Column, new: Column) -> None:
    """Halts if the source, without strict mode, may have changed values of a column. The log does not show this."""
    may_be_unreal = {old.type.kind, new.type.kind} <= _UNREAL
    if old.nullable and not new.nullable and not may_be_unreal and _stored(table, old.name).null_count:
        raise _refusal(table, old.name)  # depending on the type, the source now has 0, '' or the current time
    digits = (new.type.precision, new.type.scale)
    rounds = new.type.kind in (Kind.FLOAT, Kind.DOUBLE) and new.type.scale is not None
    if rounds and digits != (old.type.precision, old.type.scale) and _stored(table, old.name).null_count < table.rows:
        raise _refusal(table, old.name)  # only the source's own arithmetic gives the same last bit
    if not keeps_letters(_stored(table, old.name), old.type, new.type):
        raise _refusal(table, old.name)


def _refusal(table: OpenTable, name: str) -> Halted:
    return Halted(
        "ddl-not-translatable",
        f"column {name} gets another type, and only the source knows which values some rows get",
        where=Where(table=str(table.base.name)),
        todo=f"Skip the statement, and copy the table again: run {SKIP}; {RESYNC}. Or change the values on the source "
        "first",
    )


def _converted(table: OpenTable, name: str, before: ColumnType, after: ColumnType) -> pa.Array:
    """Returns the stored values of a column, converted to another type."""
    found = converted(decode(before, _stored(table, name)), before, after)
    if found is None:
        raise _refusal(table, name)
    return encode(after, found, lambda _: None)


def _holds(stored: ColumnType, source: ColumnType) -> bool:
    """Whether a column can store every value of the source's column."""
    have, want = stored_type(stored), stored_type(source)
    same_form = stored.kind is source.kind or Kind.TIME not in (stored.kind, source.kind)
    return (have == want or widens(want, have)) and same_form


def _pair(name: TableName) -> list[str]:
    return [name.schema, name.name]
