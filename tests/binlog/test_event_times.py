"""A filter that asks for `NOW()` gets the time in the header of the change's own event, however the log is decoded."""

from __future__ import annotations

import random
import zlib
from datetime import UTC, datetime
from itertools import chain
from typing import Any

import pytest
import zstandard
from tests.binlog.logs.log_maker import LogMaker

from pidts.binlog import EventType, LogWalker, decode_slice, decode_stream
from pidts.binlog.blocks.event_times import EventTimes
from pidts.binlog.events import HEADER, Format
from pidts.model import Column, ColumnType, Kind, Lsn, Table, TableName
from pidts.rules import Rules
from pidts.rules.expressions import ExpressionFilter, ExpressionRule

from .test_stream import bare

TABLE = Table(
    TableName("shop", "t"),
    (Column("id", ColumnType(Kind.INT)), Column("v", ColumnType(Kind.LONGTEXT, charset="utf8mb4"))),
)
TABLE_MAP = b"\7\0\0\0\0\0\1\0\4shop\0\1t\0\2\3\xfc\1\4\3"


def row(number: int) -> bytes:
    return b"\7\0\0\0\0\0\0\0\2\xff\0" + number.to_bytes(4, "little") + (3).to_bytes(4, "little") + b"abc"


def log_of_all_kinds() -> LogMaker:
    """Returns a log whose events have different times, with compressed transactions, and with gaps of events that were
    not sent.
    """
    log = LogMaker(random.Random(3), product="mariadb")
    for number in range(0, 60, 3):
        log.gtid()
        log.put(EventType.TABLE_MAP, TABLE_MAP)
        if number % 2:
            log.put(EventType.ANNOTATE_ROWS, b"INSERT" * 9)
            del log.events[-1]
        for place in range(3):
            log.time += random.Random(number + place).randint(-2, 9)
            log.put(EventType.WRITE_ROWS_V1, row(number + place))
        log.plain_query("COMMIT")
        if number % 4 == 0:
            inner = bare(EventType.TABLE_MAP, TABLE_MAP)
            inner += b"".join(bare(EventType.WRITE_ROWS_V1, row(1000 + number + place)) for place in range(2))
            log.gtid()
            inner += bare(EventType.XID, bytes(8))
            size = b"\3\3\xfc" + len(inner).to_bytes(2, "little")
            log.put(EventType.TRANSACTION_PAYLOAD, b"\2\1\0" + size + b"\0" + zstandard.compress(inner))
    return log


def arguments(log: LogMaker, rules: Rules | None = None) -> dict[str, Any]:
    walker = LogWalker(log.file)
    walker.feed(log.events[0])
    early_filter_of = None if rules is None else rules.early_filter
    about = {"format": walker.format, "log_file": log.file, "change_no": 0, "structures": {TABLE.name: TABLE}}
    return {**about, "early_filter_of": early_filter_of}


def filtered(text: str) -> Rules:
    return Rules(expressions=ExpressionFilter((ExpressionRule(schema="shop", table="t", insert=text),)))


def left(batches: Any) -> list[bytes]:
    return [lsn for batch in batches for lsn in batch.rows["lsn"].to_pylist()]


def written(time: int) -> str:
    return f"{datetime.fromtimestamp(time, UTC):%Y-%m-%d %H:%M:%S}"


def times_of(log: LogMaker) -> dict[int, int]:
    """Returns the time of each event, by the offset of its first byte."""
    walker = LogWalker(log.file)
    return {event.offset: event.timestamp for event in map(walker.feed, log.events)}


