"""The logs that real servers wrote give the rows that these servers had; `make_vectors.py` made the files."""

from __future__ import annotations

import pyarrow as pa
import pytest
from tests.binlog.logs import all_types
from tests.binlog.logs.scenarios import INNO, MYISAM, Recording, kept, load, replayed

from pidts.binlog import LogWalker, decode_slice, iter_raw
from pidts.binlog.events import EventType
from pidts.binlog.gtid_events import GTID_EVENTS
from pidts.model import ChangeBatch, DecodeError, Lsn, Op, Table, TableName

pytestmark = pytest.mark.usefixtures("kernel")


def decode(recording: Recording, *tables: Table, after: Lsn | None = None) -> list[ChangeBatch]:
    return decode_slice(
        recording.events,
        format=recording.format,
        log_file=recording.log_file,
        change_no=3,
        structures={table.name: table for table in tables},
        after=after,
    )


@pytest.mark.parametrize("name", kept())
def test_the_rows_of_the_log_are_the_rows_of_the_server(name):
    recording = load(name)
    assert replayed(recording) == recording.rows


def test_there_are_recordings_of_every_server():
    assert {name.partition("-")[0] for name in kept()} == set(all_types.ALL)


@pytest.mark.parametrize("kind", ["mariadb", "mysql97", "mysql56"])
def test_an_image_that_lacks_columns_shows_which_it_has(kind):
    (batch,) = decode(load(f"{kind}-partial"), INNO)
    assert batch.is_partial
    assert batch.rows.column("partial").to_pylist() == [None, b"\1\2"]
    assert batch.rows.column("before").to_pylist()[1] == {"id": 1, "v": None}
    assert batch.rows.column("after").to_pylist()[1] == {"id": None, "v": "two"}


@pytest.mark.parametrize("kind", ["mariadb", "mysql97"])
def test_rows_of_a_prepared_transaction_wait_for_its_commit(kind):
    recording = load(f"{kind}-prepared")
    assert decode(recording, INNO) == []
    group = prepared_group(recording)
    commit = Lsn(3, 9, 4711)
    (batch,) = decode_slice(
        b"".join(group),
        format=recording.format,
        log_file=recording.log_file,
        change_no=3,
        structures={INNO.name: INNO},
        commit=commit,
    )
    assert batch.rows.column("after").to_pylist() == [{"id": 1, "v": "xa"}]
    (lsn,) = (Lsn.from_bytes(lsn) for lsn in batch.rows.column("lsn").to_pylist())
    assert lsn.at_row(0) == commit
    assert lsn > commit


def prepared_group(recording: Recording) -> list[memoryview]:
    """Returns the raw events from the GTID of the group to its XA_PREPARE."""
    walker, group = LogWalker(recording.log_file), []
    for raw in iter_raw(recording.events):
        event = walker.feed(raw)
        group = [] if event.type in GTID_EVENTS else group
        group.append(raw)
        if event.type == EventType.XA_PREPARE:
            return group
    raise AssertionError("nothing was prepared")


@pytest.mark.parametrize("kind", ["mariadb", "mysql97"])
def test_prepared_transactions_on_other_tables_do_not_matter(kind):
    assert decode(load(f"{kind}-prepared"), MYISAM) == []


def test_a_server_that_logs_a_two_phase_transaction_at_its_commit_needs_nothing_special():
    (batch,) = decode(load("mysql56-prepared"), INNO)
    assert batch.rows.column("after").to_pylist() == [{"id": 1, "v": "xa"}]


@pytest.mark.parametrize("name", kept())
def test_rows_are_numbered_in_the_order_of_the_log(name):
    recording = load(name)
    if not recording.tables:
        return
    for batch in decode(recording, *recording.tables):
        lsns = batch.rows.column("lsn").to_pylist()
        assert lsns == sorted(set(lsns))
        assert {Lsn.from_bytes(lsn).change_no for lsn in lsns} == {3}


@pytest.mark.parametrize("name", [name for name in kept() if name.endswith("transactions")])
def test_continuing_after_any_row_gives_exactly_the_rows_after_it(name):
    recording = load(name)
    everything = decode(recording, *recording.tables)
    lsns = sorted(lsn for batch in everything for lsn in batch.rows.column("lsn").to_pylist())
    for place in range(0, len(lsns), 3):
        rest = decode(recording, *recording.tables, after=Lsn.from_bytes(lsns[place]))
        assert sorted(lsn for batch in rest for lsn in batch.rows.column("lsn").to_pylist()) == lsns[place + 1 :]
        by_table = {batch.table.name: batch.rows for batch in rest}
        for batch in everything:
            kept_rows = by_table.get(batch.table.name, batch.rows.slice(0, 0))
            assert batch.rows.slice(len(batch) - len(kept_rows)).equals(kept_rows)


def test_rows_of_a_compressed_transaction_lie_at_the_event_around_them():
    batches = decode(load("mysql97-transactions"), INNO)
    places = [Lsn.from_bytes(lsn) for lsn in batches[0].rows.column("lsn").to_pylist()]
    packed = [place for place in places if place.row > 10]
    assert len({place.offset for place in packed}) == 1
    assert len(packed) == 3


@pytest.mark.parametrize("name", ["mysql56-transactions", "mysql97-transactions"])
def test_rows_that_are_too_many_for_one_batch_continue_in_the_next(name, monkeypatch):
    recording = load(name)
    whole = {batch.table.name: batch.rows for batch in decode(recording, *recording.tables)}
    monkeypatch.setattr("pidts.binlog.decode.BATCH_BYTES", 20)
    pieces: dict[TableName, list[pa.RecordBatch]] = {}
    for batch in decode(recording, *recording.tables):
        pieces.setdefault(batch.table.name, []).append(batch.rows)
    assert len(pieces[INNO.name]) > 3
    for table, found in pieces.items():
        assert pa.Table.from_batches(found).equals(pa.Table.from_batches([whole[table]]))


def test_rows_in_a_full_batch_are_rolled_back_too(monkeypatch):
    """MariaDB logs some transactions that it has rolled back."""
    whole = pa.Table.from_batches([batch.rows for batch in decode(load("mariadb-transactions"), INNO)])
    monkeypatch.setattr("pidts.binlog.decode.BATCH_BYTES", 1)
    pieces = decode(load("mariadb-transactions"), INNO)
    assert len(pieces) > 1
    assert pa.Table.from_batches([batch.rows for batch in pieces]).equals(whole)


def test_tables_that_are_not_asked_for_are_passed_over():
    batches = decode(load("mariadb-transactions"), MYISAM)
    assert [batch.table.name for batch in batches] == [MYISAM.name]


def test_images_that_an_operation_does_not_have_are_null():
    (batch,) = decode(load("mariadb-transactions"), INNO)
    for op, old, new in zip(
        batch.rows.column("op").to_pylist(),
        batch.rows.column("before").to_pylist(),
        batch.rows.column("after").to_pylist(),
        strict=True,
    ):
        assert (old is None) == (op == Op.INSERT)
        assert (new is None) == (op == Op.DELETE)


def test_a_structure_with_another_number_of_columns_is_refused():
    with pytest.raises(DecodeError) as caught:
        decode(load("mariadb-transactions"), Table(INNO.name, INNO.columns[:1]))
    assert caught.value.code == "structure-mismatch"
    assert caught.value.where.table == "tx.i"


def test_a_structure_with_another_type_is_refused():
    swapped = Table(INNO.name, INNO.columns[::-1])
    with pytest.raises(DecodeError, match=r"column v is varchar .* and long"):
        decode(load("mariadb-transactions"), swapped)
