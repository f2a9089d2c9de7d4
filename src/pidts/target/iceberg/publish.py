"""Writes a new snapshot of a table: its files first, and at the end the metadata file's name in the catalog.

Crash points, and what is true after each:

1. before the metadata file is complete: nothing names the files that are written, so no reader finds them. They are
   orphans.
2. after the metadata file is written, before the catalog's COMMIT: all of these files are orphans, too.
3. at COMMIT: SQLite commits the whole transaction or nothing of it. The caller finds out by reading the checkpoint.
4. after COMMIT: readers find the snapshot, and the checkpoint is saved.

If the current snapshot does not need a file, the file is kept for `KEPT_SECONDS`, for readers that began with an
earlier snapshot. It is kept longer if the table's metadata still names an earlier snapshot that needs it.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io.pyarrow import (
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
)
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    ManifestWriterV2,
    write_manifest_list,
)
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Operation, Summary
from pyiceberg.table.snapshots import Snapshot as IcebergSnapshot
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    RemoveSnapshotsUpdate,
    SetSnapshotRefUpdate,
    TableUpdate,
    update_table_metadata,
)
from pyiceberg.typedef import Record

from pidts.target.iceberg.connection import mapped
from pidts.target.iceberg.files import IO, make_durable, write_bytes, write_parquet
from pidts.target.iceberg.metadata_file import FILE_PATH, POSITION, MetadataFile, deleted_positions
from pidts.target.iceberg.open_table import OpenTable, WrittenRows

KEPT_SECONDS = 3600
"""A file that the current snapshot does not need is kept for this many seconds."""
SNAPSHOTS = 100
"""The largest number of snapshots that a metadata file names."""
MANIFESTS = 30
"""If there are this many manifests, all of them are rewritten as one manifest of each kind."""
DELETE_FILES = 16
"""If there are this many files of removed rows, all of them are rewritten as one file."""
SMALL_FILES = 16
"""If there are this many small data files, the smallest are rewritten as one file."""
SMALL_BYTES = 16 << 20
_LOADED_SMALL_FILES, _LOADED_SMALL_BYTES = 64, 2 << 20
"""These replace SMALL_FILES and SMALL_BYTES while rows are loaded: most files of a copy are merged after the copy."""
MERGED_BYTES = 64 << 20
"""The most bytes of small files that one transaction rewrites, since other sessions wait meanwhile."""
_BYTES_AT_ONCE = 256 << 20
_DEAD_SHARE = 0.3
"""A data file is rewritten if more than this share of its rows are removed."""
_CODEC = "deflate"
_LIST = "snap.avro"
"""The suffix of the file names of PiDTS's manifest lists; no other program uses it."""


@dataclass(slots=True)
class NewMetadata:
    """A new metadata file, and the files that are unnecessary because of it."""

    location: str
    """The path of the new metadata file."""
    metadata: TableMetadata
    retired: list[str]
    """Files that the table no longer needs."""
    is_branched: bool
    """Whether the history of snapshots has branches: another program has committed to a branch, or has gone back to an
    earlier snapshot. Then a later snapshot may need a file that an earlier snapshot did not need any more.
    """


class _DeletesWriter(ManifestWriterV2):
    """Writes a manifest of files of removed rows."""

    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}


def publish(table: OpenTable, notes: Mapping[str, str]) -> NewMetadata:
    """Writes the transaction's changes of a table as one snapshot; returns the new metadata file."""
    compact(table)
    return _Publication(table, notes).written()


def prepare(table: OpenTable) -> None:
    """Writes the data files of loaded rows before the catalog's database is locked: no other session has to wait."""
    table.prepared += data_files(table.base, table.written)
    if table.base.table.identity:
        table.loaded += table.written
    table.written = []


