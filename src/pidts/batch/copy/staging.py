"""Stores results of a full copy's requests, from the batch that carries them out to the batch that settles them.

A request leaves one small JSON file with the result for the planner. Rows that the target did not accept at once are
stored next to that file, one Arrow file per chunk. These files stay until the batch that settles the request reduces
the rows together with its log.

A file gets its name only when it is complete. The JSON file, which names the other files, is written last. If a Spark
task was run twice, there may be files that no JSON file names. After a restart, all of these files are ignored, and the
rows are read again.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa

from pidts.model import Lsn, Transient, Where
from pidts.plan import ChunkRequest, StagedChunk, key_values

_ABSENT = {b"absent": b"1"}


def stage(staging: Path, chunk: StagedChunk, files: Sequence[str] = ()) -> None:
    """Writes the result of a request for the planner; `files` have its staged rows."""
    path = _result_file(staging, chunk.request)
    part = path.with_suffix(f".{os.getpid()}.part")
    with _written(part):
        part.write_text(json.dumps(_to_json(chunk) | {"files": list(files)}))
        part.rename(path)


def staged_chunk(staging: Path, request: ChunkRequest) -> StagedChunk | None:
    """Returns the result of a request for the planner; None if it was not carried out yet."""
    data = _read(staging, request)
    return None if data is None else _from_json(request, data)


def keep(staging: Path, request: ChunkRequest, rows: pa.Table) -> str:
    """Stores a chunk's rows; returns the name of their file, for `stage`."""
    path = _result_file(staging, request)
    name = f"{path.stem}.{uuid4().hex}.arrow"
    file = path.with_name(name)
    with _written(file), pa.OSFile(str(file), "wb") as sink, pa.ipc.new_file(sink, rows.schema) as writer:
        writer.write_table(rows)
    return name


@contextmanager
def _written(file: Path) -> Iterator[None]:
    """Makes the folder of a file that the block writes. If the disk is full, removes the file: the run tries again."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        if error.errno not in {errno.ENOSPC, errno.EDQUOT}:
            raise
        file.unlink(missing_ok=True)
        what = "the relay's disk is full, and has no room for copied rows"
        raise Transient("relay-full", what, where=Where(file=str(file)), todo="Make room on that disk") from error


def marked_absent(keys: pa.Table) -> pa.Table:
    """Marks keys that the source does not have, so that they differ from the rows of a stored chunk."""
    return keys.replace_schema_metadata(_ABSENT)


def is_absent(rows: pa.Table) -> bool:
    """Whether these are keys that the source does not have."""
    return bool(rows.schema.metadata == _ABSENT)


def staged_rows(staging: Path, request: ChunkRequest) -> Iterator[pa.Table]:
    """Yields the staged rows of a request, chunk by chunk. Some chunks may have only keys (`marked_absent`)."""
    data = _read(staging, request)
    for name in data["files"] if data else ():
        with pa.memory_map(str(_result_file(staging, request).with_name(name))) as source:
            yield pa.ipc.open_file(source).read_all()


def forget(staging: Path, requests: Iterable[ChunkRequest]) -> None:
    """Removes the files of requests that are settled or will be read again."""
    for request in requests:
        path = _result_file(staging, request)
        for found in path.parent.glob(f"{path.stem}.*"):
            found.unlink(missing_ok=True)


def _result_file(staging: Path, request: ChunkRequest) -> Path:
    # A quoted table name of 64 characters may be too long for a file name.
    name = sha256(f"{request.table.schema}\0{request.table.name}".encode()).hexdigest()[:32]
    return staging / "copy" / f"{name}.{request.number}.json"


def _read(staging: Path, request: ChunkRequest) -> dict[str, Any] | None:
    try:
        data: dict[str, Any] = json.loads(_result_file(staging, request).read_text())
    except FileNotFoundError:
        return None
    # The requests are compared as JSON, as in the file. It would not be enough to compare the requests' numbers: they
    # begin again for a table that was created again.
    return data if data["request"] == json.loads(json.dumps(request.to_json())) else None


def _to_json(chunk: StagedChunk) -> dict[str, Any]:
    return {
        "request": chunk.request.to_json(),
        "high": str(chunk.high),
        "rows": chunk.rows,
        "last_key": chunk.last_key,
        "upto": chunk.upto,
        "is_last": chunk.is_last,
        "stale": chunk.altered,
        "low": None if chunk.low is None else str(chunk.low),
        "waiting": chunk.waiting,
        "bytes": chunk.bytes,
        "largest": chunk.largest,
        "seconds": chunk.seconds,
    }


def _from_json(request: ChunkRequest, data: dict[str, Any]) -> StagedChunk:
    return StagedChunk(
        request=request,
        high=Lsn.parse(data["high"]),
        rows=data["rows"],
        last_key=key_values(data["last_key"]),
        upto=key_values(data["upto"]),
        is_last=data["is_last"],
        altered=data["stale"],
        low=None if data["low"] is None else Lsn.parse(data["low"]),
        waiting=data["waiting"],
        bytes=data["bytes"],
        largest=data["largest"],
        seconds=data["seconds"],
    )
