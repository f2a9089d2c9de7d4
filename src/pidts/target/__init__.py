"""Targets that rows are written to: picklable configurations, whose `connect` returns a session (`apply.port`)."""

from pidts.target.hive import HiveTarget
from pidts.target.iceberg import IcebergTarget
from pidts.target.mysql import MySqlTarget
from pidts.target.postgres import PostgresTarget
