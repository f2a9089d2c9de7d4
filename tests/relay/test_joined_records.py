"""Transactions that share one entry are nevertheless read one by one, wherever reading begins and ends."""

from __future__ import annotations

import random
import sys
from dataclasses import replace

import numpy as np
import pytest

from pidts.binlog.xa import PreparedXa
from pidts.model import (
    Extent,
    LogEntry,
    Lsn,
    MySqlGtidSet,
    PreparedExtent,
    TableName,
    Transaction,
    Xa,
    XaStep,
    parse_gtid_set,
)
from pidts.relay.segments import records
from pidts.relay.segments.index import decode_entry, encode_entry, entry_key, frame, payloads
from pidts.relay.segments.joined_records import JoinedTransactions, joined_payloads

NOWHERE = (0, 0, 0)
TABLES = ((TableName("a", "t"),), (TableName("a", "t"), TableName("a", "u")))
UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"


def made(chance: random.Random, count: int, product: str, oddly: float = 0.1) -> list[LogEntry]:
    """Returns mostly ordinary transactions, and some with a statement, an empty entry, other tables, a missing number, or a gap
    before them.
    """
    found, last, extent, number = [], Lsn(0, 3, 4), 400, chance.choice([8, 95, 998])
    for _ in range(count):
        odd = chance.random() < oddly and chance.choice(["ddl", "empty", "number", "begin", "extent", "file", "tables"])
        number += 1 + (odd == "number")
        if odd == "file":
            last = Lsn(0, last.log_index + 1, 4)
        begin = Lsn(0, last.log_index, last.offset + (19 if odd == "begin" else 0))
        size = chance.randint(100, 300)
        extent += 7 if odd == "extent" else 0
        transaction = Transaction(
            lsn=Lsn(0, begin.log_index, begin.offset + size),
            prev_lsn=last,
            begin=begin,
            gtid={"mariadb": f"0-1-{number}", "mysql": f"{UUID}:{number}", "none": ""}[product],
            timestamp=chance.choice([0, 1_700_000_000 + number]),
            row_events=0 if odd == "empty" else chance.randint(1, 3),
            tables=() if odd == "empty" else TABLES[odd == "tables"],
            ddl="DROP TABLE a.t" if odd == "ddl" else None,
        )
        found.append(LogEntry(transaction, Extent(9, extent, size)))
        last, extent = transaction.lsn, extent + size
    return found


def made_xa(chance: random.Random, count: int, product: str, oddly: float = 0.05) -> list[LogEntry]:
    """Returns mostly steps of XA transactions, which are committed or rolled back in any order.

    Some transactions are ordinary ones, have other tables, a statement, or no rows; some groups were prepared in
    another segment or log file, or before the relay began.
    """
    found, open_groups = [], [PreparedXa(Xa(step=XaStep.PREPARE, xid="other", at=Lsn(0, 2, 9)), place(8, 2, 700, 90))]
    for number, entry in enumerate(made(chance, count, product, oddly)):
        what = entry.transaction
        step = chance.choice(
            [*XaStep, XaStep.PREPARE, XaStep.COMMIT, XaStep.COMMIT] if open_groups else [XaStep.PREPARE]
        )
        at = replace(what.begin, offset=what.begin.offset + 61)
        held = open_groups.pop(chance.randrange(len(open_groups))) if step is not XaStep.PREPARE else None
        xa = Xa(step=step, xid=held.xa.xid if held else f"X'{number:x}',X'',1", at=at)
        odd = chance.random() < oddly and chance.choice(["plain", "unknown", "empty"])
        if what.ddl is not None or odd == "plain":
            open_groups += [held] if held else []
            found.append(entry)
            continue
        if held is None:
            xa = replace(xa, row_events=what.row_events, tables=what.tables)
            segment, log_index = chance.choice([(9, 3)] * 30 + [(8, 3), (9, 2)])
            open_groups.append(PreparedXa(xa, place(segment, log_index, entry.extent.offset, entry.extent.size)))
        is_commit = step is XaStep.COMMIT and odd != "unknown"
        if is_commit and held is not None and odd != "empty":
            what = replace(what, row_events=held.xa.row_events or 1, tables=held.xa.tables or TABLES[0], xa=xa)
        else:
            what = replace(what, row_events=0, tables=(), xa=xa)
        found.append(replace(entry, transaction=what, prepared=held.place if is_commit and held else None))
    return found


def place(segment: int, log_index: int, offset: int, size: int) -> PreparedExtent:
    return PreparedExtent(segment, offset, size, Lsn(0, log_index, offset + 1000))


def read(data: bytes, stops=(NOWHERE, NOWHERE), most: tuple[int, int] | None = None) -> list[LogEntry]:
    found, last = [], Lsn(0, 3, 4)
    for _, payload in joined_payloads(data, stops, most):
        entry = payload.entry(9, last) if isinstance(payload, JoinedTransactions) else decode_entry(payload, 9, last)
        found.append(entry)
        last = entry.transaction.lsn
    return found


