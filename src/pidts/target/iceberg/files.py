"""The files of a warehouse: written once, flushed to disk before anything names them, and never changed.

So the content of a file can be cached: all sessions of the process share the caches below, which are bounded.
"""

from __future__ import annotations

import errno
import os
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pidts.durable_folder import make_folder, sync_folder
from pidts.model import Halted, PidtsError, Transient, Where
from pidts.target.iceberg.connection import mapped

SCHEME = "file://"
ROW_GROUP = 65_536
_FIELD_ID = b"PARQUET:field_id"

_SCARCE = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})

V = TypeVar("V")


class Cache:
    """A cache of the newest values, up to a size."""

    def __init__(self, most: int) -> None:
        self._most, self._size = most, 0
        self._kept: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()
        self._lock = Lock()

    def get(self, key: Hashable, make: Callable[[], V], size: Callable[[V], int] = lambda _: 1) -> V:
        """Returns the value of a key; makes it if it is not in the cache."""
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key][0]
        made = make()
        with self._lock:
            if key not in self._kept:
                self._kept[key] = made, size(made)
                self._size += self._kept[key][1]
            while self._size > self._most and len(self._kept) > 1:
                self._size -= self._kept.popitem(last=False)[1][1]
        return made


_keys = Cache(256 << 20)
_groups = Cache(4096)


def path_of(uri: str) -> Path:
    """Returns the path of a file of the warehouse."""
    return Path(uri.removeprefix(SCHEME).removeprefix("file:"))


@contextmanager
def reading(uri: str) -> Iterator[None]:
    """Raises `Halted` if a file that the catalog or another file names is missing, or cannot be parsed."""
    try:
        yield
    except (PidtsError, MemoryError):
        raise
    except Exception as error:  # parsers may raise any error for unknown bytes
        if isinstance(error, OSError) and error.errno in _SCARCE:
            raise Transient("target-busy", f"the warehouse cannot be read: {error}") from error
        missing = isinstance(error, FileNotFoundError)
        said = str(error).strip().splitlines()
        raise Halted(
            "target-damaged",
            "a file of the warehouse is missing"
            if missing
            else f"a file of the warehouse cannot be read: {said[0] if said else type(error).__name__:.300}",
            where=Where(file=str(path_of(uri))),
            todo="Restore the file, or drop the table in the catalog and copy it again (pidts run --resync)",
        ) from error


def write_bytes(uri: str, data: bytes) -> None:
    """Writes a new file, and flushes it and its directory entry to disk."""
    path = path_of(uri)
    with mapped():
        make_folder(path.parent)
        with path.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        sync_folder(path.parent)


def write_parquet(uri: str, rows: pa.Table) -> tuple[pq.FileMetaData, int]:
    """Writes a new Parquet file and flushes it to disk; returns its footer and its size.

    Readers find columns only by their ids.
    """
    if nameless := [field.name for field in rows.schema if _FIELD_ID not in (field.metadata or {})]:
        raise ValueError(f"columns without a field id: {nameless}")
    path = path_of(uri)
    with mapped():
        make_folder(path.parent)
        footer: list[pq.FileMetaData] = []
        pq.write_table(
            rows,
            path,
            compression="zstd",
            row_group_size=ROW_GROUP,
            metadata_collector=footer,
            store_schema=False,
            store_decimal_as_integer=True,
        )
        make_durable(uri)
        return footer[0], path.stat().st_size


def make_durable(uri: str) -> None:
    """Waits until a file and its entry in the directory are on the disk."""
    path = path_of(uri)
    with mapped():
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        sync_folder(path.parent)


def read_columns(uri: str, fields: Mapping[int, pa.Field], groups: Sequence[int] | None = None) -> pa.Table:
    """Reads some columns, found by their ids, with the table's present types; NULL if the file lacks the column.

    The columns keep their ids, so that the rows can be written again.
    """
    with reading(uri), pq.ParquetFile(path_of(uri), memory_map=True) as file:
        own = {
            int(field.metadata[_FIELD_ID]): field.name
            for field in file.schema_arrow
            if field.metadata and _FIELD_ID in field.metadata
        }
        if not own:
            raise Halted(
                "target-damaged",
                f"no column of the data file {path_of(uri)} has a field id: nobody can say which column is which",
                todo="Restore the file, or copy the table again (pidts run --resync)",
            )
        names = [own[one] for one in fields if one in own]
        found = file.read(names, use_threads=False) if groups is None else file.read_row_groups(groups, names)
        size = file.metadata.num_rows
        if groups is not None:
            size = sum(file.metadata.row_group(group).num_rows for group in groups)
    columns = [
        found[own[one]].cast(field.type) if one in own else pa.chunked_array([pa.nulls(size, field.type)])
        for one, field in fields.items()
    ]
    return pa.table(columns, schema=pa.schema(list(fields.values())))


def key_columns(uri: str, fields: Mapping[int, pa.Field]) -> pa.Table:
    """Returns some columns of all rows of a file, from the cache if they are in it."""
    key = (uri, *((one, field.name, str(field.type)) for one, field in fields.items()))
    return _keys.get(key, lambda: read_columns(uri, fields).combine_chunks(), lambda rows: rows.nbytes + 1)


def rows_at(uri: str, fields: Mapping[int, pa.Field], places: np.ndarray) -> pa.Table:
    """Reads the rows at these places, in this order, from the row groups that have them."""
    ends = _groups.get(uri, lambda: _group_ends(uri))
    group = np.searchsorted(ends, places, side="right")
    wanted = np.unique(group)
    starts = np.concatenate(([0], ends[:-1]))
    sizes = (ends - starts)[wanted]
    shift = np.zeros(len(ends), np.int64)
    shift[wanted] = np.concatenate(([0], np.cumsum(sizes)[:-1]))
    return read_columns(uri, fields, [int(one) for one in wanted]).take(
        pa.array(places - starts[group] + shift[group], pa.int64())
    )


def matches(rows: pa.Table, keys: pa.Table) -> np.ndarray:
    """Returns the places of the rows with one of these keys; NULL equals NULL."""
    mask = None
    for name in keys.column_names:
        have, want = rows[name], keys[name].combine_chunks()
        if pa.types.is_floating(want.type):  # -0.0 equals 0.0
            have, want = pc.add(have, pa.scalar(0, want.type)), pc.add(want, pa.scalar(0, want.type))
        found = pc.is_in(have, value_set=want)
        mask = found if mask is None else pc.and_(mask, found)
    if mask is None:
        return np.arange(0)
    places = np.flatnonzero(mask.to_numpy())
    if keys.num_columns == 1 or not len(places):
        return places
    wanted = set(tuples(keys))
    near = tuples(rows.select(keys.column_names).take(pa.array(places)))
    return places[np.fromiter((row in wanted for row in near), bool, len(near))]


def tuples(rows: pa.Table) -> list[tuple[Any, ...]]:
    """Returns rows as Python values."""
    return list(zip(*(column.to_pylist() for column in rows.columns), strict=True))


def _group_ends(uri: str) -> np.ndarray:
    with reading(uri), pq.ParquetFile(path_of(uri)) as file:
        return np.cumsum([file.metadata.row_group(group).num_rows for group in range(file.metadata.num_row_groups)])
