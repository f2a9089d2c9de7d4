"""Targets that rows are written to.

Each target is a picklable configuration; its `connect` returns a session (`pidts.apply.port`).
"""

from pidts.target.hive import HiveTarget
from pidts.target.iceberg import IcebergTarget
from pidts.target.mysql import MySqlTarget
from pidts.target.postgres import PostgresTarget

__all__ = ["HiveTarget", "IcebergTarget", "MySqlTarget", "PostgresTarget"]
