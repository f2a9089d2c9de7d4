"""Records that are made many at once are equal to records made one by one, byte for byte, and say what the log has."""

from __future__ import annotations

import contextlib
import random
import struct
import uuid
import zlib
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.binlog.logs.log_maker import LogMaker, random_log
from tests.examples import examples

from pidts.binlog import EventType, LogWalker, TransactionScanner
from pidts.binlog.blocks.scan import BlockScan
from pidts.model import Extent, LogEntry, Lsn, PidtsError
from pidts.relay.gtids import ExecutedGtids
from pidts.relay.recovery import Undecided, settled
from pidts.relay.segments.bulk import EntryEncoder
from pidts.relay.segments.index import encode_entry, frame


def compare(log: LogMaker, begin: int, base: int, start: Lsn, encoder: EntryEncoder) -> int:
    """Encodes all parts of ordinary transactions of a log in both ways. Returns the number of these transactions."""
    walker, scanner = LogWalker(log.file), TransactionScanner(start.change_no, start)
    plain_walker, plain = LogWalker(log.file), TransactionScanner(start.change_no, start)
    scan, block, at, count = BlockScan(walker, scanner, takes_steps=True), memoryview(b"".join(log.events)), 0, 0
    undecided, plain_undecided = Undecided(), Undecided()
    known = "" if log.product == "mariadb" else "00000000-0000-0000-0000-000000000001:1-3"
    one_by_one, at_once = ExecutedGtids(known), ExecutedGtids(known)
    sizes = [len(raw) for raw in log.events]
    while at < len(block):
        for either in (scanner, plain):
            either.empty_entry()
        run = scan.run(block, at, 1 << 40)
        behind = run.end if run else at + sizes[0]
        expected, offset, steps = [], begin, 0
        while at < behind:
            raw = block[at : at + sizes[0]]
            at += sizes.pop(0)
            transaction = plain.feed(plain_walker.feed(raw))
            if not run:
                scanner.feed(walker.feed(raw))
                if transaction is not None:
                    for each in (undecided, plain_undecided):
                        settled(each, LogEntry(transaction, Extent(9, offset, base + at - offset)))
            elif transaction is not None:
                extent = Extent(9, offset, base + at - offset)
                entry = settled(plain_undecided, LogEntry(transaction, extent))
                steps += entry.transaction.xa is not None
                expected.append(frame(encode_entry(entry)))
                one_by_one.add(transaction.gtid)
                offset = extent.end
        if expected and run:
            before = undecided.copy()
            entries = encoder.encode(run, begin, base, 9, undecided)
            assert bytes(entries.frames) == b"".join(expected)
            assert list(undecided) == list(plain_undecided)
            assert entries.has_steps == (steps > 0)
            for xid in entries.decided:
                before.drop(xid)
            for group in entries.undecided:
                before.add(group)
            assert list(before) == list(undecided)
            assert (entries.lsn, entries.log_end) == (scanner.previous, offset)
            for gtid_range in entries.gtids:
                at_once.add_range(*gtid_range)
            begin, count = offset, count + len(expected)
    assert at_once.text == one_by_one.text
    return count


@settings(max_examples=examples(80), deadline=None)
@given(st.integers(0, 2**32))
def test_any_ordinary_transactions(seed):
    chance = random.Random(seed)
    log = random_log(chance, chance.randint(1, 30))
    start = chance.choice([log.start, Lsn(0, 6, 999)])
    with contextlib.suppress(PidtsError):  # The part before an unusual event has been compared.
        compare(log, chance.randrange(4, 1 << 40), 1 << 41, start, EntryEncoder())


@pytest.mark.parametrize("product", ["mariadb", "mysql", "old"])
def test_one_encoder_serves_one_connection_after_the_other(product):
    encoder = EntryEncoder()
    for seed in range(3):
        maker = LogMaker(random.Random(seed), product=product, has_tags=False)
        for number in range(50):
            maker.ordinary([f"t{seed}{number}", "always"])
        assert compare(maker, 4, 4, maker.start, encoder) == 50


