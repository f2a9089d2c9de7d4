"""Transactions that MySQL has compressed, and XA transactions, are read in compiled code with the same rows."""

from __future__ import annotations

import struct
import tracemalloc
import weakref
import zlib
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.binlog.logs.twins import Outcome, decoded, difference, disagreement, early_filter, kept_of
from tests.binlog.logs.twins import kernel as chosen
from tests.binlog.test_kernel import FORMS, NAME, PLAIN, log_of, packed, unusual_logs
from tests.examples import examples

from pidts.binlog import decode_event_groups, iter_raw
from pidts.binlog.kernel import payloads, routed
from pidts.model import ChangeBatch, CommittedEventGroups, EarlyFilter, Halted, Lsn, PreparedExtent, Table, TableName


def event(kind: int, body: bytes) -> bytes:
    """Returns an event at the place that follows the event before it."""
    return struct.pack("<IBIIIH", 1, kind, 1, 19 + len(body), 0, 0) + body


def length_encoded(number: int) -> bytes:
    return packed(number) if number < 1 << 16 else b"\xfd" + number.to_bytes(3, "little")


def frames(form: str, content: bytes) -> bytes:
    """Compresses content in one of the forms that zstd has."""
    if form == "unsized":
        return zstandard.ZstdCompressor(write_content_size=False).compress(content)
    if form == "checked":
        return zstandard.ZstdCompressor(write_checksum=True).compress(content)
    if form == "two":
        half = len(content) // 2
        return zstandard.compress(content[:half]) + zstandard.compress(content[half:])
    return zstandard.compress(content) + (b"\0" if form == "longer" else b"")


@st.composite
def packed_transactions(draw) -> tuple[bytes, Table]:
    """Returns transactions of one table; most are compressed, in any form that a server may choose, or damaged."""
    raw, table = draw(unusual_logs())
    inner = event(2, bytes(8) + b"\0\0\0\0\0" + b"\0BEGIN") + raw
    log = b""
    for _ in range(draw(st.integers(1, 6))):
        log += event(33, b"\1" + bytes(16) + bytes([1]) + bytes(7))
        form = draw(
            st.sampled_from(["sized", "sized", "unsized", "checked", "two", "plain", "wrong", "longer", "open"])
        )
        if form == "open":
            log += raw
            continue
        made = inner if form == "plain" else frames(form, inner)
        size = len(inner) + (draw(st.sampled_from([-1, 1])) if form == "wrong" else 0)
        if draw(st.integers(0, 9)) == 0:
            place = draw(st.integers(0, len(made) - 1))
            made = made[:place] + bytes([draw(st.integers(0, 255))]) + made[place + 1 :]
        fields = [(1, length_encoded(len(made))), (2, b"\xfc\xff\0" if form == "plain" else b"\0")]
        fields.append((3, length_encoded(size)))
        head = b"".join(bytes([number, len(value)]) + value for number, value in draw(st.permutations(fields)))
        log += event(40, head + b"\0" + made)
    return log, table


@settings(max_examples=examples(100))
@given(packed_transactions())
def test_compressed_transactions_give_the_same_rows(log):
    raw, table = log
    assert difference(raw, format=PLAIN, log_file="b.000001", change_no=0, structures={NAME: table}) is None


@pytest.mark.parametrize("name", ["python", "compiled"])
def test_a_damaged_event_in_a_compressed_transaction_is_named_by_its_byte(name):
    """Plain code reads compressed bytes in pieces of whole events. The error names the byte of the transaction."""
    raw, table = log_of([FORMS[0][:3]], [(30, b"\0\7")])
    whole = event(2, bytes(8) + b"\0\0\0\0\0" + b"\0BEGIN") + raw
    damaged = whole + struct.pack("<IBIIIH", 1, 2, 1, 5000, 0, 0) + bytes(8)
    made = zstandard.compress(damaged)
    fields = [(1, length_encoded(len(made))), (2, b"\0"), (3, length_encoded(len(damaged)))]
    head = b"".join(bytes([number, len(value)]) + value for number, value in fields)
    log = event(33, b"\1" + bytes(16) + bytes([1]) + bytes(7)) + event(40, head + b"\0" + made)
    error = decoded(name, log, format=PLAIN, log_file="b.000001", change_no=0, structures={NAME: table})
    assert isinstance(error, Halted)
    assert error.what == f"an event at byte {len(whole)} claims 5000 bytes; 27 are left"


