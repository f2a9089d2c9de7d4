"""Makes Arrow arrays from the memory that contains a table's rows (`buffers`), mostly without a copy."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from pidts.binlog.kernel import texts
from pidts.binlog.kernel.buffers import ImageBuffers, Memory
from pidts.binlog.values import labels
from pidts.model.batch import ChangeBatch, image_type
from pidts.model.event import Op
from pidts.model.lsn import Lsn
from pidts.model.table import Column, Table, TableName
from pidts.model.types import Kind


def batch(table: Table, memory: Memory, partial: pa.Array | None) -> ChangeBatch:
    """Returns all rows of a table. The batch owns the memory from now on, or has a copy (`Memory.is_copied`)."""
    rows, copied = memory.rows, memory.is_copied
    inserted, deleted = memory.count(Op.INSERT), memory.count(Op.DELETE)
    if 0 < inserted < rows or 0 < deleted < rows:
        memory.fill()
    ops, lsns = memory.ops[:rows], memory.lsns[: Lsn.SIZE * rows]
    if copied:
        ops, lsns = ops.copy(), lsns.copy()
    ops = pa.Array.from_buffers(pa.int8(), rows, [None, pa.py_buffer(ops)])
    lsns = pa.Array.from_buffers(pa.binary(Lsn.SIZE), rows, [None, pa.py_buffer(lsns)])
    before = _struct(table, memory.before, ops, Op.INSERT, inserted, copied=copied)
    after = _struct(table, memory.after, ops, Op.DELETE, deleted, copied=copied)
    return ChangeBatch.of(table, lsns, ops, before, after, partial)


def _struct(table: Table, side: ImageBuffers, ops: pa.Array, without: Op, missing: int, *, copied: bool) -> pa.Array:
    """Returns the before images or the after images; null for a row whose operation has no such image."""
    rows = len(ops)
    kind = image_type(table)
    if missing == rows:
        return pa.nulls(rows, kind)
    pairs = zip(table.columns, side.buffers(rows, copied=copied), strict=True)
    arrays = [_column(table.name, column, rows, buffers) for column, buffers in pairs]
    if not missing and arrays:
        return pa.Array.from_buffers(kind, rows, [None], 0, children=arrays)
    return pa.StructArray.from_arrays(arrays, fields=list(kind), mask=pa.array(ops.to_numpy() == without))


def _column(name: TableName, column: Column, rows: int, buffers: list[pa.Buffer]) -> pa.Array:
    arrow = column.type.arrow
    if column.type.kind is Kind.ENUM:
        return _enum(name, column, pa.Array.from_buffers(pa.int32(), rows, buffers))
    if column.type.kind is Kind.SET:
        return _set(name, column, pa.Array.from_buffers(pa.uint64(), rows, buffers))
    if pa.types.is_string(arrow):
        return texts.text(name, column, rows, buffers)
    return pa.Array.from_buffers(arrow, rows, buffers)


def _enum(name: TableName, column: Column, numbers: pa.Array) -> pa.Array:
    """Converts ENUM numbers; 0 is the empty text that the server stores for an unknown word."""
    largest = pc.max(numbers).as_py() or 0
    if largest > len(column.type.labels):
        return labels.builder(name, column)(numbers.to_pylist())
    return pa.array(["", *column.type.labels], pa.string()).take(numbers)


def _set(name: TableName, column: Column, numbers: pa.Array) -> pa.Array:
    """Converts the numbers of SET values to text, each distinct number once."""
    distinct = numbers.dictionary_encode()
    words = labels.builder(name, column)(distinct.dictionary.to_pylist())
    return words.take(distinct.indices)
