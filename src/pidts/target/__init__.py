"""Targets that rows are written to: a picklable configuration whose `connect` returns a session of the port."""

from pidts.target.mysql import MySqlTarget
from pidts.target.postgres import PostgresTarget
from pidts.target.values.session import ValuesTarget

__all__ = ["MySqlTarget", "PostgresTarget", "ValuesTarget"]