def listed(entries: list[LogEntry], product: str) -> str:
    gtids = ",".join(entry.transaction.gtid for entry in entries)
    return str(parse_gtid_set(gtids, mariadb=product == "mariadb")) if product != "none" else gtids.strip(",")


@pytest.mark.parametrize("product", ["mariadb", "mysql", "none"])
@pytest.mark.parametrize("seed", range(40))
def test_a_run_is_the_sum_of_its_transactions(product, seed):
    chance = random.Random(seed)
    entries = made(chance, chance.randint(1, 60), product)
    data = b"".join(frame(encode_entry(entry)) for entry in entries)
    left = list(entries)
    for entry in read(data):
        mine, left = left[: entry.count], left[entry.count :]
        first, last = mine[0].transaction, mine[-1].transaction
        what = entry.transaction
        assert (what.prev_lsn, what.begin, what.lsn) == (first.prev_lsn, first.begin, last.lsn)
        assert what.row_events == sum(each.transaction.row_events for each in mine)
        assert entry.extent == Extent(9, mine[0].extent.offset, sum(each.extent.size for each in mine))
        assert entry.extent.end == mine[-1].extent.end
        assert listed([entry], product) == listed(mine, product)
        assert {each.transaction.tables for each in mine} == {what.tables}
        assert what.timestamp == next(
            (each.transaction.timestamp for each in mine[::-1] if each.transaction.timestamp), 0
        )
        if entry.count > 1:
            ends = np.array([each.transaction.lsn.offset for each in mine], np.int64)
            assert (entry.ends, entry.begun_at) == (ends.tobytes(), first.timestamp or what.timestamp)
            assert all(each.transaction.ddl is None and each.transaction.row_events for each in mine)
    assert left == []


@pytest.mark.parametrize("product", ["mariadb", "mysql", "none"])
@pytest.mark.parametrize("seed", range(60))
def test_a_run_of_xa_steps_has_the_groups_of_its_commits(product, seed):
    chance = random.Random(seed)
    entries = made_xa(chance, chance.randint(1, 80), product, chance.choice([0, 0.05, 0.3]))
    data = b"".join(frame(encode_entry(entry)) for entry in entries)
    left, joined = list(entries), 0
    for entry in read(data):
        mine, left = left[: entry.count], left[entry.count :]
        if entry.count == 1 or mine[0].transaction.xa is None:
            assert entry.count > 1 or entry == mine[0]
            assert entry.joined_groups is None
            continue
        joined += 1
        what, first, last = entry.transaction, mine[0].transaction, mine[-1].transaction
        assert (what.prev_lsn, what.begin, what.lsn) == (first.prev_lsn, first.begin, last.lsn)
        assert (what.xa, what.ddl, entry.prepared, entry.lacks_rows) == (None, None, None, False)
        assert entry.extent == Extent(9, mine[0].extent.offset, sum(each.extent.size for each in mine))
        assert listed([entry], product) == listed(mine, product)
        assert what.row_events == sum(each.transaction.row_events for each in mine)
        assert not any(each.lacks_rows for each in mine)
        first_group, *more = (each.groups for each in mine if each.prepared is not None)
        assert mine[0].prepared is not None
        assert entry.groups == first_group.followed_by(more)
        assert all(first_group.is_alike(other) for other in more)
        assert entry.read_bytes == sum(each.prepared.size for each in mine if each.prepared is not None)
        assert {each.transaction.tables for each in mine if each.prepared is not None} == {what.tables}
        assert entry.begun_at == first.timestamp or what.timestamp
    assert left == []
    assert joined or len(entries) < 20


def test_many_xa_transactions_are_few_entries_of_limited_size():
    chance = random.Random(3)
    plain = made(chance, 6000, "mariadb", oddly=0)
    entries, held = [], None
    for number, entry in enumerate(plain):
        step = XaStep.COMMIT if held else XaStep.PREPARE
        xa = Xa(step=step, xid=f"X'{number // 2:x}',X'',1", at=replace(entry.transaction.begin))
        if held is None:
            held = place(9, 3, entry.extent.offset, 700)
            entries.append(replace(entry, transaction=replace(entry.transaction, row_events=0, tables=(), xa=xa)))
        else:
            entries.append(replace(entry, transaction=replace(entry.transaction, xa=xa), prepared=held))
            held = None
    found = read(b"".join(frame(encode_entry(entry)) for entry in entries))
    assert len(found) < 20
    assert sum(entry.count for entry in found) == len(entries)
    assert max(entry.read_bytes for entry in found) <= 1 << 20
    # One large transaction stays by itself: a batch may cut it into parts.
    entries[3] = replace(entries[3], prepared=replace(entries[3].prepared, size=2 << 20))
    found = read(b"".join(frame(encode_entry(entry)) for entry in entries[:8]))
    assert [entry.count for entry in found] == [1, 2, 1, 1, 3]
    assert max(entry.read_bytes for entry in found if entry.count > 1) < 1 << 20


