"""Names tables for a Hive metastore, which knows lower-case names alone, and says which it cannot have."""

from __future__ import annotations

import re
from collections.abc import Iterable

from pidts.model import Table, TableName

_TABLE = re.compile(r"[A-Za-z0-9_]{1,128}", re.ASCII)
_COLUMN = re.compile(r"[^,:;`\x00-\x1f]{1,128}")


def hive_name(name: TableName) -> tuple[str, str]:
    """Returns the database and the name of the published table."""
    return name.schema.lower(), name.name.lower()


def refusals(tables: Iterable[Table]) -> dict[TableName, str]:
    """Returns the tables that cannot be published, and why; of several with one name, the first one can."""
    found, owners = {}, dict[tuple[str, str], TableName]()
    for table in tables:
        owner = owners.setdefault(hive_name(table.name), table.name)
        same = f"Hive knows lower-case names alone, and {owner} has this one" if owner != table.name else ""
        if problem := same or _refusal(table):
            found[table.name] = problem
    return found


def _refusal(table: Table) -> str:
    for word in (table.name.schema, table.name.name):
        if not _TABLE.fullmatch(word):
            return f"Hive takes no name {word!r}: it has letters, digits and _, 128 at most"
    names = [column.name for column in table.columns]
    if bad := [name for name in names if not _COLUMN.fullmatch(name)]:
        return f"Hive takes no column {bad[0]!r}: its name has no , : ; and `, and 128 characters at most"
    if len({name.lower() for name in names}) < len(names):
        return "Hive knows lower-case names alone, and two columns have the same one"
    return ""
