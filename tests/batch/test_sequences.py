"""The relay's record distinguishes MariaDB's SEQUENCE objects from tables, whatever statement created, renamed or
dropped them.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.relay.test_structures import received_all, replicating, source_of, until

from pidts.batch.sequences import SequencesOfRelay, sequences_of
from pidts.model import TableName
from pidts.relay.folder import Folder
from pidts.relay.structures import dialect_at, stored_places
from pidts.replicate import ReplicatorConfig
from pidts.sandbox import Server
from pidts.schema import classify

RunSql = Callable[..., list[tuple[Any, ...]]]

BEFORE = ("CREATE SEQUENCE old", "CREATE TABLE t (id INT PRIMARY KEY)")
STATEMENTS = (
    # The statement, and the sequences that it names besides the task's tables; None if the log has rows for the
    # statement.
    ("SELECT NEXTVAL(old)", None),
    ("RENAME TABLE old TO new", {"old", "new"}),
    ("SELECT NEXTVAL(new)", None),
    ("CREATE SEQUENCE s", set()),
    ("SELECT NEXTVAL(s)", None),
    ("ALTER TABLE s RENAME TO s2", {"s", "s2"}),
    ("SELECT NEXTVAL(s2)", None),
    ("RENAME TABLE s2 TO x, t TO t2", {"s2", "x"}),
    ("RENAME TABLE x TO s2, t2 TO t", {"s2", "x"}),
    ("ALTER TABLE s2 ENGINE = InnoDB", {"s2"}),
    ("CREATE TABLE alike LIKE s2", {"alike", "s2"}),
    ("SELECT NEXTVAL(alike)", None),
    ("DROP TABLE s2", {"s2"}),
    ("CREATE TABLE s2 (id INT PRIMARY KEY)", set()),
    ("INSERT INTO s2 VALUES (1)", None),
)
ROWS = ["old", "new", "s", "s2", "alike", "s2"]


def test_sequences_are_distinguished_from_tables(
    mariadb: Server, database: str, run_sql: RunSql, tmp_path: Path
) -> None:
    for text in BEFORE:
        run_sql(mariadb, text, database=database)
    with replicating(ReplicatorConfig(source_of(mariadb), tmp_path, look_every=0.1)) as reader:
        until(lambda: stored_places(Folder.of(tmp_path, "s")))
        begin = reader.received
        assert begin is not None
        for text, _ in STATEMENTS:
            run_sql(mariadb, text, database=database)
        until(received_all(reader, mariadb))
        sequences, known, dialect = SequencesOfRelay(reader), {TableName(database, "t")}, dialect_at(reader, begin)
        rows, named, places = [], [], []
        for entry in reader.entries(begin):
            what = entry.transaction
            if what.ddl is not None:
                statement = classify(what.ddl, what.ddl_schema, dialect=dialect)
                found = sequences_of(reader, what, statement, known, dialect)
                named.append({name.name for name in found if name.schema == database})
                if "t TO t2" in what.ddl or "t2 TO t" in what.ddl:
                    known = {TableName(database, "t2" if "t TO t2" in what.ddl else "t")}
            elif what.row_events:
                ((name),) = what.tables
                rows.append(name.name)
                is_table = len(rows) == len(ROWS)
                assert sequences.is_sequence(name, what.prev_lsn, what.lsn) is not is_table
                places.append((name, what.prev_lsn, what.lsn))
        assert rows == ROWS
        # A waiting table is earlier in the log than the others.
        assert [sequences.is_sequence(*place) for place in reversed(places)] == [False, *[True] * (len(ROWS) - 1)]
        assert named == [found for _, found in STATEMENTS if found is not None]
