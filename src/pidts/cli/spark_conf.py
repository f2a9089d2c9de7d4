"""`pidts spark-conf`: prints the Spark settings with which a job reads the tables of a task's warehouse."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from pidts.cli.command import Debug, JsonInstead, TaskFile, opened
from pidts.model import ConfigError

if TYPE_CHECKING:
    from pidts.task.config.servers import TargetSpec

_RUNTIME = "org.apache.iceberg:iceberg-spark-runtime-4.0_2.13:1.10.1"
_DRIVER = "org.xerial:sqlite-jdbc:3.50.3.0"
_STORE = "org.apache.iceberg:iceberg-aws-bundle:1.10.1"


def spark_conf(task: TaskFile, as_json: JsonInstead = False, debug: Debug = False) -> int:
    """Print the Spark settings with which a job reads the tables of a warehouse as lake.DATABASE.TABLE."""
    target = opened(task, debug=debug)[0].target
    if not target.warehouse:
        what = f"the target of this task is {target.place}, and Spark settings are for targets of type iceberg and hive"
        raise ConfigError("not-supported", what, todo="Read this target with Spark's own data source, jdbc")
    settings = settings_of(target, os.environ)
    if as_json:
        print(json.dumps(settings, ensure_ascii=False))
    else:
        for name, value in settings.items():
            print(f"{name}={value}")
    return 0


def settings_of(target: TargetSpec, environment: Mapping[str, str]) -> dict[str, str]:
    """Returns the settings of Iceberg's JDBC catalog for the catalog database of the warehouse.

    This database contains the catalog's name, so Spark has to use the same name. Keys of an object store are left out:
    like PiDTS, Iceberg's classes take them from the environment.
    """
    folder = Path(target.warehouse).absolute()
    catalog = f"spark.sql.catalog.{target.catalog}"
    packages = [_RUNTIME, _DRIVER]
    settings = {
        catalog: "org.apache.iceberg.spark.SparkCatalog",
        f"{catalog}.type": "jdbc",
        f"{catalog}.uri": f"jdbc:sqlite:{folder / 'catalog.db'}",
        f"{catalog}.jdbc.schema-version": "V1",
        f"{catalog}.warehouse": f"file://{folder}",
    }
    if target.files:
        packages.append(_STORE)
        settings[f"{catalog}.io-impl"] = "org.apache.iceberg.aws.s3.S3FileIO"
        if endpoint := environment.get("AWS_ENDPOINT_URL"):
            settings[f"{catalog}.s3.endpoint"] = endpoint
            settings[f"{catalog}.s3.path-style-access"] = "true"
        if region := environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION"):
            settings[f"{catalog}.client.region"] = region
    return {"spark.jars.packages": ",".join(packages), **settings}
