"""Gives tables names for a Hive metastore, which has only lower-case names, and finds tables that it cannot have."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from pidts.model import Table, TableName

_TABLE = re.compile(r"[A-Za-z0-9_]{1,128}", re.ASCII)
_COLUMN = re.compile(r"[^,:;`\x00-\x1f]{1,128}")

CHANGE_COLUMNS = (
    ("pidts_op", "string"),
    ("pidts_lsn", "string"),
    ("pidts_ts", "timestamp"),
    ("pidts_gtid", "string"),
    ("pidts_source", "string"),
    ("pidts_table", "string"),
)
"""The first columns of each change table, with their types; the table's own columns follow."""
DAY = "pidts_day"
"""The column by which change tables are partitioned: the day of the change, in UTC."""


def hive_name(name: TableName) -> tuple[str, str]:
    """Returns the database and the name of the published table."""
    return name.schema.lower(), name.name.lower()


def change_table_name(name: TableName) -> tuple[str, str]:
    """Returns the database and the name of a table's change table."""
    database, own = hive_name(name)
    return database, f"{own}_changes"


def change_refusal(table: TableName, columns: Sequence[str]) -> str:
    """Returns the reason why a table cannot have a change table; empty if it can."""
    database, name = change_table_name(table)
    if any(not _TABLE.fullmatch(word) for word in (database, name)):
        return f"Hive does not allow the name {database}.{name}: a name consists of at most 128 letters, digits and _"
    if own := [each.lower() for each in columns if each.lower() in {DAY, *dict(CHANGE_COLUMNS)}]:
        return f"each change table has a column {own[0]} that PiDTS fills"
    return _column_refusal(columns)


def change_refusals(tables: Sequence[Table]) -> dict[TableName, str]:
    """Returns the tables that cannot have a change table, with the reasons."""
    names = {hive_name(table.name) for table in tables}
    found = {}
    for table in tables:
        problem = change_refusal(table.name, [column.name for column in table.columns])
        if change_table_name(table.name) in names:
            problem = f"{'.'.join(change_table_name(table.name))} is a table of the task"
        if problem:
            found[table.name] = problem
    return found


def refusals(tables: Iterable[Table]) -> dict[TableName, str]:
    """Returns tables that cannot be published, with reasons.

    Of several tables with the same name in lower case, only the first can be published.
    """
    found, owners = {}, dict[tuple[str, str], TableName]()
    for table in tables:
        owner = owners.setdefault(hive_name(table.name), table.name)
        same = (
            f"Hive has only lower-case names, and in lower case table {owner} has the same name"
            if owner != table.name
            else ""
        )
        if problem := same or _refusal(table):
            found[table.name] = problem
    return found


def _refusal(table: Table) -> str:
    for word in (table.name.schema, table.name.name):
        if not _TABLE.fullmatch(word):
            return f"Hive does not allow the name {word!r}: a name consists of at most 128 letters, digits and _"
    return _column_refusal([column.name for column in table.columns])


def _column_refusal(names: Sequence[str]) -> str:
    if bad := [name for name in names if not _COLUMN.fullmatch(name)]:
        return f"Hive does not allow the column name {bad[0]!r}: a name has at most 128 characters, and no , : ; or `"
    if len({name.lower() for name in names}) < len(names):
        return "Hive has only lower-case names, and in lower case two columns have the same name"
    return ""
