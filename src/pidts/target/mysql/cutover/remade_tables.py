"""Gives a table of MySQL or MariaDB the FULLTEXT and SPATIAL keys and the partitions that it has on the source.

While a task runs, the table has a plain key in place of a FULLTEXT key, no SPATIAL key, and no partitions.

Crash points: one statement makes a key, and one statement makes all partitions. The catalog shows whether a statement
is still needed. If the server ends in the middle of a statement, the table is unchanged.

No statement of this module adds or removes a row. A server refuses partitions into which a row does not fit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pidts.model import PidtsError, TableName, Transient
from pidts.schema.partitions import is_same, names_place, partition_clause
from pidts.target.mysql.dialect import identifier, qualified
from pidts.target.mysql.session import MySqlSession


@dataclass(frozen=True, slots=True)
class SpecialKey:
    """A FULLTEXT or SPATIAL key of the source."""

    table: TableName
    name: str
    kind: str
    """`FULLTEXT` or `SPATIAL`."""
    columns: tuple[str, ...]
    line: str
    """The key as the source shows it."""

    def __str__(self) -> str:
        return f"{self.kind} key {self.name} of {self.table} ({', '.join(self.columns)})"


@dataclass(frozen=True, slots=True)
class Partitions:
    """The partitions of a table of the source."""

    table: TableName
    clause: str
    """`PARTITION BY …`."""

    def __str__(self) -> str:
        return f"partitions of {self.table}"


RemadeTable = SpecialKey | Partitions


def is_needed(session: MySqlSession, wanted: RemadeTable) -> bool:
    """Whether the target's table lacks the key or the partitions."""
    if isinstance(wanted, Partitions):
        return not is_same(_clause_there(session, wanted.table), wanted.clause)
    there = [(str(kind).upper(), str(column).lower()) for kind, column, _ in _key_there(session, wanted)]
    return there != [(wanted.kind, column.lower()) for column in wanted.columns]


def can_be(session: MySqlSession, wanted: RemadeTable) -> bool:
    """Whether the target's table may get the key or the partitions.

    It may not if the table already has partitions, or a unique key with the wanted key's name: existing partitions and
    keys are kept. TiDB gets no FULLTEXT or SPATIAL keys. The table gets no partitions if the source's clause names a
    directory or tablespace, which exists only on the source's machine.
    """
    if isinstance(wanted, SpecialKey):
        return not session.server.tidb and all(int(non_unique) for _, _, non_unique in _key_there(session, wanted))
    return not names_place(wanted.clause) and not _clause_there(session, wanted.table)


def statement(session: MySqlSession, wanted: RemadeTable) -> str:
    """Returns the statement that adds the key or the partitions."""
    table = qualified(wanted.table)
    if isinstance(wanted, Partitions):
        return f"ALTER TABLE {table} {wanted.clause}"
    drop = f"DROP KEY {identifier(wanted.name)}, " if _key_there(session, wanted) else ""
    return f"ALTER TABLE {table} {drop}ADD {wanted.line}"


def make(session: MySqlSession, wanted: RemadeTable) -> str:
    """Adds the key or the partitions. Returns the reason why the table does not have them; empty if it has them."""
    if not is_needed(session, wanted):
        return ""
    sql = statement(session, wanted)
    try:
        session.execute(sql)
    except Transient:
        raise
    except PidtsError as error:
        # The server may have completed the statement of a killed command before this statement began.
        return f"{error.what}; the statement is: {sql}" if is_needed(session, wanted) else ""
    if is_needed(session, wanted):
        return f"the target accepts the statement, but ignores it: {sql}"
    return ""


def _key_there(session: MySqlSession, wanted: SpecialKey) -> Sequence[tuple[Any, ...]]:
    """Returns kind, column, and whether values may repeat, for each column of the target's key with this name."""
    return session.rows(
        "SELECT index_type, column_name, non_unique FROM information_schema.statistics "
        "WHERE table_schema = %s AND table_name = %s AND index_name = %s ORDER BY seq_in_index",
        (wanted.table.schema, wanted.table.name, wanted.name),
    )


def _clause_there(session: MySqlSession, table: TableName) -> str:
    return partition_clause(session.shown(f"SHOW CREATE TABLE {qualified(table)}")[0][1])
