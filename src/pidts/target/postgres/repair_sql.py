"""Makes readable SQL for a repair."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from pidts.model.types import DATED
from pidts.reduce import NetChange
from pidts.target.postgres.dialect import identifier, literal, qualified
from pidts.target.postgres.encode.arrays import Element
from pidts.target.postgres.encode.columns import Form, text
from pidts.target.postgres.session import PostgresSession
from pidts.target.postgres.statements import found_column
from pidts.target.text import combined, unreal

PREAMBLE = ("SET client_encoding = 'UTF8';", "SET standard_conforming_strings = on;", "SET TimeZone = 'UTC';")


def repair_sql(session: PostgresSession, change: NetChange) -> Iterator[str]:
    """Yields one statement for each key: first the removals, then the written rows."""
    table = change.table
    shape = session.schema.shape(table.name)
    if shape is None:
        return
    forms = [Form(column, found_column(shape, column.name), Element.TEXT) for column in table.columns]
    keys = [each for each in forms if each.column.name in table.identity]
    for values in zip(*(_texts(each, change.deletes[each.column.name]) for each in keys), strict=True):
        same = " AND ".join(
            f"{identifier(each.column.name)} = {value}" for each, value in zip(keys, values, strict=True)
        )
        yield f"DELETE FROM {qualified(table.name)} WHERE {same};"
    written = [each for each in forms if not each.target.generated]
    names = ", ".join(identifier(each.column.name) for each in written)
    identity = ", ".join(map(identifier, table.identity))
    sets = ", ".join(
        f"{identifier(each.column.name)} = EXCLUDED.{identifier(each.column.name)}"
        for each in written
        if not each.target.always_identity
    )
    for values in zip(*(_texts(each, change.upserts[each.column.name]) for each in written), strict=True):
        yield (
            f"INSERT INTO {qualified(table.name)} ({names}) OVERRIDING SYSTEM VALUE VALUES ({', '.join(values)}) "
            f"ON CONFLICT ({identity}) DO UPDATE SET {sets};"
        )


def _texts(form: Form, values: pa.ChunkedArray) -> list[str]:
    data = combined(values)
    if form.column.type.kind in DATED and (mask := unreal(data)) is not None:
        data = pc.if_else(mask, pa.scalar(None, data.type), data)
    texts = text(form.column, form.target, data).to_pylist()
    return ["NULL" if value is None else form.value(literal(value)) for value in texts]
