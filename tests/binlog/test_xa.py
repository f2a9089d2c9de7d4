"""The scanner keeps the contents of prepared XA transactions back, and finds them by name at their COMMIT or ROLLBACK."""

from __future__ import annotations

import struct
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pidts.binlog import Event, EventType, TransactionScanner
from pidts.binlog.xa import PreparedEventGroups, XaPrepare, XaStatement
from pidts.model import DecodeError, LogEntry, Lsn, TableName, Transaction, Xa, XaStep
from pidts.model.transaction import Extent

from .test_scan import event, query

ONE = "X'6f6e65',X'6272',7"


def prepare(gtrid: bytes = b"one", bqual: bytes = b"br", number: int = 7, *, one_phase: bool = False) -> bytes:
    return struct.pack("<BIII", one_phase, number, len(gtrid), len(bqual)) + gtrid + bqual


def table_map() -> Event:
    names = b"\4shop\0\6orders\0"
    return event(EventType.TABLE_MAP, bytes(6) + b"\1\0" + names + b"\1\3\0\0", offset=300)


def scanned(*events: Event) -> list[Transaction]:
    """Scans events of one file, each of which begins where the event before it ends."""
    scanner, found, offset = TransactionScanner(0, Lsn(0, 1, 4)), [], 4
    for one in events:
        placed = replace(one, offset=offset, log_pos=offset + one.size)
        offset += one.size
        if (transaction := scanner.feed(placed)) is not None:
            found.append(transaction)
    return found


GTID = event(EventType.ANONYMOUS_GTID)
GROUP = (
    GTID,
    query(f"XA START {ONE}"),
    table_map(),
    event(EventType.WRITE_ROWS, bytes(10)),
    event(EventType.WRITE_ROWS, bytes(10)),
    query(f"XA END {ONE}"),
)


def test_a_group_that_prepares_is_an_empty_entry_that_shows_what_it_holds():
    (group,) = scanned(*GROUP, event(EventType.XA_PREPARE, prepare()))
    assert group.is_empty
    assert (group.row_events, group.tables) == (0, ())
    assert group.xa.step is XaStep.PREPARE
    assert (group.xa.xid, group.xa.row_events, group.xa.tables) == (ONE, 2, (TableName("shop", "orders"),))


@pytest.mark.parametrize("word", ["COMMIT", "ROLLBACK"])
def test_the_commit_names_its_transaction_and_comes_after_the_previous_one(word):
    """Rows with the place of the group's first byte would not be after a checkpoint at the end of the previous group."""
    _, end = scanned(*GROUP, event(EventType.XA_PREPARE, prepare()), GTID, query(f"XA {word} {ONE}"))
    assert (end.row_events, end.xa.xid, end.xa.step) == (0, ONE, XaStep[word])
    assert end.prev_lsn < end.xa.at < end.lsn
    assert LogEntry(end, Extent(1, 0, 1)).lacks_rows is (word == "COMMIT")


def test_in_one_phase_it_commits_at_once():
    (transaction,) = scanned(*GROUP, event(EventType.XA_PREPARE, prepare(one_phase=True)))
    assert (transaction.row_events, transaction.xa) == (2, None)


def test_an_end_in_a_group_with_its_own_rows_is_an_ordinary_transaction():
    (transaction,) = scanned(*GROUP, query(f"XA COMMIT {ONE}"))
    assert (transaction.row_events, transaction.xa) == (2, None)


def test_statements_in_it_are_held_back_too():
    (group,) = scanned(*GROUP[:2], query("INSERT INTO t VALUES (1)"), event(EventType.XA_PREPARE, prepare()))
    assert (group.ddl, group.xa.ddl, group.xa.ddl_schema) == (None, "INSERT INTO t VALUES (1)", "d")


def test_a_compressed_transaction_that_prepares_is_held_back():
    inner = b"".join(
        struct.pack("<IBIIIH", 7, one.type, 1, 19 + len(one.body), 0, 0) + bytes(one.body)
        for one in (*GROUP[1:], event(EventType.XA_PREPARE, prepare()))
    )
    payload = event(EventType.TRANSACTION_PAYLOAD, b"\2\3\xfc\xff\0" + b"\0" + inner)
    (group,) = scanned(GTID, payload)
    assert group.is_empty
    assert (group.xa.xid, group.xa.row_events) == (ONE, 2)


parts = st.binary(max_size=64)


@given(parts, parts, st.integers(0, 2**40))
def test_event_and_statement_give_one_name(gtrid, bqual, number):
    """The event has 32 bits of the number; the statement has all bits that the client gave."""
    body = prepare(gtrid, bqual, number % 2**32)
    statement = XaStatement.parse(f"XA COMMIT X'{gtrid.hex()}',X'{bqual.hex().upper()}',{number}")
    assert XaPrepare.parse(event(EventType.XA_PREPARE, body)).xid == statement.xid


@pytest.mark.parametrize("cut", [0, 1, 12, 13, 17])
def test_a_prepare_cut_short_is_refused(cut):
    with pytest.raises(DecodeError):
        XaPrepare.parse(event(EventType.XA_PREPARE, prepare()[:cut]))


def test_parts_longer_than_any_are_refused():
    with pytest.raises(DecodeError) as caught:
        XaPrepare.parse(event(EventType.XA_PREPARE, prepare(bytes(65))))
    assert caught.value.code == "bad-xid"


@pytest.mark.parametrize("sql", ["XA COMMIT", "XA COMMIT X'1',X'',1", "XA COMMIT X'31'", "XA COMMIT 'one'"])
def test_a_statement_that_names_nothing_stops_the_relay(sql):
    with pytest.raises(DecodeError) as caught:
        scanned(GTID, query(sql))
    assert caught.value.code == "bad-xid"


def step(number: int, kind: XaStep, xid: str) -> Transaction:
    at = Lsn(0, 1, number)
    return Transaction(
        lsn=at, prev_lsn=at, begin=at, xa=Xa(step=kind, xid=xid, at=at, row_events=number * (kind is XaStep.PREPARE))
    )


@given(st.lists(st.tuples(st.sampled_from([*XaStep, None]), st.sampled_from("abc")), max_size=30))
def test_a_commit_gets_what_was_prepared_last_under_its_name(steps):
    groups: PreparedEventGroups[int] = PreparedEventGroups()
    known: dict[str, int] = {}
    for number, (kind, xid) in enumerate(steps, 1):
        transaction = step(number, kind, xid) if kind else replace(step(number, XaStep.PREPARE, xid), xa=None)
        settled, place = groups.settle(transaction, number)
        expected = known.pop(xid, None) if kind is not None else None
        if kind is XaStep.COMMIT and expected is not None:
            assert (settled.row_events, place) == (expected, expected)
        else:
            assert (settled, place) == (transaction, None)
        if kind is XaStep.PREPARE:
            known[xid] = number
        assert {group.xa.xid: group.place for group in groups} == known


def test_a_copy_goes_its_own_way():
    groups: PreparedEventGroups[int] = PreparedEventGroups()
    groups.settle(step(1, XaStep.PREPARE, "a"), 1)
    other = groups.copy()
    groups.settle(step(2, XaStep.COMMIT, "a"), 2)
    assert (len(groups), len(other)) == (0, 1)
