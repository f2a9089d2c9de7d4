"""Readers of other makers read a warehouse that rows were removed from and whose columns have changed."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from tests.target.conformance.samples import INT, change, create, table

from pidts.model import TableName
from pidts.schema import apply, classify
from pidts.target import IcebergTarget

pytest.importorskip("pyiceberg")

ROOT = Path(__file__).parents[2]
NAME = TableName("shop", "t")
DUCKDB = """
import sys
from pathlib import Path
import duckdb, duckdb_ext
folder = Path(next(iter(duckdb_ext.__path__))) / "extensions"
session = duckdb.connect(config={"allow_unsigned_extensions": "true"})
for name in ("avro", "iceberg"):
    (found,) = folder.glob(f"*/*/{name}.duckdb_extension")
    session.execute(f"LOAD '{found}'")
print(session.execute(f"SELECT * FROM iceberg_scan('{sys.argv[1]}') ORDER BY id").fetchall())
"""


@pytest.mark.long
@pytest.mark.timeout(600)
def test_duckdb_reads_the_rows_that_are_there(tmp_path: Path) -> None:
    folder = ROOT / ".venv-readers"
    command = [ROOT / "setup" / "folder_of.sh", "requirements/readers/readers.txt", folder]
    made = subprocess.run(command, capture_output=True, text=True, timeout=500, check=False)
    assert made.returncode == 0, made.stderr
    with closing(IcebergTarget(str(tmp_path / "lake")).connect()) as session:
        session.meta.prepare()
        structure = table(NAME, {"id": INT, "v": INT})
        create(session, structure)
        for number in range(4):
            session.begin()
            session.write(change(structure, upserts=[(number, 0), (100, number)], deletes=[(number - 1,)]))
            session.commit()
        statement = classify("ALTER TABLE t RENAME COLUMN v TO w, ADD n INT NOT NULL DEFAULT 7", "shop")
        after = apply(statement, {NAME: structure}, {})
        for sql in session.schema.ddl_statements(statement, {NAME: structure}, after, 1_700_000_000).statements:
            session.execute(sql)
        session.begin()
        session.write(change(after[NAME], upserts=[(5, 5, 5)]))
        session.commit()
        place = session.tables.location(NAME)
    read = subprocess.run(
        [sys.executable, "-c", DUCKDB, place],
        env={**os.environ, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert read.stdout.strip() == "[(3, 0, 7), (5, 5, 5), (100, 3, 7)]", read.stderr
