"""The scanner finds the transactions that the servers made, and the events between them."""

from __future__ import annotations

import random
import struct

import pytest
from tests.binlog.logs.log_maker import LogMaker
from tests.binlog.logs.scenarios import Recording, kept, load

from pidts.batch.transaction_classifier import TransactionClassifier
from pidts.binlog import Event, EventType, LogWalker, TransactionScanner, iter_raw
from pidts.model import DecodeError, Halted, Lsn, Transaction
from pidts.plan import RelevanceKind
from pidts.rules import AllowList
from pidts.schema import Dialect

COMMON = [
    ("", 1, "i"),
    ("", 3, "i"),
    ("", 2, "i"),
    ("", 1, "m"),
    ("", 1, "i"),
    ("", 1, "m"),
    ("CREATE TABLE other", 0, ""),
    ("ALTER TABLE other", 0, ""),
    ("", 1, "other"),
    ("TRUNCATE TABLE other", 0, ""),
    ("DROP TABLE `other`", 0, ""),
    ("", 1, "i"),
]
EXPECTED = {
    "mysql56-transactions": COMMON,
    "mysql97-transactions": [
        *COMMON,
        ("CREATE TABLE `cs`", 1, "cs"),
        ("CREATE TABLE aside", 0, ""),
        ("", 3, "i aside"),
        ("", 1, "i"),
        ("", 1, "i"),
    ],
    "mariadb-transactions": [
        *COMMON,
        *[("", 1, "m"), ("", 3, "i"), ("", 1, "m"), ("", 1, "i"), ("", 1, "i"), ("", 1, "i")],
        ("CREATE TABLE `cs`", 1, "cs"),
        *[("", 1, "i")] * 4,
        ("CREATE TABLE packed", 0, ""),
        *[("", 0, ""), ("ALTER TABLE m COMMENT 'one'", 0, ""), ("", 0, ""), ("ALTER TABLE m ADD COLUMN w", 0, "")],
    ],
}  # fmt: skip


def start_of(recording: Recording) -> Lsn:
    return Lsn(0, int(recording.log_file.partition(".")[2]), 4)


def scan(recording: Recording) -> list[Transaction]:
    walker, scanner = LogWalker(recording.log_file), TransactionScanner(0, start_of(recording))
    found = [scanner.feed(walker.feed(raw)) for raw in iter_raw(recording.events)]
    return [transaction for transaction in found if transaction is not None]


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_transactions_statements_and_tables(name):
    found = [
        (transaction.ddl or "", transaction.row_events, " ".join(table.name for table in transaction.tables))
        for transaction in scan(load(name))
    ]
    assert [row[1:] for row in found] == [row[1:] for row in EXPECTED[name]]
    for (ddl, _, _), (expected, _, _) in zip(found, EXPECTED[name], strict=True):
        assert ddl.startswith(expected)
        assert bool(ddl) == bool(expected)


@pytest.mark.parametrize("name", kept())
def test_every_transaction_names_the_one_before_and_holds_its_rows(name):
    recording = load(name)
    previous = start_of(recording)
    for transaction in scan(recording):
        assert transaction.prev_lsn == previous
        assert previous <= transaction.begin < transaction.lsn
        assert transaction.timestamp > 1_500_000_000
        previous = transaction.lsn


@pytest.mark.parametrize("name", kept())
def test_empty_entries_close_the_gaps(name):
    """If the scanner is asked for an empty entry after every event, the entries cover every byte of the log."""
    recording = load(name)
    walker, scanner = LogWalker(recording.log_file), TransactionScanner(0, start_of(recording))
    previous = start_of(recording)
    for raw in iter_raw(recording.events):
        entry = scanner.feed(walker.feed(raw)) or scanner.empty_entry()
        if entry is not None:
            assert entry.prev_lsn == previous
            assert entry.begin in {previous, Lsn(0, entry.lsn.log_index, 4)}
            previous = entry.lsn
        assert scanner.empty_entry() is None
    assert (previous.log_index, previous.offset) == (int(walker.file.rpartition(".")[2]), walker.offset)


@pytest.mark.parametrize("kind", ["mariadb", "mysql97", "mysql56"])
def test_changes_sent_as_statements_are_seen(kind):
    (transaction,) = scan(load(f"{kind}-statement"))
    assert transaction.ddl == "INSERT INTO i VALUES (1, 'sent as text')"
    assert (transaction.ddl_schema, transaction.row_events) == ("tx", 0)
    assert not transaction.is_empty


