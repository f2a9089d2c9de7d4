"""Iceberg readers other than PiDTS read a warehouse in which rows were removed and columns were changed."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.java_packages import packages
from tests.spark.older_spark import environment_of
from tests.target.conformance.samples import INT, change, create, table, write
from typer.testing import CliRunner

from pidts.cli.app import app
from pidts.model import TableName
from pidts.schema import apply, classify
from pidts.schema.statement_time import StatementTime
from pidts.target import IcebergTarget

pytest.importorskip("pyiceberg")

pytestmark = [pytest.mark.long, pytest.mark.timeout(1500)]

ROOT = Path(__file__).parents[3]
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
SPARK = """
import json, sys
from pyspark.sql import SparkSession
settings, jars = json.loads(sys.argv[1]), sys.argv[2]
del settings["spark.jars.packages"]
builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").config("spark.jars", jars)
for name, value in settings.items():
    builder = builder.config(name, value)
session = builder.getOrCreate()
print([tuple(row) for row in session.sql("SELECT * FROM lake.shop.t ORDER BY id").collect()])
session.stop()
"""
TASK = """
name: t
task-mode: all
target-database: {type: iceberg, warehouse: FOLDER}
mysql-instances: [{source-id: s, from: {host: h, user: u}}]
"""
ROWS = "[(3, 0, 7), (5, 5, 5), (100, 3, 7)]"


@dataclass(frozen=True)
class Warehouse:
    folder: Path
    location: str
    """The address of the table's metadata file."""


@pytest.fixture
def warehouse(tmp_path: Path) -> Warehouse:
    folder = tmp_path / "lake"
    with closing(IcebergTarget(str(folder)).connect()) as session:
        session.meta.prepare()
        structure = table(NAME, {"id": INT, "v": INT})
        create(session, structure)
        for number in range(4):
            write(session, change(structure, upserts=[(number, 0), (100, number)], deletes=[(number - 1,)]))
        statement = classify("ALTER TABLE t RENAME COLUMN v TO w, ADD n INT NOT NULL DEFAULT 7", "shop")
        after = apply(statement, {NAME: structure}, {})
        for sql in session.schema.ddl_statements(
            statement, {NAME: structure}, after, StatementTime(1_700_000_000)
        ).statements:
            session.execute(sql)
        write(session, change(after[NAME], upserts=[(5, 5, 5)]))
        place = session.tables.location(NAME)
    assert place is not None
    return Warehouse(folder, place)


def read(program: str, environment: dict[str, str], *words: str) -> str:
    command = [sys.executable, "-c", program, *words]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.strip()


def test_duckdb_reads_the_rows_that_are_there(warehouse: Warehouse) -> None:
    folder = ROOT / ".venv-readers"
    command = [ROOT / "setup" / "folder_of.sh", "requirements/readers/readers.txt", folder]
    made = subprocess.run(command, capture_output=True, text=True, timeout=500, check=False)
    assert made.returncode == 0, made.stderr
    assert read(DUCKDB, {**os.environ, "PYTHONPATH": str(folder)}, warehouse.location) == ROWS


@pytest.mark.spark
def test_spark_reads_the_rows_that_are_there_with_the_printed_settings(warehouse: Warehouse, tmp_path: Path) -> None:
    """The test uses the oldest Spark: Iceberg's classes are made for one version of Spark, and there are none for 4.3."""
    folder = packages(ROOT / "requirements" / "readers" / "pom.xml", ROOT / ".venv-readers-java")
    jars = ",".join(map(str, sorted(folder.glob("*.jar"))))
    file = tmp_path / "t.yaml"
    file.write_text(TASK.replace("FOLDER", str(warehouse.folder)))
    printed = CliRunner().invoke(app, ["spark-conf", "--json", str(file)]).output
    assert read(SPARK, environment_of("4.0"), printed, jars) == ROWS
