"""Decodes the same bytes with compiled and with plain code."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from zlib import crc32

import pyarrow as pa

from pidts.binlog import decode_slice
from pidts.model import ChangeBatch, EarlyFilter, Halted, Op, Table

Outcome = list[ChangeBatch] | Halted


@contextmanager
def kernel(name: str) -> Iterator[None]:
    before = os.environ.get("PIDTS_KERNEL")
    os.environ["PIDTS_KERNEL"] = name
    try:
        yield
    finally:
        if before is None:
            del os.environ["PIDTS_KERNEL"]
        else:
            os.environ["PIDTS_KERNEL"] = before


def decoded(name: str, raw: bytes, **how: Any) -> Outcome:
    """Returns the batches, or the error."""
    with kernel(name):
        try:
            return decode_slice(raw, **how)
        except Halted as error:
            return error


def difference(raw: bytes, **how: Any) -> str | None:
    """Returns how the results of compiled and plain code differ: for all rows, and with an early filter."""
    plain = decoded("python", raw, **how)
    if found := disagreement(decoded("compiled", raw, **how), plain):
        return found
    how["early_filter_of"] = early_filter
    filtered = decoded("python", raw, **how) if isinstance(plain, Halted) else kept_of(plain)
    return disagreement(decoded("compiled", raw, **how), filtered)


def early_filter(table: Table) -> EarlyFilter:
    """Returns a filter that drops about a third of the rows."""

    def dropped(batch: ChangeBatch) -> pa.BooleanArray:
        return pa.array([crc32(lsn) % 3 == 0 for lsn in batch.rows["lsn"].to_pylist()], pa.bool_())

    return EarlyFilter(frozenset({Op.DELETE} if len(table.columns) % 3 == 0 else ()), dropped)


def kept_of(batches: list[ChangeBatch]) -> list[ChangeBatch]:
    """Returns the rows that the early filter keeps."""
    left = [early_filter(batch.table).of(batch) for batch in batches]
    return [batch for batch in left if len(batch)]


def disagreement(compiled: Outcome, plain: Outcome) -> str | None:
    if isinstance(compiled, Halted) or isinstance(plain, Halted):
        same = isinstance(compiled, Halted) and isinstance(plain, Halted) and str(compiled) == str(plain)
        return None if same else f"{compiled!r} and {plain!r}"
    if [batch.table for batch in compiled] != [batch.table for batch in plain]:
        return f"batches of {[batch.table.name for batch in compiled]} and {[batch.table.name for batch in plain]}"
    for ours, theirs in zip(compiled, plain, strict=True):
        ours.rows.validate(full=True)
        if len(ours) != len(theirs):
            return f"{len(ours)} and {len(theirs)} rows of {ours.table.name}"
        for name in ("lsn", "op", "partial"):
            if not ours.rows[name].equals(theirs.rows[name]):
                return f"column {name} of {ours.table.name}"
        for side in ("before", "after"):
            if not ours.rows[side].is_valid().equals(theirs.rows[side].is_valid()):
                return f"which rows of {ours.table.name} have {side} images"
            for place, column in enumerate(ours.table.columns):
                found, expected = (_bits(batch.rows[side].field(place)) for batch in (ours, theirs))
                if not found.equals(expected):
                    return f"{side} images' {column.name} of {ours.table.name}: {_first(found, expected)}"
    return None


def _bits(array: pa.Array) -> pa.Array:
    """Returns doubles as bits, since NaN does not equal itself."""
    if pa.types.is_floating(array.type):
        return array.view(pa.uint64() if pa.types.is_float64(array.type) else pa.uint32())
    return array


def _first(ours: pa.Array, theirs: pa.Array) -> str:
    pairs = enumerate(zip(ours.to_pylist(), theirs.to_pylist(), strict=True))
    return next((f"row {number} is {left!r} and {right!r}" for number, (left, right) in pairs if left != right), "?")