def test_the_statements_of_a_transaction_keep_their_databases():
    log = LogMaker(random.Random(5), product="mariadb")
    log.put_begin()
    log.query("INSERT INTO a VALUES (1) -- job", "one")
    log.query("UPDATE b SET i = 2", "two`s")
    log.query("DELETE FROM one.a", "")
    log.plain_query("COMMIT")
    scanner, walker = TransactionScanner(0, Lsn(0, 1, 4)), LogWalker(log.file)
    found = [scanner.feed(walker.feed(raw)) for raw in log.events]
    (transaction,) = filter(None, found)
    assert transaction.ddl_schema == "one"
    assert (
        transaction.ddl == "INSERT INTO a VALUES (1) -- job\n;\nUSE `two``s`;\nUPDATE b SET i = 2;\nDELETE FROM one.a"
    )
    ours = TransactionClassifier(AllowList(do_dbs=("two`s",)), Dialect())
    assert ours.of_schema_change(transaction).kind is RelevanceKind.DDL
    others = TransactionClassifier(AllowList(do_dbs=("three",)), Dialect())
    assert others.of_schema_change(transaction).kind is RelevanceKind.NOTHING


def test_gtids_come_as_their_servers_write_them():
    tagged, plain = [transaction.gtid.split(":")[1:] for transaction in scan(load("mysql97-transactions"))[-2:]]
    assert (tagged, len(plain)) == (["some_tag", "1"], 1)
    assert all(transaction.gtid.startswith("0-") for transaction in scan(load("mariadb-transactions")))


def event(kind: int, body: bytes = b"", *, offset: int = 100, flags: int = 0) -> Event:
    return Event(kind, 7, 1, flags, 19 + len(body), offset + 19 + len(body), offset, 1, memoryview(body))


def query(sql: str, **more: int) -> Event:
    return event(EventType.QUERY, struct.pack("<IIBHH", 1, 0, 1, 0, 0) + b"d\0" + sql.encode(), **more)


@pytest.fixture
def scanner() -> TransactionScanner:
    return TransactionScanner(0, Lsn(0, 1, 4))


def test_an_unknown_event_stops_the_relay(scanner):
    with pytest.raises(DecodeError) as caught:
        scanner.feed(event(EventType.PRE_GA_WRITE_ROWS))
    assert caught.value.code == "unknown-event"
    assert caught.value.where.position == "log 1:100"


def test_an_event_marked_as_ignorable_does_not(scanner):
    assert scanner.feed(event(99, flags=0x80)) is None
    assert scanner.empty_entry().lsn == Lsn(0, 1, 119)


def test_an_incident_stops_the_relay(scanner):
    with pytest.raises(Halted, match="LOST_EVENTS"):
        scanner.feed(event(EventType.INCIDENT, b"\1\0\x0bLOST_EVENTS"))


def test_without_gtids_begin_opens_a_transaction(scanner):
    assert scanner.feed(query("BEGIN")) is None
    assert scanner.in_transaction
    assert scanner.feed(query("INSERT INTO t VALUES (1)", offset=200)) is None
    done = scanner.feed(event(EventType.XID, bytes(8), offset=300))
    assert (done.begin, done.lsn, done.ddl) == (Lsn(0, 1, 100), Lsn(0, 1, 327), "INSERT INTO t VALUES (1)")


def test_several_statements_are_all_kept(scanner):
    scanner.feed(query("BEGIN"))
    scanner.feed(query("CREATE TEMPORARY TABLE a (b int)", offset=200))
    scanner.feed(query("INSERT INTO t VALUES (1)", offset=300))
    done = scanner.feed(query("COMMIT", offset=400))
    assert done.ddl == "CREATE TEMPORARY TABLE a (b int);\nINSERT INTO t VALUES (1)"


def test_a_transaction_that_a_dying_server_left_unfinished_becomes_part_of_an_empty_entry(scanner):
    scanner.feed(query("BEGIN"))
    scanner.feed(query("INSERT INTO t VALUES (1)", offset=200))
    scanner.feed(event(EventType.ROTATE, struct.pack("<Q", 4) + b"bin.000002", offset=300))
    assert not scanner.in_transaction
    entry = scanner.empty_entry()
    assert entry.lsn == Lsn(0, 2, 4)
    assert entry.is_empty


def test_a_transaction_within_a_transaction_is_refused(scanner):
    scanner.feed(event(EventType.ANONYMOUS_GTID))
    with pytest.raises(DecodeError) as caught:
        scanner.feed(event(EventType.ANONYMOUS_GTID, offset=200))
    assert caught.value.code == "unfinished-transaction"


def test_a_log_that_goes_back_is_refused(scanner):
    scanner.feed(query("CREATE TABLE t (a int)", offset=500))
    with pytest.raises(DecodeError) as caught:
        scanner.feed(query("DROP TABLE t", offset=100))
    assert caught.value.code == "log-went-back"


def test_artificial_events_do_not_move_the_position(scanner):
    scanner.feed(event(EventType.HEARTBEAT, offset=900))
    scanner.feed(event(EventType.GTID_LIST, flags=0x20, offset=900))
    assert scanner.empty_entry() is None
