"""A real server's log gives the same events whether it is read in blocks or event by event."""

from __future__ import annotations

import pytest

from pidts.binlog import iter_raw
from pidts.model import Halted, Position
from pidts.source import BinlogStream, BlockShape, log_end, query


def in_blocks(stream: BinlogStream) -> tuple[list[bytes], set[BlockShape]]:
    """Returns the events, and the forms in which they arrived."""
    events, shapes, pieces = [], set(), b""
    with stream:
        while not stream.ended:
            block = stream.read_block()
            if block is None:
                continue
            shapes.add(block.shape)
            if block.shape is BlockShape.EVENTS:
                found = [bytes(raw) for raw in iter_raw(block.data)]
                assert len(found) == block.events
                events += found
                continue
            pieces += block.data
            if block.shape is BlockShape.LAST_PIECE:
                events.append(pieces)
                pieces = b""
    return events, shapes


def one_by_one(stream: BinlogStream) -> list[bytes]:
    events = []
    with stream:
        while not stream.ended:
            events += stream.read_burst()
    return events


def test_the_same_events_come_in_blocks(mysql_like, config_of, open_session, database):
    session = open_session(mysql_like)
    query(session, f"CREATE TABLE {database}.t (a INT AUTO_INCREMENT PRIMARY KEY, v LONGBLOB)")
    start = log_end(session)
    for size in (1, 100, 3 << 20, 10):
        query(session, f"INSERT INTO {database}.t (v) VALUES (REPEAT('x', {size})), ('short')")
    blocks, shapes = in_blocks(BinlogStream(config_of(mysql_like), start, non_blocking=True))
    assert blocks == one_by_one(BinlogStream(config_of(mysql_like), start, non_blocking=True))
    assert shapes == {BlockShape.EVENTS, BlockShape.PIECE, BlockShape.LAST_PIECE}


def test_a_refusal_of_the_server_is_reported(mysql_like, config_of, open_session):
    end = log_end(open_session(mysql_like))
    stream = BinlogStream(config_of(mysql_like), Position(Position.of(end.base, 999999, 4).file, 4))
    with pytest.raises(Halted) as refused:
        in_blocks(stream)
    assert refused.value.code == "position-lost"


def test_a_silent_server_still_sends_heartbeats(mariadb, config_of, open_session):
    stream = BinlogStream(config_of(mariadb), log_end(open_session(mariadb)), heartbeat=0.05)
    with stream:
        shapes = [block.events for _ in range(12) if (block := stream.read_block(0.3)) is not None]
    assert shapes.count(0) > 5
