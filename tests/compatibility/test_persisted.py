"""The records that version 0.1.0 left on targets and disks have the form that this version reads and writes.

`tests/spark/test_upgrade.py` shows the same with a task that version 0.1.0 began.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.relay.sample_log import FORMAT_EVENT, ORIGIN, START, sample_log, store

from pidts.apply.locks.held_changes import held_batch
from pidts.apply.uncopied_keys import unpacked
from pidts.model import Halt, HeldChanges, Lsn, Op, RowLock, SourceTransaction, TableName
from pidts.relay import RelayReader, RelayWriter
from pidts.target import MySqlTarget, PostgresTarget

HERE = Path(__file__).parent
COLUMNS: dict[str, dict[str, list[str]]] = json.loads((HERE / "meta-tables-0.1.0.json").read_text())
RELAY = HERE / "relay-0.1.0"
TRANSACTIONS = 30


def meta_columns(run_sql: Callable[..., Any], server: Any) -> dict[str, list[str]]:
    """Returns each table of `pidts_meta` with its columns and their types."""
    rows = run_sql(
        server,
        "SELECT table_name, column_name, data_type, is_nullable FROM information_schema.columns "
        "WHERE table_schema = 'pidts_meta' ORDER BY table_name, ordinal_position",
    )
    found: dict[str, list[str]] = {}
    for table, column, kind, nullable in rows:
        found.setdefault(table, []).append(f"{column} {kind}{' null' if nullable == 'YES' else ''}")
    return found


@pytest.mark.parametrize("kind", COLUMNS)
def test_meta_tables_have_all_that_they_had(
    kind: str, run_sql: Callable[..., Any], request: pytest.FixtureRequest
) -> None:
    server = request.getfixturevalue(kind)
    settings = {"host": server.host, "port": server.port, "user": server.user, "password": server.password}
    with closing((PostgresTarget if kind == "postgres" else MySqlTarget)(**settings).connect()) as session:
        session.meta.prepare()
    now = meta_columns(run_sql, server)
    for table, columns in COLUMNS[kind].items():
        assert set(columns) <= set(now[table]), table


def write_relay(directory: Path) -> None:
    """Writes a relay of several segments whose bytes depend only on the code."""
    with closing(RelayWriter.open(directory, "s", segment_bytes=2_000)) as writer:
        writer.begin(ORIGIN, START, "")
        writer.start_segment(FORMAT_EVENT)
        store(writer, sample_log(TRANSACTIONS), every=7)


def files(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file() and path.suffix in {".log", ".index"}
    }


def test_a_relay_is_read_as_it_was_written() -> None:
    entries = [entry.transaction for entry in RelayReader(RELAY, "s").entries()]
    assert entries == [piece.transaction for piece in sample_log(TRANSACTIONS)]


def test_the_same_log_gives_the_same_relay(tmp_path: Path) -> None:
    write_relay(tmp_path)
    assert files(tmp_path) == files(RELAY)


def test_a_lock_names_its_structures_by_their_digests() -> None:
    sample = json.loads((HERE / "row-lock-0.1.0.json").read_text())
    old = RowLock.loads(sample["row_key"], sample["about"], {})
    about = {name: value for name, value in json.loads(sample["about"]).items() if name not in {"structure", "now"}}
    text = json.dumps({**about, "of": "1" * 64, "now_of": "2" * 64, "form": "5" * 64})
    assert RowLock.digests(text) == ["1" * 64, "2" * 64]
    lock = RowLock.loads(sample["row_key"], text, {"1" * 64: old.table, "2" * 64: old.structure})
    assert lock == replace(old, form="5" * 64)
    assert json.loads(lock.dumps()).keys() == json.loads(text).keys()
    assert RowLock.loads(lock.id, lock.dumps(), lock.structures()) == lock


def test_a_recorded_halt_is_read_and_written_as_it_was() -> None:
    sample = json.loads((HERE / "halt-0.1.0.json").read_text())
    halt = Halt.loads(json.dumps(sample))
    assert (halt.tables, halt.lsn, halt.key) == ((TableName("shop", "orders"),), Lsn(0, 42, 1188), "id=50")
    assert json.loads(halt.dumps()) == sample
    assert Halt.loads(json.dumps({**sample, "added by a later version": 1})) == halt
    in_zone = replace(halt, into_zone="b", is_earlier=True)
    assert Halt.loads(in_zone.dumps()) == in_zone


@pytest.mark.parametrize("file", ["row-lock-0.1.0.json", "held-changes-0.1.0.json"])
def test_a_locked_row_and_what_it_holds_are_read_as_they_were_written(file: str) -> None:
    """The log had an UPDATE of the row in full; then column w was added, an UPDATE was logged in part, and the row was
    deleted.
    """
    sample = json.loads((HERE / "row-lock-0.1.0.json").read_text())
    sample["changes"] = json.loads((HERE / file).read_text())["changes"]
    lock = RowLock.loads(sample["row_key"], sample["about"], {})
    assert unpacked(lock.key).to_pylist() == [{"id": 1}]
    assert (lock.shown, lock.why, lock.needs, lock.is_reported) == (
        "id=1",
        "the target's row has other values in s",
        "",
        True,
    )
    assert (lock.origin, lock.since) == (TableName("shop", "a"), 1795000001.5)
    assert (lock.table.arrow.names, lock.structure.arrow.names) == (["id", "s", "u"], ["id", "s", "u", "w"])
    assert lock.structure.column("w").default == "5"
    (first, _), (later, transactions) = (
        held_batch(lock, HeldChanges(lock.id, Lsn.parse(lsn), changes)) for lsn, changes in sample["changes"]
    )
    (update,) = first.rows.to_pylist()
    assert (update["before"], update["after"]) == ({"id": 1, "s": "a", "u": 1}, {"id": 1, "s": "aa", "u": 1})
    assert transactions == [SourceTransaction("0-1-7", 1795000000)] * 2
    assert later.table.arrow.names == ["id", "s", "u", "w"]
    part, delete = later.rows.to_pylist()
    assert (Op(part["op"]), part["partial"], part["after"]["u"]) == (Op.UPDATE, b"\1\5", 7)
    assert (Op(delete["op"]), delete["before"]) == (Op.DELETE, {"id": 1, "s": "aa", "u": 7, "w": 5})
