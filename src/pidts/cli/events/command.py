"""`pidts events`: reads the log that its arguments name, and prints the events to stdout."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any

from pidts.cli.events.changes import Change, read_events
from pidts.cli.events.outside_structures import ScriptStructures, ServerStructures
from pidts.cli.events.structures import Structures
from pidts.excerpt.blocks import FileInput, LogInput, ServerInput
from pidts.excerpt.files import find_files
from pidts.excerpt.json_value import json_value
from pidts.excerpt.range import POINT_FORMS, LogRange, Point, parse_point
from pidts.excerpt.table_options import asked_tables, is_url, server_of, tables_or_database
from pidts.model import ColumnType, ConfigError, DataChange, SchemaEvent, Table
from pidts.rules import AllowList

_FORMATS = ("json", "text")


def print_events(
    sources: Sequence[str],
    *,
    start: str,
    end: str,
    tables: str,
    follow: bool,
    schema_from: str,
    zone: int,
    form: str,
    limit: int | None,
) -> None:
    """Prints events until the range or the log ends, Ctrl-C is pressed, or the reader of stdout closes it."""
    if form and form not in _FORMATS:
        raise ConfigError("usage", f"--format {form} is not known", todo=f"Known: {', '.join(_FORMATS)}")
    tables = tables_or_database(tables, sources[0])
    wanted, allow = LogRange(_point(start, "--from"), _point(end, "--to")), asked_tables(tables, "--tables")
    log = _log(sources, wanted.start, follow=follow)
    structures = Structures(_outside_structures(log, sources, schema_from, allow), allow, _say)
    show = _printer(form or ("text" if sys.stdout.isatty() else "json"), log.name)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with closing(read_events(log, wanted, allow, structures, zone=zone, say=_say)) as changes:
            count = 0
            for count, change in enumerate(islice(changes, limit), 1):  # noqa: B007 - it is looked at below
                show(change)
                if follow:
                    sys.stdout.flush()
        sys.stdout.flush()
        if not count and tables and limit != 0:
            _say(f"no event of {tables} in this part of the log")
    except KeyboardInterrupt:
        pass
    except BrokenPipeError:
        # `pidts events ... | head` has closed the pipe. Without this, Python would report the error again at its exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _point(text: str, option: str) -> Point | None:
    try:
        return parse_point(text) if text else None
    except ValueError as error:
        raise ConfigError("bad-value", f"{option}: {error}", todo=f"Write {POINT_FORMS}") from None


def _log(sources: Sequence[str], start: Point | None, *, follow: bool) -> LogInput:
    """Returns the log of a server, or of files that names and patterns select."""
    if is_url(sources[0]):
        if len(sources) > 1:
            raise ConfigError("usage", "only one server can be read at a time", todo="Run one command for each server")
        return ServerInput(server_of(sources[0], os.environ), start, follow)
    if follow:
        raise ConfigError(
            "usage",
            "--follow needs a server: for a file it is not known when more is written",
            todo="Name the server that writes the log: pidts events SOURCE_URL --follow",
        )
    if "-" in sources and len(sources) > 1:
        raise ConfigError(
            "usage",
            "standard input cannot be combined with files: cat the files into standard input, in their order",
            todo="As in: cat bin.000001 bin.000002 | pidts events -",
        )
    return FileInput(find_files(sources), _say)


def _outside_structures(
    log: LogInput, sources: Sequence[str], schema_from: str, tables: AllowList
) -> ServerStructures | ScriptStructures | None:
    if not schema_from:
        return ServerStructures(log.server, log, tables) if isinstance(log, ServerInput) else None
    if not is_url(schema_from):
        return ScriptStructures(Path(schema_from))
    if isinstance(log, ServerInput):
        raise ConfigError(
            "usage",
            "--schema-from with a URL is only for log files: a server already has the structures of its tables",
            todo="Leave --schema-from out",
        )
    if "-" in sources:
        todo = "Give a file of CREATE TABLE statements, as the tables were at the beginning: --schema-from FILE.sql"
        raise ConfigError(
            "usage", "standard input is read only once, so later schema changes in it cannot be looked up", todo=todo
        )
    return ServerStructures(server_of(schema_from, os.environ), log, tables)


def _printer(form: str, source: str) -> Callable[[Change], None]:
    if form == "text":
        from pidts.cli.events.text import EventPrinter

        return EventPrinter()

    def show(change: Change) -> None:
        sys.stdout.write(event_line(change.event, source, change.table) + "\n")

    return show


def _say(text: str) -> None:
    print(f"note: {text}", file=sys.stderr, flush=True)


def event_line(event: DataChange | SchemaEvent, source: str, table: Table | None = None) -> str:
    """Returns one event as JSON. `table` is the structure of a row event."""
    head: dict[str, Any] = {
        "lsn": str(event.lsn),
        "prev_lsn": str(event.prev_lsn),
        "zone": event.source_zone_id,
        "source": source,
    }
    tail: dict[str, Any] = {
        "ts": datetime.fromtimestamp(event.timestamp, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "gtid": event.gtid,
    }
    if isinstance(event, SchemaEvent):
        what = {"database": event.schema, "table": None, "op": "ddl"}
        images: dict[str, Any] = {"old": None, "new": None, "statement": event.statement}
    else:
        what = {"database": event.table.schema, "table": event.table.name, "op": event.op.name.lower()}
        types = {column.name: column.type for column in table.columns} if table else {}
        images = {"old": _image(event.old_data, types), "new": _image(event.new_data, types)}
    return json.dumps({**head, **what, **tail, **images, "is_retry": event.is_retry}, ensure_ascii=False)


def _image(image: Mapping[str, Any] | None, types: Mapping[str, ColumnType]) -> dict[str, Any] | None:
    return None if image is None else {name: json_value(value, types.get(name)) for name, value in image.items()}
