"""Makes rows at the borders of conditions, to find rows for which two conditions are TRUE, or no condition is.

Each column gets the constants of all conditions, the values next to them, and NULL. Conditions of the usual forms
(`region = 'eu'`, `id < 1000`, `id BETWEEN 1 AND 9`, `shop IN (1, 2)`) change between TRUE and FALSE only at these
values. So all overlaps and gaps of such conditions are found, unless there are more than 20,000 combinations of these
values. Overlaps and gaps of other conditions may not be found.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from itertools import islice, product

import pyarrow as pa

from pidts.model import ChangeBatch, Column, Lsn, Op, Table, change_schema
from pidts.rules.expressions.rule import parsed
from pidts.rules.expressions.tree import FunctionCall, Literal, Node
from pidts.rules.ownership import NOBODY, SEVERAL, Owners

_MOST = 20_000


def border_rows(owners: Owners, table: Table) -> tuple[str, str]:
    """Returns two rows as texts: one that several zones own, and one that no zone owns. Empty: none was found."""
    asked = [one for one in table.columns if one.name.lower() in owners.columns(table.name)]
    if not asked:
        return "", ""
    constants = [one for part in owners.of(table.name) if part.where for one in _constants(parsed(part.where))]
    values = [list(_values(one, constants)) for one in asked]
    names = [one.name for one in asked]
    rows = [dict(zip(names, row, strict=True)) for row in islice(product(*values), _MOST)]
    image = pa.Table.from_pylist(rows, schema=pa.schema(list(table.arrow)))
    after = image.combine_chunks().to_batches()[0].to_struct_array()
    count = len(rows)
    lsns = pa.array([Lsn(0, 1, 4).to_bytes()] * count, pa.binary(Lsn.SIZE))
    columns = [lsns, pa.array([int(Op.INSERT)] * count, pa.int8()), pa.nulls(count, after.type), after]
    batch = ChangeBatch(
        table, pa.RecordBatch.from_arrays([*columns, pa.nulls(count, pa.binary())], schema=change_schema(table))
    )
    places = owners.owned(batch, "after").places.tolist()
    several, nobody = (_shown(rows[places.index(kind)]) if kind in places else "" for kind in (SEVERAL, NOBODY))
    return several, nobody


def _constants(node: Node) -> Iterator[object]:
    if isinstance(node, Literal):
        yield node.value
    elif isinstance(node, FunctionCall):
        for part in node.args:
            yield from _constants(part)


def _values(column: Column, constants: Iterable[object]) -> Iterator[object]:
    """Yields the values for a column: NULL, and the constants and their neighbours, if the column can store them."""
    kind, seen = column.type.arrow, set[object]()
    for constant in (None, 0, "", *constants):
        for value in (constant, *_neighbours(constant)):
            if value is None and not column.nullable:
                continue
            try:
                made = pa.scalar(value).cast(kind).as_py() if value is not None else None
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError, OverflowError):
                continue
            if made not in seen:
                seen.add(made)
                yield made


def _neighbours(constant: object) -> tuple[object, ...]:
    if isinstance(constant, int | float | Decimal):
        return constant - 1, constant + 1
    return (f"{constant}0",) if isinstance(constant, str) else ()


def _shown(row: Mapping[str, object]) -> str:
    return ", ".join(f"{name}={'NULL' if value is None else repr(value)}" for name, value in row.items())
