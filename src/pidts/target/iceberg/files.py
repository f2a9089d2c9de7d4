"""The files of a warehouse. A file is written once, is flushed to disk before anything names it, and never changes.

So the content of files can be cached. All sessions of a process share the caches, which have limited sizes.

A file is on this machine (`file://`) or in an object store (`s3://`). A store shows an object only after the whole
object was sent. When it has confirmed an object, the object is durable, and every later read finds it.
"""

from __future__ import annotations

import errno
import os
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs
import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import PyArrowFileIO

from pidts.durable_folder import make_folder, sync_folder
from pidts.model import Halted, PidtsError, Transient, Where
from pidts.target.iceberg.connection import mapped

SCHEME = "file://"
STORE = "s3://"
ROW_GROUP = 65_536
_FIELD_ID = b"PARQUET:field_id"

_STORE_SECONDS = 10.0
"""The seconds after which an unanswered request to the store is sent again, a few times."""
_SCARCE = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})

V = TypeVar("V")


class Cache:
    """A cache of the values that were used last, up to a total size."""

    def __init__(self, most: int) -> None:
        self._most, self._size = most, 0
        self._kept: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()
        self._lock = Lock()

    def get(self, key: Hashable, make: Callable[[], V], size: Callable[[V], int] = lambda _: 1) -> V:
        """Returns the value of a key; calls `make` if the value is not in the cache."""
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


def store_settings() -> dict[str, str]:
    """Returns the address of the object store, from the variables that programs for S3 have in common."""
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL", "")
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or (endpoint and "us-east-1")
    return {name: value for name, value in (("s3.endpoint", endpoint), ("s3.region", region)) if value}


class FileIO(PyArrowFileIO):
    """Opens files for pyiceberg. A small object is sent by one request, instead of three."""

    def _initialize_s3_fs(self, netloc: str | None) -> pafs.FileSystem:
        return pafs.S3FileSystem(
            endpoint_override=self.properties.get("s3.endpoint"),
            region=self.properties.get("s3.region") or pafs.resolve_s3_region(netloc),
            allow_delayed_open=True,
            request_timeout=_STORE_SECONDS,
        )


_keys = Cache(256 << 20)
_groups = Cache(4096)
_ascending = Cache(4096)
IO = FileIO(store_settings())


def is_local(uri: str) -> bool:
    """Whether a file is on this machine."""
    return not uri.startswith(STORE)


def path_of(uri: str) -> Path:
    """Returns the path of a file on this machine."""
    return Path(uri.removeprefix(SCHEME).removeprefix("file:"))


def name_of(uri: str) -> str:
    """Returns the last part of a file's path or address."""
    return uri.rpartition("/")[2]


def shown(uri: str) -> str:
    """Returns a file's path or address for messages."""
    return str(path_of(uri)) if is_local(uri) else uri


def _in_store(uri: str) -> tuple[pafs.FileSystem, str]:
    scheme, bucket, path = PyArrowFileIO.parse_location(uri)
    return IO.fs_by_scheme(scheme, bucket), path


@contextmanager
def reading(uri: str) -> Iterator[None]:
    """Raises `Halted` if a file that the catalog or another file names is missing, or cannot be parsed."""
    try:
        yield
    except (PidtsError, MemoryError):
        raise
    except Exception as error:  # parsers may raise any error for unknown bytes
        if isinstance(error, OSError) and error.errno in _SCARCE:
            what = f"the warehouse cannot be read: {error}"
            raise Transient("target-busy", what, where=Where(file=shown(uri))) from error
        missing = isinstance(error, FileNotFoundError)
        if isinstance(error, OSError) and not missing and not is_local(uri):
            what = f"the object store cannot be read: {error}"
            raise Transient("target-busy", what, where=Where(file=shown(uri))) from error
        todo = "Restore the file, or drop the table in the catalog and copy it again: pidts run TASK --resync TABLE"
        said = str(error).strip().splitlines()
        raise Halted(
            "target-damaged",
            "a file of the warehouse is missing"
            if missing
            else f"a file of the warehouse cannot be read: {said[0] if said else type(error).__name__:.300}",
            where=Where(file=shown(uri)),
            todo=todo if is_local(uri) else f"Is AWS_ENDPOINT_URL right, and does the bucket exist? {todo}",
        ) from error


def write_bytes(uri: str, data: bytes | pa.Buffer) -> None:
    """Writes a new file, and flushes it and its directory entry to disk."""
    if not is_local(uri):
        with mapped():
            store, place = _in_store(uri)
            with store.open_output_stream(place) as stream:
                stream.write(data)
        return
    path = path_of(uri)
    with mapped():
        make_folder(path.parent)
        with path.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        sync_folder(path.parent)


def write_parquet(uri: str, rows: pa.Table) -> tuple[pq.FileMetaData, int]:
    """Writes a new Parquet file, and flushes it to disk; returns its footer and its size.

    Raises if a column has no field id, since readers find columns only by their ids.
    """
    if nameless := [field.name for field in rows.schema if _FIELD_ID not in (field.metadata or {})]:
        raise ValueError(f"columns without a field id: {nameless}")
    with mapped():
        if is_local(uri):
            make_folder(path_of(uri).parent)
            store, place = pafs.LocalFileSystem(), str(path_of(uri))
        else:
            store, place = _in_store(uri)
        footer: list[pq.FileMetaData] = []
        pq.write_table(
            rows,
            place,
            filesystem=store,
            compression="zstd",
            row_group_size=ROW_GROUP,
            metadata_collector=footer,
            store_schema=False,
            store_decimal_as_integer=True,
        )
        make_durable(uri)
        size = store.get_file_info(place).size
        if size is None:
            raise FileNotFoundError(f"{shown(uri)} was written, but does not exist")
        return footer[0], size


