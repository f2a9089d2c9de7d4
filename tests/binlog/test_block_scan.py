"""Scanning blocks finds the same as scanning event by event, whatever the log has and however it is cut."""

from __future__ import annotations

import random
import struct
import zlib
from dataclasses import dataclass, field

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.binlog.logs.log_maker import LogMaker, random_log
from tests.binlog.logs.scenarios import kept, load
from tests.examples import examples

from pidts.binlog import EventType, LogWalker, TransactionScanner, iter_raw
from pidts.binlog.blocks import ordinary as o
from pidts.binlog.blocks.scan import BlockScan, OrdinaryEvents
from pidts.binlog.kernel import payloads
from pidts.model import DecodeError, Lsn, PidtsError, Transaction


@dataclass
class Found:
    """The results of a scan, up to its error if there was one."""

    transactions: list[Transaction] = field(default_factory=list)
    error: str = ""
    reached: tuple[str, int] = ("", 0)
    skipped: int = 0
    """The number of events that compiled code has handled."""

    def end(self, walker: LogWalker, scanner: TransactionScanner) -> Found:
        if (entry := scanner.empty_entry()) is not None:
            self.transactions.append(entry)
        self.reached = walker.file, walker.offset
        return self


def plainly(events: list[bytes], start: Lsn, file: str) -> Found:
    walker, scanner, found = LogWalker(file), TransactionScanner(start.change_no, start), Found()
    try:
        for raw in events:
            one_by_one(raw, walker, scanner, found)
    except PidtsError as error:
        found.error = str(error)
    return found.end(walker, scanner)


def one_by_one(raw: bytes | memoryview, walker: LogWalker, scanner: TransactionScanner, found: Found) -> None:
    event = walker.feed(raw)
    if not scanner.in_transaction and (entry := scanner.empty_entry()) is not None:
        found.transactions.append(entry)
    if (transaction := scanner.feed(event)) is not None:
        found.transactions.append(transaction)


def by_blocks(
    blocks: list[list[bytes]],
    start: Lsn,
    file: str,
    *,
    pieces: int = 0,
    limit: int = 1 << 40,
    takes_steps: bool = False,
) -> Found:
    """Scans a log in blocks. Row events that are longer than `pieces` come in pieces of this size, where that is
    allowed.
    """
    walker, scanner, found = LogWalker(file), TransactionScanner(start.change_no, start), Found()
    scan = BlockScan(walker, scanner, takes_steps=takes_steps)
    try:
        for events in blocks:
            if pieces and len(events) == 1 and len(events[0]) > pieces and scan.begin_long(memoryview(events[0])):
                raw = memoryview(events[0])
                for at in range(0, len(raw), pieces):
                    scan.feed_long(raw[at : at + pieces], last=at + pieces >= len(raw))
                found.skipped += 1
                continue
            take_block(memoryview(b"".join(events)), walker, scanner, scan, found, limit)
    except PidtsError as error:
        found.error = str(error)
    return found.end(walker, scanner)


def take_block(
    block: memoryview, walker: LogWalker, scanner: TransactionScanner, scan: BlockScan, found: Found, limit: int
) -> None:
    at = 0
    while at < len(block):
        if not scanner.in_transaction and (entry := scanner.empty_entry()) is not None:
            found.transactions.append(entry)
        if (run := scan.run(block, at, at + limit)) is not None:
            found.transactions += transactions(run)
            found.skipped += run.events
            at = run.end
            continue
        size = len(next(iter_raw(block[at:])))
        one_by_one(block[at : at + size], walker, scanner, found)
        at += size


def transactions(run: OrdinaryEvents) -> list[Transaction]:
    found = list(run.transactions())
    numbers = [str(line[o.L_NUMBER]) if run.gtids[place] else "" for place, line in enumerate(run.lines)]
    assert [one.gtid.rpartition(":")[2].rpartition("-")[2] for one in found] == numbers
    return found


def cut(events: list[bytes], chance: random.Random) -> list[list[bytes]]:
    blocks: list[list[bytes]] = [[]]
    often = chance.choice([0.0, 0.02, 0.3, 1.0])
    for raw in events:
        if chance.random() < often:
            blocks.append([])
        blocks[-1].append(raw)
    return blocks


