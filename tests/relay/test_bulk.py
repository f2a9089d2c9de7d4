"""Records made many at once are, byte for byte, the records made one by one."""

from __future__ import annotations

import contextlib
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pidts.binlog import LogWalker, TransactionScanner
from pidts.binlog.block_scan import BlockScan
from pidts.model import Extent, LogEntry, Lsn, PidtsError
from pidts.relay.bulk import EntryEncoder
from pidts.relay.gtids import ExecutedGtids
from pidts.relay.index import encode_entry, frame

from .made_log import LogMaker, made_log


def compare(log: LogMaker, begin: int, base: int, start: Lsn, encoder: EntryEncoder) -> int:
    """Encodes all ordinary runs of a log in both ways; how many transactions they hold."""
    walker, scanner = LogWalker(log.file), TransactionScanner(start.change_no, start)
    plain_walker, plain = LogWalker(log.file), TransactionScanner(start.change_no, start)
    scan, block, at, count = BlockScan(walker, scanner), memoryview(b"".join(log.events)), 0, 0
    known = "" if log.flavor == "mariadb" else "00000000-0000-0000-0000-000000000001:1-3"
    one_by_one, at_once = ExecutedGtids(known), ExecutedGtids(known)
    sizes = [len(raw) for raw in log.events]
    while at < len(block):
        for either in (scanner, plain):
            either.mark()
        run = scan.run(block, at, 1 << 40)
        behind = run.end if run else at + sizes[0]
        expected, offset = [], begin
        while at < behind:
            raw = block[at : at + sizes[0]]
            at += sizes.pop(0)
            transaction = plain.feed(plain_walker.feed(raw))
            if not run:
                scanner.feed(walker.feed(raw))
            elif transaction is not None:
                extent = Extent(9, offset, base + at - offset)
                expected.append(frame(encode_entry(LogEntry(transaction, extent))))
                one_by_one.add(transaction.gtid)
                offset = extent.end
        if expected and run:
            entries = encoder.encode(run, begin, base)
            assert bytes(entries.frames) == b"".join(expected)
            assert (entries.lsn, entries.log_end) == (scanner.previous, offset)
            for stretch in entries.gtids:
                at_once.add_stretch(*stretch)
            begin, count = offset, count + len(expected)
    assert at_once.text == one_by_one.text
    return count


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 2**32))
def test_any_ordinary_transactions(seed):
    chance = random.Random(seed)
    log = made_log(chance, chance.randint(1, 30))
    start = chance.choice([log.start, Lsn(0, 6, 999)])
    with contextlib.suppress(PidtsError):  # What comes before an odd event has been compared.
        compare(log, chance.randrange(4, 1 << 40), 1 << 41, start, EntryEncoder())


@pytest.mark.parametrize("flavor", ["mariadb", "mysql", "old"])
def test_one_encoder_serves_one_connection_after_the_other(flavor):
    encoder = EntryEncoder()
    for seed in range(3):
        maker = LogMaker(random.Random(seed), flavor=flavor)
        for number in range(50):
            maker.ordinary([f"t{seed}{number}", "always"])
        assert compare(maker, 4, 4, maker.start, encoder) == 50