def data_files(base: MetadataFile, written: Iterable[WrittenRows]) -> list[DataFile]:
    """Writes rows to files, sorted by identity. So the bounds of a file show which keys the file may have."""
    parts = [each.left for each in written if each.alive.any()]
    if not parts:
        return []
    rows = pa.concat_tables(parts).combine_chunks()
    if identity := base.table.identity:
        rows = rows.take(pc.sort_indices(rows, sort_keys=[(name, "ascending") for name in identity]))
    step = max(1, min(rows.num_rows, _BYTES_AT_ONCE * rows.num_rows // max(rows.nbytes, 1)))
    return [_data_file(base.metadata, rows.slice(start, step)) for start in range(0, rows.num_rows, step)]


def _data_file(metadata: TableMetadata, rows: pa.Table) -> DataFile:
    place = f"{metadata.location}/data/{metadata.next_sequence_number():08d}-{uuid.uuid4().hex}.parquet"
    footer, size = write_parquet(place, rows)
    schema = metadata.schema()
    statistics = data_file_statistics_from_parquet_metadata(
        footer, compute_statistics_plan(schema, metadata.properties), parquet_path_to_id_mapping(schema)
    )
    return _file(DataFileContent.DATA, place, size, **statistics.to_serialized_dict())


def compact(table: OpenTable) -> None:
    """Chooses committed files whose rows are rewritten: small files, and files with many removed rows."""
    most_files, most_bytes = SMALL_FILES, SMALL_BYTES
    if table.prepared:
        most_files, most_bytes = _LOADED_SMALL_FILES, _LOADED_SMALL_BYTES
    found, small, merged, left = 0, [], 0, _BYTES_AT_ONCE
    for path, entry in sorted(table.committed.items(), key=lambda item: item[1].data_file.file_size_in_bytes):
        size, rows = entry.data_file.file_size_in_bytes, entry.data_file.record_count
        dead = len(table.all_dead(path))
        if dead == rows:
            table.dropped.add(path)
            table.removed.pop(path, None)
        elif size < most_bytes:
            found, merged = found + 1, merged + size
            if merged <= MERGED_BYTES:
                small.append(path)
        elif dead > rows * _DEAD_SHARE and SMALL_BYTES <= size <= left:
            table.rewrite(path)
            left -= size
    if found >= most_files:
        for path in small:
            table.rewrite(path)


class _Publication:
    """A snapshot that is being written."""

    def __init__(self, table: OpenTable, notes: Mapping[str, str]) -> None:
        self._table, self._notes, self._base = table, notes, table.base
        self._metadata = table.base.metadata
        self._id = self._metadata.new_snapshot_id()
        self._sequence = self._metadata.next_sequence_number()
        self._files = 0
        self._token = uuid.uuid4().hex
        self._retired: list[str] = []

    def written(self) -> NewMetadata:
        """Writes all files of the snapshot; returns the new metadata file."""
        gone = set(self._table.dropped)
        data = [*self._table.prepared, *data_files(self._base, self._table.written)]
        deletes, deletes_gone = self._delete_files()
        gone |= deletes_gone
        manifests = self._manifests(data, deletes, gone)
        self._retired += sorted(gone)
        snapshot = self._snapshot(manifests, data, deletes, gone)
        return self._finished(snapshot)

    def _place(self, folder: str, ending: str) -> str:
        self._files += 1
        return f"{self._metadata.location}/{folder}/{self._sequence:08d}-{self._files}-{self._token}.{ending}"

    def _delete_files(self) -> tuple[list[DataFile], set[str]]:
        """Writes the removed rows; returns the new files and the paths of files that are no longer needed."""
        alive = set(self._table.committed)
        old = self._base.deletes
        gone = {path for path in old if alive.isdisjoint(deleted_positions(path))}
        if len(old) - len(gone) >= DELETE_FILES:
            gone = set(old)
            removed = {path: self._table.all_dead(path) for path in alive}
        else:
            removed = {path: np.concatenate(parts) for path, parts in self._table.removed.items() if path in alive}
        removed = {path: np.sort(places) for path, places in sorted(removed.items()) if len(places)}
        if not removed:
            return [], gone
        rows = pa.table(
            [
                pa.array(
                    np.repeat(np.array(list(removed), object), [len(each) for each in removed.values()]), pa.string()
                ),
                pa.array(np.concatenate(list(removed.values())), pa.int64()),
            ],
            schema=pa.schema([FILE_PATH, POSITION]),
        )
        place = self._place("data", "deletes.parquet")
        _, size = write_parquet(place, rows)
        return [_file(DataFileContent.POSITION_DELETES, place, size, record_count=rows.num_rows)], gone

    def _manifests(self, data: list[DataFile], deletes: list[DataFile], gone: set[str]) -> list[ManifestFile]:
        everything = len(self._base.manifests) >= MANIFESTS
        kept: list[ManifestFile] = []
        moved: dict[ManifestContent, list[ManifestEntry]] = {ManifestContent.DATA: [], ManifestContent.DELETES: []}
        for manifest, entries in self._base.entries:
            if entries and not everything and gone.isdisjoint(each.data_file.file_path for each in entries):
                kept.append(manifest)
            else:
                moved[manifest.content] += entries
                self._retired.append(manifest.manifest_path)
        for content, files in ((ManifestContent.DATA, data), (ManifestContent.DELETES, deletes)):
            if files or moved[content]:
                kept.append(self._manifest(content, files, moved[content], gone))
        return kept

    def _manifest(
        self, content: ManifestContent, files: list[DataFile], moved: list[ManifestEntry], gone: set[str]
    ) -> ManifestFile:
        kind = ManifestWriterV2 if content is ManifestContent.DATA else _DeletesWriter
        place = self._place("metadata", "avro")
        with (
            mapped(),
            kind(self._metadata.spec(), self._metadata.schema(), IO.new_output(place), self._id, _CODEC) as writer,
        ):
            for each in files:
                writer.add_entry(
                    ManifestEntry.from_args(status=ManifestEntryStatus.ADDED, snapshot_id=self._id, data_file=each)
                )
            for entry in moved:
                (writer.delete if entry.data_file.file_path in gone else writer.existing)(entry)
        make_durable(place)
        return writer.to_manifest_file()

    def _snapshot(
        self, manifests: list[ManifestFile], data: list[DataFile], deletes: list[DataFile], gone: set[str]
    ) -> IcebergSnapshot:
        parent = self._metadata.current_snapshot()
        place = self._place("metadata", _LIST)
        parent_id = None if parent is None else parent.snapshot_id
        with (
            mapped(),
            write_manifest_list(2, IO.new_output(place), self._id, parent_id, self._sequence, _CODEC) as writer,
        ):
            writer.add_manifests(manifests)
        make_durable(place)
        if parent is not None:
            self._retired.append(parent.manifest_list)
        return IcebergSnapshot(
            snapshot_id=self._id,
            parent_snapshot_id=parent_id,
            sequence_number=self._sequence,
            timestamp_ms=max(int(time.time() * 1000), self._metadata.last_updated_ms),
            manifest_list=place,
            summary=self._summary(data, deletes, gone),
            schema_id=self._metadata.current_schema_id,
        )

    def _summary(self, data: list[DataFile], deletes: list[DataFile], gone: set[str]) -> Summary:
        there = [entry.data_file for entry in (*self._base.data.values(), *self._base.deletes.values())]
        lost = [each for each in there if each.file_path in gone]
        kept = [each for each in there if each.file_path not in gone]
        counted = {
            "added-data-files": len(data),
            "added-records": _records(data),
            "added-delete-files": len(deletes),
            "added-position-deletes": _records(deletes),
            "deleted-data-files": len(_of(lost, DataFileContent.DATA)),
            "deleted-records": _records(_of(lost, DataFileContent.DATA)),
            "removed-delete-files": len(_of(lost, DataFileContent.POSITION_DELETES)),
        }
        whole = [*kept, *data, *deletes]
        totals = {
            "total-data-files": len(_of(whole, DataFileContent.DATA)),
            "total-records": _records(_of(whole, DataFileContent.DATA)),
            "total-delete-files": len(_of(whole, DataFileContent.POSITION_DELETES)),
            "total-position-deletes": _records(_of(whole, DataFileContent.POSITION_DELETES)),
            "total-equality-deletes": 0,
            "total-files-size": sum(each.file_size_in_bytes for each in whole),
        }
        texts = {name: str(number) for name, number in counted.items() if number} | {
            name: str(number) for name, number in totals.items()
        }
        operation = Operation.OVERWRITE if deletes or lost else Operation.APPEND
        return Summary(operation, **texts, **self._notes)

    def _finished(self, snapshot: IcebergSnapshot) -> NewMetadata:
        updates: list[TableUpdate] = [
            AddSnapshotUpdate(snapshot=snapshot),
            SetSnapshotRefUpdate(ref_name="main", type="branch", snapshot_id=self._id),
        ]
        if old := self._expired(snapshot.timestamp_ms):
            updates.append(RemoveSnapshotsUpdate(snapshot_ids=old))
        return replace_metadata(self._base.location, self._metadata, updates, self._retired)

    def _expired(self, now: int) -> list[int]:
        """Returns the snapshots without tag or branch that were replaced long ago or are not among the newest."""
        known = sorted(self._metadata.snapshots, key=lambda one: one.sequence_number or 0)
        followed = [one.timestamp_ms for one in known[1:]]
        recent = {one.snapshot_id for one in known[-SNAPSHOTS:]}
        named = {one.snapshot_id for name, one in self._metadata.refs.items() if name != MAIN_BRANCH}
        return [
            one.snapshot_id
            for one, ended in zip(known[:-1], followed, strict=True)
            if (ended < now - KEPT_SECONDS * 1000 or one.snapshot_id not in recent) and one.snapshot_id not in named
        ]


def replace_metadata(
    location: str, metadata: TableMetadata, updates: Sequence[TableUpdate], retired: Sequence[str] = ()
) -> NewMetadata:
    """Writes and returns a table's next metadata file. `retired` are further files that the table no longer needs."""
    new = update_table_metadata(metadata, tuple(updates), metadata_location=location)
    return NewMetadata(write_metadata(new), new, [*retired, location], _has_branches(metadata))


def _has_branches(metadata: TableMetadata) -> bool:
    """Whether the snapshots before the current one have branches that no earlier commit has noticed.

    If another program goes back to an earlier snapshot and then commits, the newest snapshot is the current one again.
    """
    parent = metadata.current_snapshot()
    if metadata.last_sequence_number != (0 if parent is None else parent.sequence_number or 0):
        return True
    known = sorted(metadata.snapshots, key=lambda one: one.sequence_number or 0)
    return any(
        one.parent_snapshot_id != (before.snapshot_id if before else None) and not one.manifest_list.endswith(_LIST)
        for before, one in zip((None, *known), known, strict=False)
    )


def write_metadata(metadata: TableMetadata) -> str:
    """Writes a metadata file; returns its path."""
    place = f"{metadata.location}/metadata/{metadata.last_sequence_number:08d}-{uuid.uuid4().hex}.metadata.json"
    write_bytes(place, metadata.model_dump_json().encode())
    return place


def _file(content: DataFileContent, place: str, size: int, **statistics: object) -> DataFile:
    made = DataFile.from_args(
        content=content,
        file_path=place,
        file_format=FileFormat.PARQUET,
        partition=Record(),
        file_size_in_bytes=size,
        sort_order_id=None,
        equality_ids=None,
        key_metadata=None,
        **statistics,
    )
    made.spec_id = 0
    return made


def _of(files: Iterable[DataFile], content: DataFileContent) -> list[DataFile]:
    return [each for each in files if each.content == content]


def _records(files: Iterable[DataFile]) -> int:
    return sum(each.record_count for each in files)
