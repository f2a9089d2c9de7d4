"""The rows of a prepared XA transaction are available when it commits, however long ago it was prepared and whatever
was purged.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from pidts.model import Halted, LogEntry, Lsn, TableName, XaStep
from pidts.relay import RelayReader, RelayWriter, list_segments, purge
from pidts.relay.folder import Folder
from pidts.relay.segments import index as index_module

from .sample_log import Piece, sample_log, store, with_xa, xa_piece

MakeWriter = Callable[..., RelayWriter]


def steps(*wanted: tuple[XaStep, str] | None, largest: int = 200) -> list[Piece]:
    """Returns a log with these steps of XA transactions (None: an ordinary transaction), as the scanner returns them: a
    commit does not name its contents.
    """
    log = sample_log(len(wanted), largest=largest)
    return [xa_piece(piece, *one, None) if one else piece for piece, one in zip(log, wanted, strict=True)]


def entries(relay: Path, after: Lsn | None = None) -> list[LogEntry]:
    return list(RelayReader(relay, "s").entries(after))


def prepare(xid: str) -> tuple[XaStep, str]:
    return XaStep.PREPARE, xid


def commit(xid: str) -> tuple[XaStep, str]:
    return XaStep.COMMIT, xid


def roll_back(xid: str) -> tuple[XaStep, str]:
    return XaStep.ROLLBACK, xid


@pytest.mark.parametrize("segment_bytes", [1 << 20, 300])
@pytest.mark.parametrize("reopened", [False, True])
def test_a_commit_holds_what_was_prepared_under_its_name(
    relay: Path, make_writer: MakeWriter, segment_bytes: int, reopened: bool
) -> None:
    log = steps(prepare("a"), None, prepare("b"), None, commit("b"), commit("a"), commit("a"))
    writer = make_writer(segment_bytes=segment_bytes)
    for piece in log:
        store(writer, [piece])
        if reopened:
            writer.close()
            writer = make_writer(segment_bytes=segment_bytes)
    found = entries(relay)
    first, second = log[0].transaction.xa, log[2].transaction.xa
    assert first is not None
    assert second is not None
    for entry, held in ((found[4], second), (found[5], first)):
        what = entry.transaction
        assert (what.row_events, what.tables, what.ddl) == (held.row_events, held.tables, held.ddl)
        assert not entry.lacks_rows
    assert found[4].prepared is not None
    assert found[4].prepared.begin == log[2].transaction.begin
    assert RelayReader(relay, "s").read(found[4].prepared) == log[2].raw
    assert all(entry.transaction.is_empty for entry in (found[0], found[2]))
    assert (found[6].prepared, found[6].lacks_rows) == (None, True)


def test_a_rolled_back_transaction_is_forgotten_and_its_name_can_be_used_again(
    relay: Path, make_writer: MakeWriter
) -> None:
    log = steps(roll_back("a"), prepare("a"), roll_back("a"), prepare("a"), prepare("a"), commit("a"), commit("a"))
    store(make_writer(), log)
    *_, fourth, one, two = entries(relay)
    assert not any(entry.prepared for entry in entries(relay)[:5])
    assert one.prepared is not None
    assert (one.prepared.offset, one.prepared.size) == (fourth.extent.offset, fourth.extent.size)
    assert two.lacks_rows


def test_steps_that_were_not_synced_are_computed_again(relay: Path, make_writer: MakeWriter) -> None:
    log = steps(prepare("a"), commit("a"))
    writer = make_writer()
    store(writer, log[:1])
    for _ in range(3):
        writer.append(log[1].raw)
        writer.commit(log[1].transaction)
        writer.rollback()
    store(writer, log[1:])
    assert entries(relay)[1].prepared is not None


def test_undecided_transactions_may_need_several_reads_of_a_header(relay: Path, make_writer: MakeWriter) -> None:
    log = steps(*(prepare(str(number) * 40) for number in range(900)), None)
    wide = tuple(TableName("shop", f"table {number}") for number in range(10))
    for piece in log[:-1]:
        assert piece.transaction.xa is not None
        piece.transaction = replace(piece.transaction, xa=replace(piece.transaction.xa, tables=wide))
    store(make_writer(segment_bytes=20_000), log, every=100)
    last = list_segments(relay, "s")[-1]
    header = Folder.of(relay, "s").header(last.number)
    assert header is not None
    assert last.index_bytes > 64 << 10
    found = [piece.transaction.xa for piece in log if piece.transaction.lsn <= header.start and piece.transaction.xa]
    assert [group.xa for group in header.prepared] == found


def logs_of(relay: Path) -> list[int]:
    return sorted(int(path.stem) for path in (relay / "s").glob("*.log"))


def test_purging_leaves_the_events_that_a_later_commit_needs(relay: Path, make_writer: MakeWriter) -> None:
    log = sample_log(60)
    for at, step, held in ((3, XaStep.PREPARE, None), (10, XaStep.PREPARE, None), (50, XaStep.COMMIT, log[3])):
        log[at] = xa_piece(log[at], step, "b" if at == 10 else "a", None if held is None else log[3])
    writer = make_writer(segment_bytes=1_000)
    store(writer, log[:40])
    first, other = (entry.extent.segment for entry in entries(relay) if entry.transaction.xa)
    before = log[39].transaction.lsn
    purge(relay, "s", before)
    (left,) = list_segments(relay, "s")
    assert logs_of(relay) == [first, other, left.number]
    purge(relay, "s", before)
    assert logs_of(relay) == [first, other, left.number]
    writer.close()
    writer = make_writer(segment_bytes=1_000)
    store(writer, log[40:])
    found = {entry.transaction.lsn: entry for entry in entries(relay, before)}
    late = found[log[50].transaction.lsn]
    assert late.prepared is not None
    reader = RelayReader(relay, "s")
    assert reader.read(late.prepared) == log[3].raw
    assert reader.format(late.prepared.segment)
    purge(relay, "s", log[49].transaction.lsn)
    assert reader.read(late.prepared) == log[3].raw
    purge(relay, "s", log[-1].transaction.lsn)
    assert logs_of(relay) == [other, list_segments(relay, "s")[-1].number]


@pytest.mark.parametrize("removed", range(12))
def test_an_interrupted_purge_loses_nothing_that_is_needed(
    relay: Path, make_writer: MakeWriter, removed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = with_xa(sample_log(40), seed=4)
    store(make_writer(segment_bytes=500), log)
    before = log[30].transaction.lsn
    unlink, left = Path.unlink, removed

    def dies(path: Path, missing_ok: bool = False) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise KeyboardInterrupt
        unlink(path, missing_ok)

    monkeypatch.setattr(Path, "unlink", dies)
    with pytest.raises(KeyboardInterrupt):
        purge(relay, "s", before)
    monkeypatch.undo()
    for _ in range(2):
        reader = RelayReader(relay, "s")
        found = list(reader.entries(before))
        read = [reader.read(entry.extent) + (reader.read(entry.prepared) if entry.prepared else b"") for entry in found]
        assert read == [piece.all_raw for piece in log[31:]]
        purge(relay, "s", before)


def test_a_relay_of_another_version_is_named_as_that(
    relay: Path, make_writer: MakeWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_module, "_VERSION", 1)
    writer = make_writer()
    store(writer, sample_log(1))
    writer.close()
    monkeypatch.undo()
    for use in (lambda: RelayReader(relay, "s").received, lambda: RelayWriter.open(relay, "s")):
        with pytest.raises(Halted) as caught:
            use()
        assert caught.value.code == "relay-other-version"
        assert "Empty this folder" in caught.value.todo
