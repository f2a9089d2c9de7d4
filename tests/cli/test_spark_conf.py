"""`pidts spark-conf` prints the settings with which Spark reads a warehouse, and refuses other targets."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pidts.cli.app import app

FILE = """\
name: t
task-mode: all
target-database: {TARGET}
mysql-instances: [{source-id: s, from: {host: h, user: u}}]
"""


def task(folder: Path, target: str) -> str:
    file = folder / "t.yaml"
    file.write_text(FILE.replace("TARGET", target))
    return str(file)


def test_each_line_is_a_setting_of_the_catalog_in_the_warehouse(tmp_path: Path) -> None:
    shown = CliRunner().invoke(app, ["spark-conf", task(tmp_path, "type: iceberg, warehouse: ./wh")])
    assert shown.exit_code == 0
    settings = dict(line.split("=", 1) for line in shown.output.splitlines())
    assert settings.pop("spark.jars.packages").count("org.apache.iceberg:") == 1
    assert settings == {
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.lake.type": "jdbc",
        "spark.sql.catalog.lake.uri": f"jdbc:sqlite:{tmp_path}/wh/catalog.db",
        "spark.sql.catalog.lake.jdbc.schema-version": "V1",
        "spark.sql.catalog.lake.warehouse": f"file://{tmp_path}/wh",
    }


def test_files_in_a_store_are_read_by_its_address_and_no_key_is_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9000")
    monkeypatch.setenv("AWS_REGION", "eu-1")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "not-to-be-shown")
    file = task(
        tmp_path, "type: hive, warehouse: ./wh, catalog: own, files: 's3://bucket/f', metastore: 'thrift://h:9083'"
    )
    shown = CliRunner().invoke(app, ["spark-conf", "--json", file])
    assert shown.exit_code == 0
    assert "not-to-be-shown" not in shown.output
    settings = json.loads(shown.output)
    store = {name: value for name, value in settings.items() if name.split(".own.")[-1].startswith(("s3", "io", "cl"))}
    assert store == {
        "spark.sql.catalog.own.io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
        "spark.sql.catalog.own.s3.endpoint": "http://127.0.0.1:9000",
        "spark.sql.catalog.own.s3.path-style-access": "true",
        "spark.sql.catalog.own.client.region": "eu-1",
    }


def test_a_target_without_a_warehouse_is_refused(tmp_path: Path) -> None:
    from pidts.cli.app import run_command

    assert run_command(["spark-conf", task(tmp_path, "host: h, user: u")]) == 2
