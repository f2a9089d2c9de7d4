"""Defines PiDTS's own tables, and puts them into another schema than `pidts_meta` if the task file names one.

All statements contain the name `pidts_meta`, and `in_schema` replaces this name. A name in the quotes of identifiers is
not replaced, since it is the name of a user's object.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

Run = Callable[[str, Sequence[Any]], tuple[list[tuple[Any, ...]], int]]
"""Executes a statement with `%s` placeholders; returns the rows and the number of rows matched."""
QueueQuery = Callable[[str, Sequence[Any]], Callable[[], Sequence[tuple[Any, ...]]]]
"""Queues a query for the round trip of the next statement. The returned function returns the rows."""
Insert = Callable[[str, Mapping[str, Sequence[Any]]], None]
"""Inserts rows, given column by column, into the meta table of this name. A later statement may raise the error."""

USUAL = "pidts_meta"

META_EXISTS = "SELECT 1 FROM information_schema.tables WHERE table_schema = 'pidts_meta' AND table_name = 'checkpoint'"
CUTOVER_EXISTS = "SELECT 1 FROM information_schema.tables WHERE table_schema = 'pidts_meta' AND table_name = 'cutover'"
SWITCH_EXISTS = CUTOVER_EXISTS.replace("'cutover'", "'switch_structure'")

_TASK = "task {name}, source {name}"
_TABLE = "table_schema {object}, table_name {object}"


@dataclass(frozen=True, slots=True)
class MetaTable:
    """A meta table of all servers: its comment and its columns. Each server has its own names for the types."""

    about: str
    key: str
    values: str

    def columns(self, types: Mapping[str, str]) -> str:
        """Returns the definitions of the columns and of the primary key."""
        names = ", ".join(column.split()[0] for column in self.key.split(", "))
        parts = filter(None, (self.key, self.values, f"PRIMARY KEY ({names})"))
        return ", ".join(parts).format_map(types)


META_TABLES = {
    "checkpoint": MetaTable(
        "The place up to which each worker has applied the log; written in the transaction of the rows",
        f"{_TASK}, worker {{int}}",
        "batch {long}, lsn {lsn}, gtid {text}, log_position {text}, epoch {epoch}, copy_progress {text}, "
        "updated_at {clock}",
    ),
    "structure": MetaTable(
        "The structure of each table since its last schema change",
        f"{_TASK}, {_TABLE}",
        "lsn {lsn}, structure {text}",
    ),
    "ddl_journal": MetaTable(
        "Schema changes begun and done on this target",
        f"{_TASK}, lsn {{lsn}}",
        "statement {text}, rendered {text}, step {int}, before_change {text}, state {code}, epoch {long}, "
        "updated_at {clock}",
    ),
    "note": MetaTable(
        "How tables without a key were loaded; without a table name: the rules, and the identity of the source",
        f"{_TASK}, {_TABLE}",
        "told {text}",
    ),
    "halt": MetaTable(
        "Tables that wait for an operator, and why", f"{_TASK}, place {{name}}", "about {text}, updated_at {clock}"
    ),
    "ddl_order": MetaTable(
        "Ddl commands: the decisions of operators about schema changes in the log",
        f"{_TASK}, lsn {{lsn}}",
        "kind {code}, statements {text}, number {int}, taken {int}, updated_at {clock}",
    ),
    "shadow": MetaTable(
        "Online schema changes in progress: the statements that have altered each shadow table",
        f"{_TASK}, {_TABLE}",
        "about {text}",
    ),
    "tombstone": MetaTable(
        "Rows deleted under a version column, so that an older event does not bring them back",
        f"{_TABLE}, row_key {{name}}",
        "version_value {version}, source {name}, lsn {lsn}, buried_at {seconds}",
    ),
    "moved": MetaTable(
        "Keys that shards have got while another shard of the same target table waits",
        f"{_TASK}, {_TABLE}, row_key {{row_key}}, member_schema {{object}}, member_name {{object}}",
        "lsn {lsn}",
    ),
    "reread": MetaTable(
        "Keys that a copy reads again, since the log does not have their whole rows",
        f"{_TASK}, {_TABLE}, lsn {{lsn}}",
        "row_keys {text}",
    ),
    "cutover": MetaTable(
        "Progress of cutovers to this target, and what they have changed; NAME/undone: the last switch that was undone",
        "task {name}",
        "about {text}",
    ),
    "switch_structure": MetaTable(
        "Structures that this server's tables had when a cutover switched to it; the task of the way back begins "
        "with them",
        f"task {{name}}, {_TABLE}",
        "structure {text}",
    ),
    "range_owner": MetaTable(
        "The zones that own ranges of rows whose owner has changed since the task files were written",
        "range_key {row_key}",
        "about {text}",
    ),
    "row_lock": MetaTable(
        "Locked rows: they differ from the source, and are set aside until an operator decides",
        f"{_TASK}, {_TABLE}, row_key {{row_key}}",
        "lsn {lsn}, about {text}",
    ),
    "held_change": MetaTable(
        "Changes of rows that are set aside, in the order of the log",
        f"{_TASK}, {_TABLE}, row_key {{row_key}}, lsn {{lsn}}",
        "changes {text}",
    ),
    "locked_form": MetaTable(
        "Keys of rows that are set aside, as digests of the form in which the target compares them",
        f"{_TASK}, {_TABLE}, form {{row_key}}, row_key {{row_key}}",
        "",
    ),
    "locked_structure": MetaTable(
        "Structures that tables had when rows of them were set aside, each with the first lock that names it",
        f"{_TASK}, {_TABLE}, digest {{row_key}}, row_key {{row_key}}",
        "structure {text}",
    ),
    "early_removal": MetaTable(
        "Keys at which a task had to remove a row and found none: another task may still bring the row",
        f"{_TABLE}, row_key {{row_key}}, task {{name}}, source {{name}}",
        "removed_at {seconds}, noted_at {seconds}",
    ),
    "left_out": MetaTable(
        "Changes that a task has left out, since two zones have made them; the rows remain only in the log",
        f"{_TASK}, {_TABLE}, row_key {{row_key}}, removed {{row_key}}",
        "key_values {text}, made_at {seconds}",
    ),
    "safe_range": MetaTable(
        "Changes up to here may have been applied before the first start of the task", _TASK, "lsn {lsn}"
    ),
}
EPOCH = "Counts take-overs: a run with a lower number is refused"
MARK = "Changed in each transaction with rows of a zone, so that the log names the zone"
SECONDS = "Seconds since 1970"

_ROWS = 200
_NAMED = re.compile(r"(?<![\w`\"$])(?:'pidts_meta'|pidts_meta)(?![\w`\"$])")


def inserts(run: Run) -> Insert:
    """Returns a function that inserts rows by statements with many rows each."""

    def insert(table: str, columns: Mapping[str, Sequence[Any]]) -> None:
        rows = list(zip(*columns.values(), strict=True))
        head = f"INSERT INTO pidts_meta.{table} ({', '.join(columns)}) VALUES "
        places = f"({', '.join(['%s'] * len(columns))})"
        for first in range(0, len(rows), _ROWS):
            part = rows[first : first + _ROWS]
            run(head + ", ".join([places] * len(part)), [value for row in part for value in row])

    return insert


def in_schema(schema: str, quote: str) -> Callable[[str], str]:
    """Returns a function that replaces `pidts_meta` in statements; `quote` is the server's quote for names."""
    if schema == USUAL:
        return lambda sql: sql

    @lru_cache(maxsize=512)
    def renamed(sql: str) -> str:
        return _NAMED.sub(lambda found: f"'{schema}'" if found[0].startswith("'") else f"{quote}{schema}{quote}", sql)

    return renamed


def seconds(moment: datetime) -> float:
    """Converts a time to seconds since 1970. A time without a time zone is in UTC, as in all sessions."""
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