def same(
    events: list[bytes], start: Lsn, file: str, chance: random.Random, *, takes_steps: bool | None = None
) -> Found:
    plain = plainly(events, start, file)
    blocks = by_blocks(
        cut(events, chance),
        start,
        file,
        pieces=chance.choice([0, 3, 64]),
        limit=chance.choice([1, 300, 1 << 40]),
        takes_steps=chance.random() < 0.5 if takes_steps is None else takes_steps,
    )
    assert blocks.error == plain.error
    assert blocks.transactions == plain.transactions
    assert blocks.reached == plain.reached
    return blocks


@pytest.mark.parametrize("name", kept())
def test_every_recorded_log(name):
    recording = load(name)
    start = Lsn(0, int(recording.log_file.partition(".")[2]), 4)
    events = [bytes(raw) for raw in iter_raw(recording.events)]
    for seed in range(20):
        found = same(events, start, recording.log_file, random.Random(seed))
    if name.endswith("-types"):
        assert found.skipped > len(events) // 3


@settings(max_examples=examples(80))
@given(st.integers(0, 2**32))
@example(0)
def test_any_mixture_of_what_servers_write(seed):
    chance = random.Random(seed)
    log = random_log(chance, chance.randint(1, 40))
    same(log.events, log.start, log.file, chance)


@settings(max_examples=examples(80))
@given(st.integers(0, 2**32))
def test_any_damage_is_reported_the_same_way(seed):
    chance = random.Random(seed)
    log = random_log(chance, chance.randint(1, 12))
    events = list(log.events)
    number = chance.randrange(1, len(events))
    raw = bytearray(events[number])
    # The size stays right: the code that divides the log into events would already find a wrong one.
    place = chance.choice([*range(9), *range(13, len(raw))])
    raw[place] ^= 1 << chance.randrange(8)
    if log.checksums and chance.random() < 0.8:
        raw[-4:] = struct.pack("<I", zlib.crc32(raw[:-4]))
    events[number] = bytes(raw)
    same(events, log.start, log.file, chance)


def test_ordinary_transactions_are_read_by_the_block_scan_alone():
    maker = LogMaker(random.Random(1), product="mariadb")
    for _ in range(100):
        maker.ordinary()
    found = same(maker.events, maker.start, maker.file, random.Random(3))
    assert found.skipped == len(maker.events) - 1


@pytest.mark.parametrize(("takes_steps", "skipped"), [(False, 6), (True, 8)])
@pytest.mark.parametrize("product", ["mariadb", "mysql"])
def test_the_end_of_each_group_of_an_xa_transaction_is_read_by_itself_or_on_request_with_all_others(
    product, takes_steps, skipped
):
    maker = LogMaker(random.Random(1), product=product, has_tags=False)
    for _ in range(50):
        maker.gtid(xa=64)
        maker.plain_query("XA START X'6f6e65',X'6A',1")
        maker.table_map("a")
        maker.rows()
        maker.plain_query("XA END X'6f6e65',X'6A',1")
        maker.put(EventType.XA_PREPARE, struct.pack("<BIII", 0, 1, 3, 0) + b"one")
        maker.gtid(xa=128)
        maker.plain_query("XA COMMIT X'6f6e65',X'',1")
    found = same(maker.events, maker.start, maker.file, random.Random(3), takes_steps=takes_steps)
    assert found.skipped == 50 * skipped


XIDS = ["X'6f6e65',X'6A',1", "X'',X'',0", "X'00fFAb',X'0A',4294967296", "X'61',X'',18446744073709551615"]
ODD = ["X'6f6e6',X'',1", "X'6f', X'',1", "X'61',X''", "X'6g',X'',1", "X'61',X'',1 ", "X'61',X'',-1", "x'61',x'',1"]


@pytest.mark.parametrize("product", ["mariadb", "mysql"])
@pytest.mark.parametrize("xid", [*XIDS, *ODD])
@pytest.mark.parametrize("verb", ["COMMIT", "ROLLBACK", "RECOVER"])
def test_the_name_of_an_xa_transaction_is_the_same_in_every_form(product, xid, verb):
    maker = LogMaker(random.Random(1), product=product)
    for number in range(3):
        maker.gtid(xa=128)
        maker.plain_query(f"XA {verb} {xid}" + " ONE PHASE" * (number == 1))
    found = same(maker.events, maker.start, maker.file, random.Random(3), takes_steps=True)
    assert found.error or found.transactions


