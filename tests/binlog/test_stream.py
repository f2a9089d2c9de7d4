"""A large part of the log has the same result piece by piece as all at once, in memory that does not grow."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import zlib
from collections.abc import Iterator
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import zstandard
from tests.binlog.logs.log_maker import LogMaker
from tests.binlog.logs.scenarios import Recording, kept, load

from pidts.binlog import EventType, LargeSliceError, decode_slice, decode_stream, whole_events
from pidts.model import Column, ColumnType, Kind, Lsn, Table, TableName

MOVING = [name for name in kept() if name.endswith(("transactions", "partial", "prepared"))]
BLOB = Table(TableName("shop", "t"), (Column("v", ColumnType(Kind.LONGTEXT, charset="utf8mb4")),))
TABLE_MAP = b"\7\0\0\0\0\0\1\0\4shop\0\1t\0\1\xfc\1\4\1"
EVENTS, EVENT_BYTES = 600, 1 << 20


def arguments(recording: Recording) -> dict[str, Any]:
    return {
        "format": recording.format,
        "log_file": recording.log_file,
        "change_no": 3,
        "structures": recording.structures or {},
    }


def rows_of(batches: Any) -> dict[TableName, pa.Table]:
    found: dict[TableName, list[pa.RecordBatch]] = {}
    for batch in batches:
        found.setdefault(batch.table.name, []).append(batch.rows)
    return {name: pa.Table.from_batches(parts).combine_chunks() for name, parts in found.items()}


@pytest.mark.parametrize("name", MOVING)
@pytest.mark.parametrize("size", [50, 1000, 10**9])
def test_pieces_give_the_same_rows(name, size, kernel, monkeypatch):
    monkeypatch.setattr("pidts.binlog.stream._STEP_BYTES", 20)
    recording = load(name)
    raw = recording.events

    def pieces() -> Iterator[bytes]:
        return whole_events(raw[at : at + size] for at in range(0, len(raw), size))

    log_parts = [
        [lsn for batch in log_part for lsn in batch.rows["lsn"].to_pylist()]
        for log_part in decode_stream(pieces, **arguments(recording))
    ]
    assert all(max(one) < min(two) for one, two in pairwise(filter(None, log_parts)))
    found = rows_of(chain.from_iterable(decode_stream(pieces, **arguments(recording))))
    expected = rows_of(decode_slice(raw, **arguments(recording)))
    assert found.keys() == expected.keys()
    assert all(found[table].equals(rows) for table, rows in expected.items())


def test_rows_leave_before_their_transaction_ends_unless_it_may_be_taken_back(kernel, monkeypatch):
    monkeypatch.setattr("pidts.binlog.stream._STEP_BYTES", 1)
    for closing, parts in (("COMMIT", 3), ("ROLLBACK", 0)):
        log = random_log([5, 5, 5], closing)
        log_parts = list(decode_stream(lambda log=log: log.events, **about(log)))  # type: ignore[misc]
        assert len(log_parts) == parts


@pytest.mark.parametrize(("closing", "leaves"), [("COMMIT", True), ("ROLLBACK", False)])
def test_rows_leave_a_compressed_transaction_piece_by_piece(closing, leaves, kernel):
    """The only event of the transaction has several pieces of rows.

    A rollback in the transaction is found before any row is returned.
    """
    inner = bare(EventType.TABLE_MAP, TABLE_MAP)
    for _ in range(10):
        inner += bare(EventType.WRITE_ROWS_V1, row(1 << 20))
    inner += bare(EventType.QUERY, bytes(8) + b"\0\0\0\0\0" + b"\0" + closing.encode())
    log = compressed_log(inner)
    found = list(decode_stream(lambda: log.events, **about(log)))
    assert (len(found) > 1) == leaves
    expected = rows_of(decode_slice(b"".join(log.events), **about(log)))
    taken = rows_of(chain.from_iterable(found))
    assert taken.keys() == expected.keys()
    assert all(taken[table].equals(rows) for table, rows in expected.items())
    assert sum(map(len, taken.values())) == (10 if leaves else 0)


@pytest.mark.parametrize("most", [1 << 20, 1 << 30])
def test_the_limit_of_a_slice_is_that_of_its_rows_however_small_the_log_is(most, kernel):
    inner = bare(EventType.TABLE_MAP, TABLE_MAP)
    inner += bare(EventType.WRITE_ROWS_V1, row(1 << 19)) * 8
    inner += bare(EventType.QUERY, bytes(8) + b"\0\0\0\0\0" + b"\0" + b"COMMIT")
    log = compressed_log(inner)
    raw = b"".join(log.events)
    assert len(raw) < 10_000
    if most < len(inner):
        with pytest.raises(LargeSliceError):
            decode_slice(raw, most_bytes=most, **about(log))
    else:
        assert sum(map(len, decode_slice(raw, most_bytes=most, **about(log)))) == 8


def compressed_log(inner: bytes) -> LogMaker:
    """Returns a log with one compressed transaction, which has these events."""
    log = LogMaker(random.Random(1), product="mariadb")
    log.gtid()
    size = b"\3\4\xfd" + len(inner).to_bytes(3, "little")
    log.put(EventType.TRANSACTION_PAYLOAD, b"\2\1\0" + size + b"\0" + zstandard.compress(inner))
    return log


def bare(kind: int, content: bytes) -> bytes:
    """Returns an event as it is in a compressed transaction: without a checksum."""
    raw = bytearray(19)
    raw[4], raw[9:13] = kind, (19 + len(content)).to_bytes(4, "little")
    return bytes(raw) + content


def random_log(sizes: list[int], closing: str) -> LogMaker:
    log = LogMaker(random.Random(1), product="mariadb")
    log.gtid()
    log.put(EventType.TABLE_MAP, TABLE_MAP)
    for size in sizes:
        log.put(EventType.WRITE_ROWS_V1, row(size))
    log.query(closing)
    return log


def row(size: int) -> bytes:
    return b"\7\0\0\0\0\0\0\0\1\xff\0" + size.to_bytes(4, "little") + b"x" * size


def about(log: LogMaker) -> dict[str, Any]:
    from pidts.binlog import LogWalker

    walker = LogWalker(log.file)
    walker.feed(log.events[0])
    return {"format": walker.format, "log_file": log.file, "change_no": 0, "structures": {BLOB.name: BLOB}}


def test_a_transaction_larger_than_memory_should_be_is_decoded_in_little(kernel):
    """The rows have 600 MB; the process has only a few batches of them in memory at a time."""
    done = subprocess.run(
        [sys.executable, "-c", "from tests.binlog.test_stream import large; large()"],
        env={**os.environ, "PIDTS_KERNEL": kernel, "PYTHONPATH": str(Path.cwd())},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    rows, before, peak = map(int, done.stdout.split())
    assert rows == EVENTS
    assert peak - before < 350 << 10, f"{(peak - before) >> 10} MB"


def large() -> None:
    import resource

    first = random_log([], "COMMIT")
    head, body = first.events[:3], first.events[3]
    content = row(EVENT_BYTES)
    size = 19 + len(content) + 4
    raw = bytearray(19 + len(content))
    raw[19:] = content
    raw[4], raw[9:13] = EventType.WRITE_ROWS_V1, size.to_bytes(4, "little")
    event = bytes(raw) + zlib.crc32(raw).to_bytes(4, "little")

    def pieces() -> Iterator[bytes]:
        yield b"".join(head)
        for _ in range(EVENTS):
            yield event
        yield body[:13] + bytes(4) + body[17:-4] + zlib.crc32(body[:13] + bytes(4) + body[17:-4]).to_bytes(4, "little")

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    count, last = 0, Lsn(0, 0, 0).to_bytes()
    for batch in chain.from_iterable(decode_stream(pieces, **about(first))):
        lsns = batch.rows["lsn"].to_pylist()
        assert lsns == sorted(lsns)
        assert lsns[0] > last
        count, last = count + len(batch), lsns[-1]
    print(count, before, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)  # noqa: T201 - read by the test
