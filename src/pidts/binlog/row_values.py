"""Converts the rows of a batch to Python values, for code that shows or uses single values."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta, tzinfo
from functools import partial
from typing import Any

import pyarrow as pa

from pidts.model import calendar
from pidts.model.batch import ChangeBatch
from pidts.model.lsn import Lsn
from pidts.model.table import Table
from pidts.model.types import Kind

Row = dict[str, Any]


def rows_of(batch: ChangeBatch) -> Iterator[tuple[Lsn, Row | None, Row | None]]:
    """Yields a batch's rows as Python values: Lsn, old and new image, without columns that an image lacks."""
    lsns = [Lsn.from_bytes(lsn) for lsn in batch.rows.column("lsn").to_pylist()]
    old = _images(batch.table, batch.rows.column("before"))
    new = _images(batch.table, batch.rows.column("after"))
    if batch.is_partial:
        for bitmaps, before, after in zip(batch.rows.column("partial").to_pylist(), old, new, strict=True):
            _keep_held(bitmaps, len(batch.table.columns), before, after)
    yield from zip(lsns, old, new, strict=True)


def _images(table: Table, images: pa.StructArray) -> list[Row | None]:
    names = [column.name for column in table.columns]
    columns = [python_values(images.field(place), column.type.kind) for place, column in enumerate(table.columns)]
    present = images.is_valid().to_pylist()
    if not columns:
        return [None] * len(present)
    rows = zip(*columns, strict=True)
    return [dict(zip(names, row, strict=True)) if there else None for there, row in zip(present, rows, strict=True)]


def _keep_held(bitmaps: bytes | None, width: int, before: Row | None, after: Row | None) -> None:
    """Removes the columns that an image lacks: their values are unknown, which is not NULL."""
    if bitmaps is None:
        return
    size = (width + 7) // 8
    for image, part in ((before, bitmaps[:size]), (after, bitmaps[-size:])):
        present = int.from_bytes(part, "little")
        for place, name in enumerate(list(image or ())):
            if image is not None and not present >> place & 1:
                del image[name]


def python_values(array: pa.Array, kind: Kind) -> list[Any]:
    """Returns an Arrow column of a batch as Python values."""
    if kind is Kind.DATE:
        return _each(array.cast(pa.int32()), _date)
    if kind is Kind.DATETIME:
        return _each(array.cast(pa.int64()), partial(_moment, zone=None))
    if kind is Kind.TIMESTAMP:
        return _each(array.cast(pa.int64()), partial(_moment, zone=UTC))
    return list(array.to_pylist())


def _each(array: pa.Array, convert: Callable[[int], Any]) -> list[Any]:
    return [None if value is None else convert(value) for value in array.to_pylist()]


def _date(day: int) -> date | str:
    year, month, day_of_month = calendar.fields(day)
    if day >= calendar.FIRST_REAL_DAY:
        return date(year, month, day_of_month)
    return f"{year:04}-{month:02}-{day_of_month:02}"


def _moment(microseconds: int, zone: tzinfo | None) -> datetime | str:
    day, time = calendar.split(microseconds)
    real = _date(day)
    since_midnight = timedelta(microseconds=time)
    if isinstance(real, date):
        return datetime(real.year, real.month, real.day, tzinfo=zone) + since_midnight
    seconds, fraction = divmod(time, 1_000_000)
    minutes, second = divmod(seconds, 60)
    text = f"{real} {minutes // 60:02}:{minutes % 60:02}:{second:02}"
    return f"{text}.{fraction:06}" if fraction else text