def test_many_compressed_transactions_are_decompressed_at_once(monkeypatch):
    raw, table = log_of([FORMS[0][:3]], [(30, b"\0\7"), (31, b"\0\7\0\5")])
    made = zstandard.compress(raw)
    head = b"\1\1" + bytes([len(made)]) + b"\2\1\0\3\1" + bytes([len(raw)]) + b"\0"
    gtid = event(33, b"\1" + bytes(16) + bytes([1]) + bytes(7))
    calls, fed = [], []
    of, feed = payloads.UnpackedTransactions.of, routed.RoutedDecoder._feed
    monkeypatch.setattr(payloads.UnpackedTransactions, "of", lambda *args: (calls.append(1), of(*args))[1])
    monkeypatch.setattr(routed.RoutedDecoder, "_feed", lambda *args: (fed.append(args[1].type), feed(*args))[1])
    how = {"format": PLAIN, "log_file": "b.000001", "change_no": 0, "structures": {NAME: table}}
    found = decoded("compiled", (gtid + event(40, head + made)) * 500, **how)
    assert sum(map(len, found)) == 1000
    assert len(calls) == 1
    assert fed == [19]
    after = Lsn.from_bytes(found[0].rows["lsn"].to_pylist()[400])
    assert difference((gtid + event(40, head + made)) * 500, after=after, **how) is None


def test_decompressed_transactions_whose_rows_are_read_completely_do_not_stay_in_memory(monkeypatch):
    raw, table = log_of([FORMS[0][:3]], [(30, b"\0\7")])
    made = zstandard.compress(raw)
    head = b"\1\1" + bytes([len(made)]) + b"\2\1\0\3\1" + bytes([len(raw)]) + b"\0"
    gtid = event(33, b"\1" + bytes(16) + bytes([1]) + bytes(7))
    alive, most = weakref.WeakSet(), []
    of = payloads.UnpackedTransactions.of

    def noted(*args: Any) -> payloads.UnpackedTransactions:
        most.append(len(alive))
        unpacked = of(*args)
        alive.add(unpacked)
        return unpacked

    monkeypatch.setattr(payloads.UnpackedTransactions, "of", noted)
    how = {"format": PLAIN, "log_file": "b.000001", "change_no": 0, "structures": {NAME: table}}
    found = decoded("compiled", (gtid + event(40, head + made)) * 4096, **how, early_filter_of=lambda _: None)
    assert sum(map(len, found)) == 4096
    assert len(most) >= 4
    assert max(most) == 1


class PreparedGroup(NamedTuple):
    """The events that prepared an XA transaction, and the event that commits it."""

    raw: bytes
    offset: int
    commit: Lsn
    time: int


def together(groups: list[PreparedGroup]) -> tuple[bytes, CommittedEventGroups]:
    """Returns the groups as a slice has them."""
    places = [PreparedExtent(1, 4, len(one.raw), Lsn(0, 1, one.offset)) for one in groups]
    first, *more = (
        CommittedEventGroups.of(place, one.commit, one.time) for place, one in zip(places, groups, strict=True)
    )
    return b"".join(one.raw for one in groups), first.followed_by(more)


def test_one_damaged_frame_does_not_keep_those_before_it_from_being_decompressed_together():
    content = bytes(200)
    good = zstandard.compress(content)
    bad = good[:-3] + bytes([good[-3] ^ 0xFF]) + good[-2:]
    heads = [b"\1\1" + bytes([len(made)]) + b"\2\1\0\3\1" + bytes([len(content)]) + b"\0" for made in (good, bad)]
    events = [event(40, heads[0] + good)] * 8 + [event(40, heads[1] + bad)] + [event(40, heads[0] + good)]
    assert len(payloads.UnpackedTransactions.of(memoryview(b"".join(events[:8])), 0, 0)) == 8
    found = payloads.UnpackedTransactions.of(memoryview(b"".join(events)), 0, 0)
    assert 5 <= len(found) <= 8
    assert bytes(found.events(2 * len(events[0]))) == content
    assert not payloads.UnpackedTransactions.of(memoryview(events[8]), 0, 0)


def compressed_rows(rows: int, *, size: int | None = None) -> bytes:
    """Returns a MariaDB event with rows of one byte each, which takes much less than a byte of the log for a row."""
    images = bytes([0xFF]) * rows
    size = rows if size is None else size
    head = bytes([0x84]) + size.to_bytes(4, "big")
    return event(169, b"\7" + bytes(7) + b"\2\0" + b"\1\xff" + head + zlib.compress(images))


