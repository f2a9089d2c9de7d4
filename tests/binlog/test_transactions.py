"""Wherever a log is cut into blocks, each of its transactions is found with exactly its own bytes."""

from __future__ import annotations

import random

import numpy as np
import pytest
from tests.binlog.logs.scenarios import kept, load

from pidts.binlog import EventType, LogWalker, TransactionScanner, decode_slice, iter_raw
from pidts.binlog.events import is_artificial
from pidts.binlog.transactions import TransactionReader
from pidts.excerpt.row_transactions import EventPlaces
from pidts.model import Lsn, Position, Transaction

pytestmark = pytest.mark.usefixtures("kernel")


def one_by_one(events, begins):
    """Returns each transaction with the number of its first event, and of the event after its last one."""
    walker, scanner = LogWalker(begins.file, begins.offset), TransactionScanner(0, begin_lsn(begins))
    first = 0
    for number, raw in enumerate(events):
        if not scanner.in_transaction:
            scanner.empty_entry()
            first = number
        if (transaction := scanner.feed(walker.feed(raw))) is not None:
            yield transaction, first, number + 1


def begin_lsn(begins):
    return TransactionReader.at(begins, 0)._scanner.previous


def by_blocks(blocks, begins):
    reader, passed = TransactionReader.at(begins, 0), 0
    for block in blocks:
        for found in reader.read(block):
            assert found.base == passed
            if isinstance(found.what, Transaction):
                yield found.what, found.begin, found.end
                continue
            begin = found.begin
            for transaction, end in zip(found.what.transactions(), found.what.block_ends, strict=True):
                yield transaction, begin, found.base + end
                begin = found.base + end
            assert begin == found.end
        passed += len(block)


@pytest.mark.parametrize("name", kept())
def test_blocks_hold_what_events_hold(name):
    recording = load(name)
    begins = Position(recording.log_file, 4)
    events = [bytes(raw) for raw in iter_raw(recording.events)]
    places = [0]
    for raw in events:
        places.append(places[-1] + len(raw))
    expected = [(what, places[first], places[behind]) for what, first, behind in one_by_one(events, begins)]
    for seed in range(5):
        chance = random.Random(seed)
        blocks = [b""]
        for raw in events:
            if chance.random() < 0.2:
                blocks.append(b"")
            blocks[-1] += raw
        assert list(by_blocks(blocks, begins)) == expected


@pytest.mark.parametrize("name", kept())
def test_every_event_is_where_the_walker_finds_it(name):
    recording = load(name)
    walker = LogWalker(recording.log_file)
    events = iter_raw(recording.events)
    found = [(walker.feed(raw), raw) for raw in events if walker.file == recording.log_file]
    end = found[-1][0].end
    if any(is_artificial(event.type, event.flags, event.log_pos) for event, _ in found):
        pytest.skip("a server's stream, not a part of a log file")
    places = EventPlaces(memoryview(b"".join(raw for _, raw in found)), 4)
    assert places.offsets.tolist() == [event.offset for event, _ in found] + [end]
    assert places.kinds.tolist()[:-1] == [event.type for event, _ in found]
    for number, (event, _) in enumerate(found):
        assert places.times(places.offsets[number : number + 1]).tolist() == [event.timestamp]
        if event.type == EventType.XID:
            (xid,) = places.numbers(np.array([number])).tolist()
            assert xid == int.from_bytes(event.body[:8], "little", signed=True)


@pytest.mark.parametrize("name", kept())
def test_rows_are_the_same_where_transactions_between_them_are_not_read(name):
    recording = load(name)
    begins = Position(recording.log_file, 4)
    events = [bytes(raw) for raw in iter_raw(recording.events)]
    first_file = begin_lsn(begins).log_index
    log = [
        (transaction, b"".join(events[first:behind]))
        for transaction, first, behind in one_by_one(events, begins)
        if transaction.begin.log_index == transaction.lsn.log_index == first_file
    ]
    facts = {"format": recording.format, "log_file": recording.log_file, "structures": recording.structures}
    expected = rows_by_lsn(decode_slice(recording.events, change_no=0, **facts))
    for seed in range(5):
        chance = random.Random(seed)
        chosen = [one for one in log if chance.random() < 0.5]
        if not chosen:
            continue
        found = rows_by_lsn(
            decode_slice(b"".join(raw for _, raw in chosen), offset=chosen[0][0].begin.offset, change_no=0, **facts)
        )
        assert found == {
            lsn: row
            for lsn, row in expected.items()
            if any(transaction.begin < lsn <= transaction.lsn for transaction, _ in chosen)
        }


def rows_by_lsn(batches):
    return {
        Lsn.from_bytes(lsn.as_py()): batch.rows.slice(number, 1)
        for batch in batches
        for number, lsn in enumerate(batch.rows.column("lsn"))
    }
