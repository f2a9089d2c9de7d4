"""Chunks of a full copy between the batch that reads them and the batch that writes them: one Arrow file each.

A file appears under its name only when it is whole. Its schema's metadata tells the planner what it must know, so the
rows are read once, by the task that writes them to the target. A restart forgets them all and reads again.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

import pyarrow as pa

from pidts.copy import Chunk
from pidts.model import Lsn
from pidts.plan import ChunkRequest, StagedChunk, key_values

_META = b"pidts"


def chunk_path(staging: Path, request: ChunkRequest) -> Path:
    """Where a chunk lies."""
    schema, name = (quote(part, safe="") for part in (request.table.schema, request.table.name))
    return staging / f"in-{schema}" / f"{name}.{request.number}.arrow"


def stage(staging: Path, request: ChunkRequest, chunk: Chunk, high: Lsn) -> None:
    """Keep a chunk that was read. Where a task was run twice the first file stays: the planner may have seen it."""
    about = {
        "request": request.to_json(),
        "high": str(high),
        "rows": chunk.rows.num_rows,
        "last_key": chunk.last_key,
        "upto": chunk.upto,
        "is_last": chunk.done,
        "stale": chunk.stale,
    }
    path = chunk_path(staging, request)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(f".{os.getpid()}.part")
    rows = chunk.rows.replace_schema_metadata({_META: json.dumps(about).encode()})
    with pa.OSFile(str(part), "wb") as sink, pa.ipc.new_file(sink, rows.schema) as writer:
        writer.write_table(rows)
    with suppress(FileExistsError):
        os.link(part, path)
    part.unlink()


def staged_chunk(staging: Path, request: ChunkRequest) -> StagedChunk | None:
    """What the planner knows of a chunk; None while it has not been read."""
    path = chunk_path(staging, request)
    if not path.exists():
        return None
    with pa.memory_map(str(path)) as source:
        about = json.loads(pa.ipc.open_file(source).schema.metadata[_META])
    if ChunkRequest.from_json(about["request"]) != request:
        return None
    return StagedChunk(
        request=request,
        high=Lsn.parse(about["high"]),
        rows=about["rows"],
        last_key=key_values(about["last_key"]),
        upto=key_values(about["upto"]),
        is_last=about["is_last"],
        stale=about["stale"],
    )


def staged_rows(staging: Path, request: ChunkRequest) -> pa.Table:
    """The rows of a chunk."""
    with pa.memory_map(str(chunk_path(staging, request))) as source:
        return pa.ipc.open_file(source).read_all()


def forget(staging: Path, requests: tuple[ChunkRequest, ...]) -> None:
    """Remove chunks that are written."""
    for request in requests:
        chunk_path(staging, request).unlink(missing_ok=True)