def test_rows_of_an_xa_transaction_have_places_of_their_own_in_the_order_of_the_log(kernel):
    raw, table = log_of([FORMS[0][:3]], [(30, b"\0\7")])
    pieces = [bytes(piece[:13]) + bytes(4) + bytes(piece[17:]) for piece in iter_raw(raw)][:-1]
    other = pieces[0].replace(b"\7" + bytes(7), b"\x08" + bytes(7), 1).replace(b"\1s\0\1t\0", b"\1s\0\1u\0")
    foreign = compressed_rows(700).replace(b"\7" + bytes(7), b"\x08" + bytes(7), 1)
    tail = [compressed_rows(1000), pieces[1], other, foreign, pieces[1], compressed_rows(3), compressed_rows(1000)]
    xid = b"X'6f6e65',X'6272',7"
    end = event(38, struct.pack("<BIII", 0, 7, 3, 2) + b"onebr")
    gtid = event(33, b"\1" + bytes(16) + bytes([1]) + bytes(7))
    begin = [gtid, statement(b"XA START " + xid), pieces[0]]
    group = b"".join([*begin, *tail, statement(b"XA END " + xid), end])
    groups = [PreparedGroup(group, 4 + 10_000 * number, Lsn(0, 2, 500 + number), number) for number in range(3)]
    other_table = Table(TableName("s", "u"), table.columns)
    how = {"format": PLAIN, "log_file": "b.000001", "change_no": 0, "structures": {NAME: table}}
    (found,) = decode_event_groups(*together(groups), **how)
    lsns = found.rows["lsn"].to_pylist()
    assert len(lsns) == len(set(lsns)) == 3 * 2005
    assert lsns == sorted(lsns)
    both = decode_event_groups(*together(groups), **{**how, "structures": {NAME: table, other_table.name: other_table}})
    assert both[0].rows["lsn"].to_pylist() == lsns, "the places do not depend on which tables are decoded"
    everything = sorted(lsn for batch in both for lsn in batch.rows["lsn"].to_pylist())
    assert len(everything) == len(set(everything)) == 3 * 2705
    # Before the first compressed event, and in groups without one, a place is the distance from the first event.
    assert Lsn.from_bytes(lsns[0]).row == sum(map(len, begin))


def test_rows_of_an_xa_transaction_that_is_not_compressed_keep_their_places(kernel):
    raw, table = log_of([FORMS[0][:3]], [(30, b"\0\7")])
    pieces = [bytes(piece[:13]) + bytes(4) + bytes(piece[17:]) for piece in iter_raw(raw)][:-1]
    group = b"".join([*pieces, pieces[1], pieces[1]])
    how = {"format": PLAIN, "log_file": "b.000001", "change_no": 0, "structures": {NAME: table}}
    (found,) = decode_event_groups(*together([PreparedGroup(group, 4, Lsn(0, 2, 500), 1)]), **how)
    places = [Lsn.from_bytes(lsn).row for lsn in found.rows["lsn"].to_pylist()]
    assert places == [len(pieces[0]) + number * len(pieces[1]) for number in range(3)]


def test_an_event_that_announces_more_than_it_has_takes_no_memory_for_it():
    raw, table = log_of([FORMS[0][:3]], [(30, b"\0\7")])
    pieces = [bytes(piece[:13]) + bytes(4) + bytes(piece[17:]) for piece in iter_raw(raw)]
    hostile = compressed_rows(1, size=2**32 - 1)
    hostile = event(169, hostile[19:] + bytes(5 << 20))
    how = {"format": PLAIN, "log_file": "b.000001", "change_no": 0, "structures": {NAME: table}}
    tracemalloc.start()
    try:
        found = decoded("compiled", pieces[0] + hostile + pieces[-1], **how)
        assert tracemalloc.get_traced_memory()[1] < 256 << 20
    finally:
        tracemalloc.stop()
    assert isinstance(found, Halted)
    assert found.code == "bad-size"


@st.composite
def groups_of_events(draw) -> tuple[list[PreparedGroup], Table]:
    """Returns groups that prepare XA transactions of one table; they are committed in any order."""
    raw, table = draw(unusual_logs())
    pieces = [bytes(piece[:13]) + bytes(4) + bytes(piece[17:]) for piece in iter_raw(raw)][:-1]
    gtid = event(33, b"\1" + bytes(16) + bytes([1]) + bytes(7))
    xid = b"X'6f6e65',X'6272',7"
    groups, at = [], 4
    for _ in range(draw(st.integers(1, 4))):
        begin = b"XA START " if draw(st.booleans()) else b"xa  begin "
        rows = [piece for piece in pieces[1:] if draw(st.integers(0, 3))]
        end = event(38, struct.pack("<BIII", 0, 7, 3, 2) + b"onebr")
        group = [gtid, statement(begin + xid), pieces[0], *rows, statement(b"XA END " + xid), end]
        whole = b"".join(group)
        groups.append((whole, at))
        at += len(whole) + draw(st.integers(0, 5)) * 100
    commits = sorted(draw(st.lists(st.integers(at, at + 10_000), min_size=4, max_size=4, unique=True)))
    order = draw(st.permutations(groups))
    found = [
        PreparedGroup(whole, place, Lsn(0, 3, commit), 1000 + number)
        for number, ((whole, place), commit) in enumerate(zip(order, commits, strict=False))
    ]
    return found, table