@pytest.mark.parametrize("of", [made, made_xa])
@pytest.mark.parametrize("seed", range(40))
def test_no_joined_run_crosses_a_stop(seed, of):
    chance = random.Random(seed)
    entries = of(chance, 60, "mysql")
    data = b"".join(frame(encode_entry(entry)) for entry in entries)
    keys = [entry_key(payload) for _, payload in payloads(data)]
    stops = (chance.choice(keys), chance.choice(keys))
    ends = [entry.transaction.lsn for entry in read(data, stops)]
    assert all(Lsn(*stop) in ends for stop in stops)
    # A stop may also be a place at which no entry ends: no joined entry has transactions on both sides of it.
    change_no, log_index, offset = stops[0]
    between = (change_no, log_index, offset - 1)
    ends = [entry.transaction.lsn for entry in read(data, (between, NOWHERE))]
    assert Lsn(*stops[0]) in [entry.transaction.lsn for entry in entries]
    before = [each.transaction.lsn for each in entries if each.transaction.lsn <= Lsn(*between)]
    assert not before or before[-1] in ends or before[-1].log_index != log_index


def test_a_damaged_record_ends_what_can_be_read():
    entries = made(random.Random(1), 50, "mariadb")
    frames = [frame(encode_entry(entry)) for entry in entries]
    for at in (0, 13, 49):
        broken = bytearray(b"".join(frames))
        broken[sum(map(len, frames[:at])) + 20] ^= 1
        assert sum(entry.count for entry in read(bytes(broken))) == at
    cut = b"".join(frames)[:-3]
    assert sum(entry.count for entry in read(cut)) == 49


def test_many_in_a_row_are_few():
    chance = random.Random(3)
    chance.random = lambda: 1.0  # nothing unusual
    entries = made(chance, 5000, "mysql")
    found = read(b"".join(frame(encode_entry(entry)) for entry in entries))
    assert len(found) < 10
    assert isinstance(parse_gtid_set(found[0].transaction.gtid), MySqlGtidSet)


@pytest.mark.parametrize("most", [(1, 50), (2, 50), (3, 5), (50, 1), (50, 7), (20, 20)])
@pytest.mark.parametrize("seed", range(5))
def test_no_more_are_joined_than_are_allowed(seed, most):
    entries = made(random.Random(seed), 200, "mariadb", oddly=0)
    found = read(b"".join(frame(encode_entry(entry)) for entry in entries), most=most)
    assert sum(entry.count for entry in found) == len(entries)
    joined = [(entry.count, entry.transaction.row_events) for entry in found if entry.count > 1]
    assert all(count <= most[0] and rows <= most[1] for count, rows in joined)
    # No joined entry could have included the transaction after it.
    firsts = [sum(entry.count for entry in found[:place]) for place in range(1, len(found))]
    for entry, behind in zip(found, firsts, strict=False):
        rows = entry.transaction.row_events + entries[behind].transaction.row_events
        assert entry.count == most[0] or rows > most[1]


def test_a_large_transaction_is_joined_to_no_small_ones():
    # In a joined entry, rows of small transactions would be separated where only large transactions may be cut.
    chance = random.Random(3)
    chance.random = lambda: 1.0
    sizes = [200, 200, 5 << 20, 200, 200]
    entries, shift = [], 0
    for entry, size in zip(made(chance, len(sizes), "mysql"), sizes, strict=True):
        what, more = entry.transaction, size - entry.extent.size
        begin = replace(what.begin, offset=what.begin.offset + shift)
        lsn = replace(what.lsn, offset=what.lsn.offset + shift + more)
        extent = Extent(9, entry.extent.offset + shift, size)
        entries.append(LogEntry(replace(what, prev_lsn=begin, begin=begin, lsn=lsn), extent))
        shift += more
    found = read(b"".join(frame(encode_entry(entry)) for entry in entries))
    assert [(entry.count, entry.extent.size) for entry in found] == [(2, 400), (1, 5 << 20), (2, 400)]


def test_a_few_records_are_joined_where_the_compiler_is_loaded_already(monkeypatch: pytest.MonkeyPatch) -> None:
    entries = made(random.Random(1), 6, "mariadb", oddly=0)
    data = b"".join(frame(encode_entry(entry)) for entry in entries)
    stops = NOWHERE, NOWHERE

    ((end, joined),) = records._found(data, stops)
    assert isinstance(joined, JoinedTransactions)
    assert (end, joined.count, Lsn(*joined.key)) == (len(data), 6, entries[-1].transaction.lsn)
    assert list(records._found(data, None)) == list(payloads(data))

    monkeypatch.delitem(sys.modules, "pidts.binlog.jit")
    assert list(records._found(data, stops)) == list(payloads(data))
