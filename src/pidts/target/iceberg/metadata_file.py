"""Reads a table's metadata file: the table's structure, and the files of its current snapshot."""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from pyiceberg.conversions import from_bytes
from pyiceberg.manifest import DataFileContent, ManifestEntry, ManifestFile
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil
from pyiceberg.types import BinaryType, StringType

from pidts.model import Halted, Table, TableName, Where
from pidts.target.iceberg.columns import stored_type
from pidts.target.iceberg.files import IO, Cache, read_bytes, read_columns, reading

if TYPE_CHECKING:
    from pyiceberg.types import IcebergType

STRUCTURE = "pidts.structure"
"""The name of a table's property that contains the source's structure."""
FILE_PATH = pa.field("file_path", pa.string(), nullable=False, metadata={"PARQUET:field_id": "2147483546"})
POSITION = pa.field("pos", pa.int64(), nullable=False, metadata={"PARQUET:field_id": "2147483545"})

_metadata = Cache(200)
_manifests = Cache(2_000)
_positions = Cache(64 << 20)

Positions = dict[str, np.ndarray]
"""The numbers of removed rows, counted from 0 and sorted, by the path of their file."""


@dataclass(frozen=True)
class MetadataFile:
    """The contents of a metadata file; they never change."""

    name: TableName
    location: str
    """The path of the metadata file."""
    metadata: TableMetadata = field(repr=False)

    @classmethod
    def read(cls, name: TableName, location: str) -> MetadataFile:
        """Reads a metadata file."""

        def parsed() -> TableMetadata:
            with reading(location):
                return TableMetadataUtil.parse_raw(read_bytes(location).decode())

        return cls(name, location, _metadata.get(location, parsed))

    @cached_property
    def table(self) -> Table:
        """The source's structure of the table."""
        text = self.metadata.properties.get(STRUCTURE)
        if text is None:
            raise Halted(
                "target-shape",
                "the catalog has a table of this name that another program has made",
                where=Where(table=str(self.name)),
                todo="Rename or drop this table, or give the task another warehouse or catalog name",
            )
        return Table.from_json(json.loads(text)).renamed(self.name)

    @cached_property
    def fields(self) -> dict[str, tuple[int, pa.Field]]:
        """The id and the Arrow field of each column."""
        ids = {each.name: each.field_id for each in self.metadata.schema().fields}
        return {
            column.name: (ids[column.name], data_field(ids[column.name], column.name, stored_type(column.type)))
            for column in self.table.columns
        }

    def some(self, names: list[str]) -> dict[int, pa.Field]:
        """Returns the fields of these columns, keyed by their ids."""
        return dict(self.fields[name] for name in names)

    @cached_property
    def manifests(self) -> list[ManifestFile]:
        """The manifests of the current snapshot."""
        current = self.metadata.current_snapshot()
        if current is None:
            return []
        with reading(current.manifest_list):
            return list(current.manifests(IO))

    @cached_property
    def entries(self) -> list[tuple[ManifestFile, list[ManifestEntry]]]:
        """The files of each manifest, without the files that it lists as deleted."""
        return [(each, live_entries(each)) for each in self.manifests]

    @cached_property
    def data(self) -> dict[str, ManifestEntry]:
        """The files with rows."""
        return self._files(DataFileContent.DATA)

    @cached_property
    def deletes(self) -> dict[str, ManifestEntry]:
        """The position delete files: they list the positions of removed rows."""
        return self._files(DataFileContent.POSITION_DELETES)

    @cached_property
    def dead(self) -> Positions:
        """The removed rows of the data files."""
        found: dict[str, list[np.ndarray]] = {}
        for path in self.deletes:
            for data_path, places in deleted_positions(path).items():
                if data_path in self.data:
                    found.setdefault(data_path, []).append(places)
        return {path: in_order(parts) for path, parts in found.items()}

    @cached_property
    def rows(self) -> int:
        """The number of rows."""
        return sum(each.data_file.record_count for each in self.data.values()) - sum(map(len, self.dead.values()))

    def may_hold(self, entry: ManifestEntry, column: str, least: object, most: object) -> bool:
        """Whether a file may have values between `least` and `most`. True for all texts: their bounds are cut off."""
        number = self.fields[column][0]
        kind: IcebergType = self.metadata.schema().find_type(number)
        file = entry.data_file
        low, high = (bounds.get(number) if bounds else None for bounds in (file.lower_bounds, file.upper_bounds))
        if low is None or high is None or isinstance(kind, (StringType, BinaryType)):
            return True
        try:
            return not (most < from_bytes(kind, low) or least > from_bytes(kind, high))
        except (TypeError, ValueError, struct.error):  # the file was written before the column was widened
            return True

    def _files(self, content: DataFileContent) -> dict[str, ManifestEntry]:
        return {
            each.data_file.file_path: each
            for _, entries in self.entries
            for each in entries
            if each.data_file.content == content
        }


def in_order(parts: Sequence[np.ndarray]) -> np.ndarray:
    """Returns row numbers as one sorted array, each number once.

    The parts are sorted, so sorting only merges them. `np.unique` would hash every number, which is slower.
    """
    if len(parts) == 1:
        found = parts[0]
    else:
        found = np.concatenate(parts)
        found.sort(kind="stable")
    is_first = np.ones(len(found), np.bool_)
    np.not_equal(found[1:], found[:-1], out=is_first[1:])
    return found if is_first.all() else found[is_first]


def data_field(number: int, name: str, kind: pa.DataType) -> pa.Field:
    """Returns the field of a column, with its id and the type that data files have."""
    return pa.field(name, kind, metadata={"PARQUET:field_id": str(number)})


def live_entries(manifest: ManifestFile) -> list[ManifestEntry]:
    """Returns the files in a manifest that it does not list as deleted, from the cache if they are in it."""

    def fetched() -> list[ManifestEntry]:
        with reading(manifest.manifest_path):
            return manifest.fetch_manifest_entry(IO, discard_deleted=True)

    key = (manifest.manifest_path, manifest.sequence_number)
    return _manifests.get(key, fetched, lambda entries: len(entries) + 1)


def deleted_positions(path: str) -> Positions:
    """Returns the contents of a file of removed rows, from the cache if they are in it."""

    def read() -> Positions:
        rows = read_columns(path, {2147483546: FILE_PATH, 2147483545: POSITION})
        paths = rows["file_path"].combine_chunks().dictionary_encode()
        places = rows["pos"].to_numpy()
        which = paths.indices.to_numpy()
        return {name: np.sort(places[which == at]) for at, name in enumerate(paths.dictionary.to_pylist())}

    return _positions.get(path, read, lambda found: sum(each.nbytes for each in found.values()) + 100)
