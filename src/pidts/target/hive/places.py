"""The folders of published files, on this machine or in an object store.

A folder has two names. Records and messages use a path, or `s3://bucket/folder`. A metastore uses an address that Hive
and Spark can read: `file:///path`, or `s3a://bucket/folder`.
"""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Iterable
from contextlib import suppress

import pyarrow as pa
import pyarrow.parquet as pq

from pidts.durable_folder import make_folder, sync_folder
from pidts.model import PidtsError
from pidts.target.iceberg.connection import CatalogConnection, mapped
from pidts.target.iceberg.files import (
    ROW_GROUP,
    STORE,
    copied,
    folders_below,
    folders_in,
    is_local,
    make_durable,
    path_of,
    remove_folder,
    size_of,
    write_bytes,
)

WAREHOUSE_ID = "CREATE TABLE IF NOT EXISTS pidts_meta.warehouse_id (id text NOT NULL)"
NEW_WAREHOUSE_ID = (
    "INSERT INTO pidts_meta.warehouse_id (id) SELECT %s WHERE NOT EXISTS (SELECT 1 FROM pidts_meta.warehouse_id)"
)
_OF_STORES = ("s3a://", "s3n://", STORE)


def location_of(folder: str) -> str:
    """Returns the address of a folder for a metastore."""
    return f"file://{folder}" if is_local(folder) else f"s3a://{folder.removeprefix(STORE)}"


def folder_of(location: str) -> str:
    """Returns the folder that a metastore names."""
    for scheme in _OF_STORES:
        if location.startswith(scheme):
            return STORE + location.removeprefix(scheme).rstrip("/")
    return str(path_of(location))


def roots_of(connection: CatalogConnection, name: str) -> list[str]:
    """Returns the folders of all published tables of one kind; each meta schema has its own.

    The first folder is for tables that are published from now on. If there is a second folder, it was used before the
    warehouse had the setting `files`.

    Several warehouses may have the same `files`. In a store, each has its own folders: a publication removes the
    folders that its records do not name.
    """
    here = f"{connection.warehouse}/{name}/{connection.meta_schema}"
    if is_local(connection.files):
        return [here]
    return [f"{connection.files}/{name}/{connection.meta_schema}-{_id_of(connection)}", here]


def _id_of(connection: CatalogConnection) -> str:
    """Returns the id of a warehouse. If the warehouse does not exist yet, the id is new, and no folder has it."""
    sql = "SELECT 1 FROM information_schema.tables WHERE table_schema = 'pidts_meta' AND table_name = 'warehouse_id'"
    rows = connection.run("SELECT id FROM pidts_meta.warehouse_id", ())[0] if connection.run(sql, ())[0] else []
    return str(rows[0][0]) if rows else uuid.uuid4().hex[:12]


def is_in(folder: str, roots: Iterable[str]) -> bool:
    """Whether a folder is in one of the folders `roots`."""
    return any(folder.startswith(f"{root}/") for root in roots)


def begin_folder(folder: str) -> None:
    """Creates a folder on this machine. An object store has no folders, only names of objects."""
    if is_local(folder):
        with mapped():
            make_folder(path_of(folder))


def end_folder(folder: str) -> None:
    """Waits until the names of the folder's files are on the disk; a store's objects are durable already."""
    if is_local(folder):
        with mapped():
            sync_folder(path_of(folder))


def take_over(old: str, new: str) -> bool:
    """Gives a file a second name by a hard link, or lets the store copy it. Returns whether this was possible."""
    if not is_local(old) or not is_local(new):
        return copied(old, new)
    try:
        os.link(old, new)
    except OSError:
        return False
    return True


def write_published(rows: pa.Table, file: str) -> None:
    """Writes a file that Hive's readers understand, and waits until it is durable."""
    if is_local(file):
        with mapped():
            _write_parquet(rows, file)
        make_durable(file)
        return
    write_bytes(file, _parquet(rows))


def write_visible(rows: pa.Table, folder: str, name: str) -> None:
    """Writes a file into a folder in which readers search for files. Readers see the whole file or no file.

    In an object store, an object appears as a whole. On this machine, the file first has a name that readers ignore. If
    the file already exists, it has the same rows, and readers that have opened it are not disturbed.
    """
    if not is_local(folder):
        data = _parquet(rows)
        if size_of(f"{folder}/{name}") != data.size:
            write_bytes(f"{folder}/{name}", data)
        return
    hidden = f"{folder}/.{name}"
    write_published(rows, hidden)
    with mapped():
        path_of(hidden).replace(f"{folder}/{name}")
        sync_folder(path_of(folder))


def discard(folder: str) -> None:
    """Removes a folder with its files, as far as possible."""
    if is_local(folder):
        shutil.rmtree(folder, ignore_errors=True)
        return
    with suppress(PidtsError):
        remove_folder(folder)


def inner_folders(folder: str, depth: int) -> list[str]:
    """Returns the folders at this depth below a folder."""
    if not is_local(folder):
        return folders_below(folder, depth)
    found = [folder]
    for _ in range(depth):
        found = [inner for each in found for inner in folders_in(each)]
    return found


def _parquet(rows: pa.Table) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    _write_parquet(rows, sink)
    return sink.getvalue()


def _write_parquet(rows: pa.Table, where: str | pa.NativeFile) -> None:
    with pq.ParquetWriter(
        where, rows.schema, compression="snappy", use_deprecated_int96_timestamps=True, store_schema=False
    ) as writer:
        writer.write_table(rows, ROW_GROUP)
        # Hive 4 needs this to know that days before 1582 are in the Gregorian calendar.
        writer.add_key_value_metadata({"writer.date.proleptic": "true"})