@pytest.mark.parametrize("more", ["", " AND id >= 0"], ids=["no column", "one column of two"])
@pytest.mark.parametrize("way", ["slice", "slice by slice", "stream", "stream that waits"])
def test_the_time_is_in_the_header_of_the_own_event(way, more, kernel, monkeypatch):
    log = log_of_all_kinds()
    if way == "stream that waits":
        log.plain_query("ROLLBACK")
    monkeypatch.setattr("pidts.binlog.stream._STEP_BYTES", 20)
    monkeypatch.setattr("pidts.binlog.decode.BATCH_BYTES", 100)
    times = times_of(log)
    everything = left(decode_slice(b"".join(log.events), **arguments(log)))
    assert len(everything) == 60 + 2 * 5
    assert len({times[Lsn.from_bytes(lsn).offset] for lsn in everything}) > 20
    for limit in sorted({time for time in times.values() if time})[::25]:
        how = arguments(log, filtered(f"NOW() >= '{written(limit)}'{more}"))
        if way == "slice":
            found = left(decode_slice(b"".join(log.events), **how))
        elif way == "slice by slice":
            found = parts(log, how)
        else:
            found = left(chain.from_iterable(decode_stream(lambda: log.events, **how)))
        assert found == [lsn for lsn in everything if times[Lsn.from_bytes(lsn).offset] < limit]


def parts(log: LogMaker, how: dict[str, Any]) -> list[bytes]:
    """Decodes the log in several slices; returns the Lsns of the rows that pass the filter."""
    walker, begin, found, part = LogWalker(log.file), 4, [], b""
    for raw in log.events:
        event = walker.feed(raw)
        part += raw
        if event.type in (EventType.QUERY, EventType.TRANSACTION_PAYLOAD):
            found += left(decode_slice(part, **how, offset=begin))
            begin, part = walker.offset, b""
    return found


@pytest.mark.parametrize("decode", ["slice", "stream"])
def test_changes_of_a_prepared_transaction_have_the_time_of_the_commit(decode, kernel):
    log = LogMaker(random.Random(3), product="mariadb")
    log.gtid()
    log.put(EventType.TABLE_MAP, TABLE_MAP)
    log.put(EventType.WRITE_ROWS_V1, row(1))
    log.plain_query("COMMIT")
    later = log.time + 1000
    for limit, count in ((later, 0), (later + 1, 1)):
        how = {
            **arguments(log, filtered(f"NOW() >= '{written(limit)}'")),
            "commit": Lsn(0, 7, 90000),
            "commit_time": later,
        }
        if decode == "slice":
            found = left(decode_slice(b"".join(log.events), **how))
        else:
            found = left(chain.from_iterable(decode_stream(lambda: log.events, **how)))
        assert len(found) == count


@pytest.mark.parametrize("seed", range(20))
def test_compiled_code_reads_the_same_times(seed, monkeypatch):
    """The log has several files, events that only the dump thread has made, and gaps of events that were not sent."""
    chance = random.Random(seed)
    log = LogMaker(chance, product=chance.choice(["mariadb", "mysql"]))
    head, blocks = log.events[0], [b""]
    for number in range(chance.randint(1, 60)):
        log.time += chance.choice([0, 0, 1, 5, -3])
        log.gtid()
        log.put(EventType.TABLE_MAP, TABLE_MAP)
        log.put(EventType.WRITE_ROWS_V1, row(number))
        log.plain_query("COMMIT")
    for raw in log.events[1:]:
        odd = chance.random()
        if odd < 0.05:
            blocks[-1] += made_up(EventType.HEARTBEAT)
        elif odd < 0.1:
            file = f"bin.{chance.randint(1, 3):06}"
            blocks[-1] += made_up(EventType.ROTATE, (4).to_bytes(8, "little") + file.encode()) + head
        elif odd < 0.2:
            continue
        blocks[-1] += raw
        if chance.random() < 0.1:
            blocks.append(b"")
    found = []
    for choice in ("compiled", "python"):
        monkeypatch.setenv("PIDTS_KERNEL", choice)
        times = EventTimes(LogWalker(log.file, format=Format(checksum=True, server_version="", is_mariadb=True)))
        for block in blocks:
            times.add(block)
        found.append(vars(times) | {"_walker": (times._walker.file, times._walker.offset), "_headers": None})
    assert found[0] == found[1]
    assert found[0]["_times"]


def made_up(kind: int, body: bytes = b"") -> bytes:
    """Returns an artificial event, which is in no log file."""
    size = 19 + len(body) + 4
    raw = HEADER.pack(0, kind, 1, size, 0, 0x20) + body
    return raw + zlib.crc32(raw).to_bytes(4, "little")