@pytest.mark.parametrize("verb", ["COMMIT", "ROLLBACK"])
def test_a_longer_name_of_an_xa_transaction_than_servers_allow_is_not_written_by_compiled_code(verb):
    maker = LogMaker(random.Random(1), product="mysql", has_tags=False)
    maker.gtid()
    maker.plain_query(f"XA {verb} X'{'61' * (1 << 22)}',X'',1")
    found = by_blocks([maker.events], maker.start, maker.file, takes_steps=True)
    assert found.transactions == plainly(maker.events, maker.start, maker.file).transactions
    assert found.skipped == 1, "the GTID"


@pytest.mark.parametrize("product", ["mariadb", "mysql"])
@pytest.mark.parametrize("body", [(0, 7, b"one", b"br"), (0, 2**32 - 1, b"", b""), (0, 0, bytes(64), b"\xff" * 64)])
@pytest.mark.parametrize("first", [0, 1])
def test_a_prepared_transaction_has_its_rows_in_its_step(product, body, first):
    maker = LogMaker(random.Random(1), product=product)
    _, number, gtrid, bqual = body
    for size in (0, 1, 300):
        maker.gtid(xa=64)
        maker.table_map("a")
        maker.rows()
        whole = struct.pack("<BIII", first, number, len(gtrid), len(bqual)) + gtrid + bqual
        maker.put(EventType.XA_PREPARE, whole[:-1] if size == 300 and len(whole) > 13 else whole)
    found = same(maker.events, maker.start, maker.file, random.Random(3), takes_steps=True)
    assert found.error or (found.transactions[-1].xa is None) == bool(first)


def test_compressed_transactions_are_read_by_the_block_scan_alone(monkeypatch):
    maker = LogMaker(random.Random(1), product="mysql", has_tags=False)
    for _ in range(300):
        maker.compressed()
    calls = []
    of = payloads.UnpackedTransactions.of
    monkeypatch.setattr(payloads.UnpackedTransactions, "of", lambda *args: (calls.append(1), of(*args))[1])
    found = by_blocks([maker.events], maker.start, maker.file, pieces=0, limit=1 << 40)
    assert found.transactions == plainly(maker.events, maker.start, maker.file).transactions
    assert found.skipped == 600
    assert len(calls) < 20


def test_many_tables_in_one_transaction():
    maker = LogMaker(random.Random(1), product="mysql")
    maker.ordinary(tables=[f"t{number:05}" for number in range(3000)])
    maker.ordinary(tables=["t00001", "t02999", "t00001"])
    found = same(maker.events, maker.start, maker.file, random.Random(5))
    assert [len(transaction.tables) for transaction in found.transactions[-2:]] == [3000, 2]


def test_positions_wrap_at_four_gigabytes():
    maker = LogMaker(random.Random(1), product="mariadb", offset=2**32 - 700)
    for _ in range(20):
        maker.ordinary()
    events = maker.events[1:]
    walker, scanner = LogWalker(maker.file), TransactionScanner(0, maker.start)
    walker.feed(maker.events[0])
    walker.offset = 2**32 - 700
    found = Found()
    take_block(memoryview(b"".join(events)), walker, scanner, BlockScan(walker, scanner), found, 1 << 40)
    assert found.skipped == len(events)
    assert found.transactions[-1].lsn.offset == maker.offset > 2**32


def test_a_long_event_whose_pieces_are_damaged_is_noticed():
    maker = LogMaker(random.Random(1), product="mariadb")
    maker.ordinary(rows=1, row_size=5000)
    (number,) = (n for n, raw in enumerate(maker.events) if raw[4] == EventType.WRITE_ROWS_V1)
    raw = bytearray(maker.events[number])
    raw[3000] ^= 4
    blocks = [maker.events[:number], [bytes(raw)], maker.events[number + 1 :]]
    assert "bad-checksum" in by_blocks(blocks, maker.start, maker.file, pieces=1000).error


def test_a_long_event_that_ends_early_is_noticed():
    maker = LogMaker(random.Random(1), product="mariadb")
    maker.ordinary(rows=1, row_size=5000)
    (number,) = (n for n, raw in enumerate(maker.events) if raw[4] == EventType.WRITE_ROWS_V1)
    walker, scanner, found = LogWalker(maker.file), TransactionScanner(0, maker.start), Found()
    scan = BlockScan(walker, scanner)
    take_block(memoryview(b"".join(maker.events[:number])), walker, scanner, scan, found, 1 << 40)
    raw = memoryview(maker.events[number])
    assert scan.begin_long(raw[:100])
    with pytest.raises(DecodeError, match="bad-size"):
        scan.feed_long(raw[:4000], last=True)