def make_durable(uri: str) -> None:
    """Waits until a file and its entry in the directory are on the disk; an object is durable already."""
    if not is_local(uri):
        return
    path = path_of(uri)
    with mapped():
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        sync_folder(path.parent)


def read_bytes(uri: str) -> bytes:
    """Returns the content of a file."""
    if is_local(uri):
        return path_of(uri).read_bytes()
    store, place = _in_store(uri)
    with store.open_input_file(place) as file:
        return bytes(file.read())


def exists(uri: str) -> bool:
    """Whether a file exists."""
    if is_local(uri):
        return path_of(uri).exists()
    with mapped():
        store, place = _in_store(uri)
        return bool(store.get_file_info(place).type != pafs.FileType.NotFound)


def remove(uri: str) -> None:
    """Removes a file, if it exists."""
    with mapped():
        if is_local(uri):
            path_of(uri).unlink(missing_ok=True)
        else:
            store, place = _in_store(uri)
            with suppress(FileNotFoundError):
                store.delete_file(place)


def files_in(folder: str) -> list[str]:
    """Returns the files of a folder; none if the folder does not exist."""
    with mapped():
        if is_local(folder):
            path = path_of(folder)
            return [f"{folder}/{each.name}" for each in path.iterdir()] if path.is_dir() else []
        store, place = _in_store(folder)
        found = store.get_file_info(pafs.FileSelector(place, allow_not_found=True))
        return [f"{folder}/{each.base_name}" for each in found if each.type == pafs.FileType.File]


def folders_in(folder: str) -> list[str]:
    """Returns the folders in a folder; none if the outer folder does not exist."""
    with mapped():
        if is_local(folder):
            path = path_of(folder)
            return [f"{folder}/{each.name}" for each in path.iterdir() if each.is_dir()] if path.is_dir() else []
        store, place = _in_store(folder)
        found = store.get_file_info(pafs.FileSelector(place, allow_not_found=True))
        return [f"{folder}/{each.base_name}" for each in found if each.type == pafs.FileType.Directory]


def folders_below(folder: str, depth: int) -> list[str]:
    """Returns the folders at this depth below a folder of an object store, which lists a thousand objects at a time."""
    with mapped():
        store, place = _in_store(folder)
        found = store.get_file_info(pafs.FileSelector(place, recursive=True, allow_not_found=True))
    names = set()
    for each in found:
        parts = each.path.removeprefix(f"{place}/").split("/")
        if len(parts) > depth or (len(parts) == depth and each.type == pafs.FileType.Directory):
            names.add("/".join(parts[:depth]))
    return [f"{folder}/{name}" for name in sorted(names)]


def size_of(uri: str) -> int | None:
    """Returns the size of an object in a store; None if it does not exist."""
    with mapped():
        store, place = _in_store(uri)
        size: int | None = store.get_file_info(place).size
        return size


def copied(old: str, new: str) -> bool:
    """Lets the store copy an object to another name; returns whether it has done so."""
    if is_local(old) or is_local(new):
        return False
    store, place = _in_store(old)
    try:
        store.copy_file(place, _in_store(new)[1])
    except OSError:
        return False
    return True


def remove_folder(folder: str) -> bool:
    """Removes all objects of a folder in an object store; returns whether there were any.

    Inner folders come first: some stores have real folders, and refuse to remove a folder that is not empty.
    """
    with mapped():
        store, place = _in_store(folder)
        found = store.get_file_info(pafs.FileSelector(place, recursive=True, allow_not_found=True))
        inner = {each.path for each in found if each.type == pafs.FileType.Directory}
        for each in (*sorted(inner, key=len, reverse=True), place):
            with suppress(FileNotFoundError):
                store.delete_dir(each)
    return bool(found)


def _parquet(uri: str) -> pq.ParquetFile:
    if is_local(uri):
        return pq.ParquetFile(path_of(uri), memory_map=True)
    store, place = _in_store(uri)
    return pq.ParquetFile(place, filesystem=store, pre_buffer=True)


def read_columns(uri: str, fields: Mapping[int, pa.Field], groups: Sequence[int] | None = None) -> pa.Table:
    """Reads columns by their ids, with the table's current types; a column that the file lacks is NULL.

    `groups` are the row groups to read; None: all. The columns keep their ids, so that the rows can be written again.
    """
    with reading(uri), _parquet(uri) as file:
        own = {
            int(field.metadata[_FIELD_ID]): field.name
            for field in file.schema_arrow
            if field.metadata and _FIELD_ID in field.metadata
        }
        if not own:
            raise Halted(
                "target-damaged",
                f"no column of the data file {shown(uri)} has a field id, so it is not known which column is which",
                todo="Restore the file, or copy the table again: pidts run TASK --resync TABLE",
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


def ascending(uri: str, number: int, column: pa.ChunkedArray) -> np.ndarray | None:
    """Returns a column of a file as numbers if it has whole numbers in ascending order; otherwise None.

    In such a column, a value is found without reading each row. PiDTS sorts its files by the table's key.
    """
    if not pa.types.is_integer(column.type) or column.null_count or column.num_chunks != 1:
        return None
    values = column.chunk(0).to_numpy()
    is_ascending = _ascending.get((uri, number), lambda: bool((values[1:] >= values[:-1]).all()))
    return values if is_ascending else None


def rows_at(uri: str, fields: Mapping[int, pa.Field], places: np.ndarray) -> pa.Table:
    """Reads the rows with these numbers, in this order; reads only the row groups that have these rows."""
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
    """Returns the indexes of the rows with one of these keys; NULL equals NULL."""
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
    with reading(uri), _parquet(uri) as file:
        return np.cumsum([file.metadata.row_group(group).num_rows for group in range(file.metadata.num_row_groups)])
