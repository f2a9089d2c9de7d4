"""The configurations of targets. They are picklable, and their `connect` returns a session (`pidts.apply.port`)."""

from pidts.target.hive import HiveTarget
from pidts.target.iceberg import IcebergTarget
from pidts.target.mysql import MySqlTarget
from pidts.target.postgres import PostgresTarget