@settings(max_examples=examples(120), deadline=None)
@given(st.integers(0, 2**32))
def test_any_steps_of_xa_transactions(seed):
    chance = random.Random(seed)
    maker = LogMaker(chance, product=chance.choice(["mariadb", "mysql"]))
    names = [b"one", b"a", b"", b"\xff" * 64][: chance.randint(1, 4)]
    for _ in range(chance.randint(1, 60)):
        name, step = (
            chance.choice(names),
            chance.choice(["prepare", "prepare", "COMMIT", "COMMIT", "ROLLBACK", "plain"]),
        )
        if step == "plain":
            maker.ordinary([chance.choice("ab")])
        elif step == "prepare":
            maker.prepare(name, chance.choices("abc", k=chance.randint(0, 3)))
        else:
            maker.decide(name, step)
        if chance.random() < 0.03:
            maker.plain_query("CREATE TABLE x (a int)")
    with contextlib.suppress(PidtsError):
        compare(maker, chance.randrange(4, 1 << 40), 1 << 41, maker.start, EntryEncoder())


def made(maker: LogMaker, tables: list[str], rows: int) -> dict[str, Any]:
    """Adds an ordinary transaction. Returns what its record must say."""
    begin, first = maker.offset, len(maker.events)
    maker.ordinary(tables, rows)
    raw = maker.events[first]
    times = [time for event in maker.events[first:] if (time := int.from_bytes(event[:4], "little"))]
    return {
        "lsn": (0, 7, maker.offset),
        "begin": (0, 7, begin),
        "time": times[-1],
        "rows": len(tables) * rows,
        "size": maker.offset - begin,
        "flags": 0,
        "gtid": gtid(maker, raw),
        "tables": [("shop", name) for name in dict.fromkeys(tables)],
    }


def gtid(maker: LogMaker, raw: bytes) -> str:
    server = uuid.UUID(bytes=maker.uuid)
    body = raw[19 : len(raw) - 4]
    match raw[4]:
        case EventType.MARIADB_GTID:
            number, domain = struct.unpack_from("<QI", body)
            return f"{domain}-101-{number}"
        case EventType.GTID:
            return f"{server}:{maker.number}"
    return ""


def records(frames: bytes) -> Iterator[dict[str, Any]]:
    """Returns the records as they are on the disk, field by field."""
    at = 0
    while at < len(frames):
        size, check, head_check = struct.unpack_from("<III", frames, at)
        payload = frames[at + 12 : at + 12 + size]
        assert (check, head_check) == (zlib.crc32(payload), zlib.crc32(frames[at : at + 8]))
        kind, *numbers, flags = struct.unpack_from("<B IIQ IIQ IIQ II QQ B", payload)
        assert kind == 2
        place = struct.calcsize("<B IIQ IIQ IIQ II QQ B")
        (length,) = struct.unpack_from("<H", payload, place)
        text = payload[place + 2 : place + 2 + length].decode()
        place += 2 + length
        (length,) = struct.unpack_from("<I", payload, place)
        names, place, words = payload[place + 4 : place + 4 + length], 0, []
        while place < len(names):
            (length,) = struct.unpack_from("<H", names, place)
            words.append(names[place + 2 : place + 2 + length].decode())
            place += 2 + length
        yield {
            "lsn": tuple(numbers[:3]),
            "previous": tuple(numbers[3:6]),
            "begin": tuple(numbers[6:9]),
            "time": numbers[9],
            "rows": numbers[10],
            "offset": numbers[11],
            "size": numbers[12],
            "flags": flags,
            "gtid": text,
            "tables": list(zip(words[::2], words[1::2], strict=True)),
        }
        at += 12 + size


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("product", ["mariadb", "mysql", "old"])
def test_a_record_says_what_was_put_into_the_log(product, seed):
    chance = random.Random(seed)
    maker = LogMaker(chance, product=product, has_tags=False)
    head = maker.offset
    expected = [
        made(maker, chance.choices(["a", "b", "Größe", "c" * 64], k=chance.randint(1, 4)), chance.randint(1, 3))
        for _ in range(40)
    ]
    walker, scanner = LogWalker(maker.file), TransactionScanner(0, maker.start)
    scanner.feed(walker.feed(maker.events[0]))
    scanner.empty_entry()  # The format event is an entry of its own.
    run = BlockScan(walker, scanner).run(memoryview(b"".join(maker.events[1:])), 0, 1 << 40)
    found = list(records(bytes(EntryEncoder().encode(run, 1000, 1000, 9, Undecided()).frames)))
    previous, offset = (0, 7, head), 1000
    for one in expected:
        one |= {"previous": previous, "offset": offset}
        previous, offset = one["lsn"], offset + one["size"]
    assert found == expected
