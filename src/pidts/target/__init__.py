"""Where changes go: a target is a picklable configuration whose `connect` gives a session that satisfies the port."""

from pidts.target.mysql import MySqlTarget
from pidts.target.postgres import PostgresTarget
from pidts.target.values import ValuesTarget
from pidts.target.values_store import Store

__all__ = ["MySqlTarget", "PostgresTarget", "Store", "ValuesTarget"]