def statement(text: bytes) -> bytes:
    return event(2, bytes(8) + b"\0\0\0\0\0" + b"\0" + text)


def of_groups(name: str, groups: list[PreparedGroup], **how: Any) -> Outcome:
    with chosen(name):
        try:
            return decode_event_groups(*together(groups), **how)
        except Halted as error:
            return error


def one_by_one(groups: list[PreparedGroup], **how: Any) -> Outcome:
    """Returns what plain code makes of each group by itself, as one batch for each table."""
    found: list[ChangeBatch] = []
    for group in groups:
        alone = decoded("python", group.raw, offset=group.offset, commit=group.commit, **how)
        if isinstance(alone, Halted):
            return alone
        found += alone
    if not found:
        return []
    rows = pa.Table.from_batches([batch.rows for batch in found]).combine_chunks().to_batches()[0]
    return [ChangeBatch(found[0].table, rows)]


@settings(max_examples=examples(100))
@given(groups_of_events())
def test_groups_that_are_decoded_together_give_the_same_rows_as_each_alone(made):
    groups, table = made
    how = {"format": PLAIN, "log_file": "b.000001", "change_no": 0, "structures": {NAME: table}}
    expected = one_by_one(groups, **how)
    plain = of_groups("python", groups, **how)
    assert disagreement(of_groups("compiled", groups, **how), plain) is None
    assert isinstance(plain, Halted) if isinstance(expected, Halted) else disagreement(plain, expected) is None
    if not isinstance(plain, Halted):
        filtered = of_groups("compiled", groups, **how, early_filter_of=early_filter)
        assert disagreement(filtered, kept_of(plain)) is None


def test_prepared_groups_need_no_plain_code(monkeypatch):
    raw, table = log_of([FORMS[0][:3]], [(30, b"\0\7"), (31, b"\0\7\0\5")])
    pieces = [bytes(piece[:13]) + bytes(4) + bytes(piece[17:]) for piece in iter_raw(raw)][:-1]
    xid = b"X'6f6e65',X'6272',7"
    end = event(38, struct.pack("<BIII", 0, 7, 3, 2) + b"onebr")
    gtid = event(33, b"\1" + bytes(16) + bytes([1]) + bytes(7))
    group = b"".join([gtid, statement(b"XA START " + xid), *pieces, statement(b"XA END " + xid), end])
    groups = [PreparedGroup(group, 4 + 1000 * number, Lsn(0, 2, 500 + number), number) for number in range(300)]
    fed = []
    feed = routed.RoutedDecoder._feed
    monkeypatch.setattr(routed.RoutedDecoder, "_feed", lambda *args: (fed.append(args[1].type), feed(*args))[1])
    how = {"format": PLAIN, "log_file": "b.000001", "change_no": 0, "structures": {NAME: table}}
    found = of_groups("compiled", groups, **how)
    assert fed == [19]
    assert disagreement(found, of_groups("python", groups, **how)) is None
    assert [Lsn.from_bytes(lsn).offset for lsn in found[0].rows["lsn"].to_pylist()] == sorted([*range(500, 800)] * 2)


def test_the_times_of_rows_are_those_of_their_commits(kernel):
    raw, table = log_of([FORMS[0][:3]], [(30, b"\0\7")])
    raw = b"".join(bytes(piece[:13]) + bytes(4) + bytes(piece[17:]) for piece in iter_raw(raw))
    groups = [PreparedGroup(raw, 4 + 1000 * number, Lsn(0, 2, 500 + 7 * number), 60 * number) for number in range(9)]
    seen = []

    def dropped_at(batch: ChangeBatch, times: pa.Array) -> pa.BooleanArray:
        seen.extend(times.to_pylist())
        return pa.array([number % 2 == 0 for number in range(len(batch))], pa.bool_())

    filters = EarlyFilter(frozenset(), lambda batch: None, dropped_at)
    how = {"format": PLAIN, "log_file": "b.000001", "change_no": 0, "structures": {NAME: table}}
    found = decode_event_groups(*together(groups), **how, early_filter_of=lambda _: filters)
    assert seen == [60_000_000 * number for number in range(9)]
    assert sum(map(len, found)) == 4
