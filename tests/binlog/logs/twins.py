"""Decodes the same bytes with compiled and with plain code."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
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
    found = disagreement(decoded("compiled", raw, **how), plain)
    if found is None:
        found = _second_look(plain, raw, **how)
    return found


def _second_look(plain: Outcome, raw: bytes, **how: Any) -> str | None:
    """Returns how compiled code with an early filter differs in its result from plain code; None if it does not.

    Rows that pass the filter are read a second time, and only then are their errors found, in any order.
    """
    all_stay = decoded(
        "compiled",
        raw,
        **how,
        early_filter_of=lambda table: replace(early_filter(table), dropped=_none, unwanted=frozenset()),
    )
    some_stay = decoded("compiled", raw, **how, early_filter_of=early_filter)
    if isinstance(plain, Halted):
        return None if isinstance(all_stay, Halted) else f"{plain!r} and {all_stay!r}"
    return disagreement(all_stay, plain) or disagreement(some_stay, kept_of(plain))


def _none(_batch: ChangeBatch) -> None:
    """Is a filter that drops nothing."""


def early_filter(table: Table) -> EarlyFilter:
    """Returns a filter that drops about a third of the rows, and that needs every other column."""
    looked_at = [column.name.lower() for column in table.columns[::2]]

    def dropped(batch: ChangeBatch) -> pa.BooleanArray:
        for side in ("before", "after"):
            for name in looked_at:
                batch.rows[side].field(name).validate(full=True)
        return pa.array([crc32(lsn) % 3 == 0 for lsn in batch.rows["lsn"].to_pylist()], pa.bool_())

    width = len(table.columns)
    asked = frozenset({Op.INSERT, Op.UPDATE} if width % 4 == 0 else Op)
    return EarlyFilter(frozenset(looked_at), asked, frozenset({Op.DELETE} if width % 3 == 0 else ()), dropped)


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
