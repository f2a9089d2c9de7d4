"""Complete commands for the advice of errors: an operator can paste them into a shell.

The code that finds a fault often knows neither the task file nor the place of the schema change. So it writes the words
TASK, SOURCE, LSN and TABLE. Code that knows the values replaces the words: a halt knows its source, Lsn and tables, and
the command line knows the task file.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection

from pidts.model.table import TableName

LIST = "pidts ddl list TASK"
SKIP = "pidts ddl skip TASK --source SOURCE --at LSN --yes"
REPLACE = "pidts ddl replace TASK SQL --source SOURCE --at LSN"
"""Without `--yes`, this command only shows its effect: an operator has to write the SQL, and should see the effect."""
RETRY = "pidts ddl retry TASK --source SOURCE --at LSN --yes"
UNLOCK = "pidts ddl unlock TASK --source SOURCE --at LSN --yes"
RESYNC = "pidts run TASK --resync TABLE"
"""For a table that has halted at a row: the task copies the table again, and skips the table's log up to this copy."""
RESYNC_ALL = "pidts run TASK --resync"
"""For a task whose log is lost: the task continues from a new position."""
FILL_ZONE = "pidts zones return FILE ZONE"
"""For a task between zones, whose tables cannot be copied again: copies all tables of the zone from another zone."""
MAKE_EQUAL = f"make the target equal to the source: {RESYNC_ALL}"
"""The advice if records on the target are damaged."""
REJOIN = (
    "leave the table out (ignore-tables in block-allow-list) and start the task. Then stop it, give the target's table "
    f"the columns of the source's table, include the table again, and copy it: {RESYNC}"
)
"""The advice if the log does not fit a table's recorded structure. `--resync` alone would read the same log again."""
_COPY_AGAIN = f"set task-mode: all in the task file, and copy its tables again: {RESYNC_ALL}"
NO_CHECKPOINT = (
    "Another run has begun the task anew, or somebody has deleted the checkpoint. Run: pidts status TASK. If the task "
    f"has not begun on this target, {_COPY_AGAIN}"
)
START_ANEW = "start the task anew (docs/reference/errors.md#start-anew)"
"""The advice if a task halts at an event that concerns no single table."""
COMPARE_TODO = "Compare the target's table with the source's and correct what differs"
"""The advice to the operator if the target's server does not name an object that refuses a row."""
OTHER_ROW_TODO = (
    "If other programs have written to the target, or the source has changed rows outside its log (by a foreign key "
    f"with CASCADE or SET NULL, or with sql_log_bin = 0), copy the table again: {RESYNC}"
)
"""The advice if another row of the target already has the value of a unique key, and the source has this key, too."""

_AT = "--source SOURCE --at LSN"
_OF_TASK = re.compile(r"(\bpidts(?: [a-z-]+)+ )TASK\b")
_OF_SOURCE = re.compile(r"(\bpidts ddl [a-z]+ [^;`]*?--source )SOURCE\b")
_AT_PLACE = re.compile(r"(\bpidts ddl [a-z]+ [^;`]*?--at )LSN\b")
_RESYNC_OF_TABLE = re.compile(r"(\bpidts run [^;`]*?--resync )TABLE\b")
_DDL_OF_TABLE = re.compile(r"(\bpidts ddl [a-z]+ [^;`]*?--table )TABLE\b")
_OF_SERVICE = re.compile(r"\bpidts (?:start|pause|resume|stop|list)\b(?! --(?:state|service)\b)")
_SERVES = re.compile(r"\bpidts serve\b(?! --)")
_MOST_TABLES = 5
"""The most tables that a command names."""


def with_task(text: str, path: str) -> str:
    """Returns the text with the path of the task file in its commands."""
    return _OF_TASK.sub(lambda found: f"{found[1]}{shlex.quote(path)}", text)


def with_service(text: str, options: str, serve_options: str = "") -> str:
    """Adds `options`, which name the service, to each command in the text that a service carries out.

    `serve_options` are added to `pidts serve`, the command that starts the service.
    """
    text = _OF_SERVICE.sub(lambda found: f"{found[0]} {options}", text) if options else text
    return _SERVES.sub(lambda found: f"{found[0]} {serve_options}", text) if serve_options else text


def with_place(text: str, source: str, place: str) -> str:
    """Returns the text. In its commands, a schema change's source and Lsn replace SOURCE and LSN, if they are known.

    `place` is an Lsn, or a log file and a byte.
    """
    if source:
        text = _OF_SOURCE.sub(lambda found: f"{found[1]}{shlex.quote(source)}", text)
    return _AT_PLACE.sub(lambda found: f"{found[1]}{shlex.quote(place)}", text) if place else text


def with_tables(text: str, source: str, tables: Collection[TableName | str]) -> str:
    """Returns the text with these tables of the source in its commands, if there are 1 to `_MOST_TABLES`."""
    if not 0 < len(tables) <= _MOST_TABLES:
        return text
    again = shlex.quote(",".join(f"{source}:{name}" if source else str(name) for name in tables))
    first = shlex.quote(str(next(iter(tables))))
    text = _RESYNC_OF_TABLE.sub(lambda found: f"{found[1]}{again}", text)
    return _DDL_OF_TABLE.sub(lambda found: f"{found[1]}{first}", text)


def for_zone(text: str, zone: str) -> str:
    """Returns the advice for a target that is a zone: to fill the whole zone, in place of copying tables again.

    `zone` is the zone's name; empty if it is not known.
    """
    fill = f"{fill_zone(zone)}, which copies all tables of the zone (docs/operate/zones.md)"
    return text.replace(_COPY_AGAIN, f"fill the zone: {fill}").replace(RESYNC, fill).replace(RESYNC_ALL, fill)


def fill_zone(zone: str) -> str:
    """Returns the command that fills a zone; `zone` is empty if the zone's name is not known."""
    return FILL_ZONE.replace("ZONE", zone or "ZONE")


CHECKPOINT = "pidts_meta.checkpoint"
"""The table with the checkpoints of a task that is no channel."""


def for_channel(text: str, anew: str, checkpoint: str) -> str:
    """Returns the advice for a channel: `anew` says how to begin it anew, `checkpoint` is its checkpoint's table."""
    return text.replace(MAKE_EQUAL, anew).replace(_COPY_AGAIN, anew).replace(CHECKPOINT, checkpoint)


def of_table(command: str, source: str, table: TableName) -> str:
    """Returns the command for the change that blocks a table of the source, wherever it is in the log."""
    return command.replace(_AT, f"--source {shlex.quote(source)} --table {shlex.quote(str(table))}")
