"""Formats a change event as text: a line with the table, the operation and the row's key, then lines for its values."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from rich.console import Console
from rich.text import Text

from pidts.cli.events.changes import Change
from pidts.excerpt.json_value import json_value
from pidts.model import ColumnType, DataChange, Op

_COLOURS = {"insert": "green", "update": "yellow", "delete": "red", "ddl": "cyan"}
_LONGEST = 200
_ARROW = " → "


class EventPrinter:
    """Writes events to stdout, in colour if stdout is a terminal."""

    def __init__(self) -> None:
        self._console = Console(file=sys.stdout, soft_wrap=True, highlight=False, markup=False, emoji=False)
        self._colours = self._console.is_terminal

    def __call__(self, change: Change) -> None:
        """Writes one event."""
        for line in lines(change):
            if self._colours:
                self._console.print(line)
            else:
                sys.stdout.write(f"{line.plain}\n")


def lines(change: Change) -> Iterator[Text]:
    """Yields the event as lines of text."""
    event = change.event
    time = datetime.fromtimestamp(event.timestamp, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
    tail = Text(f"  {event.gtid or '-'}  {event.lsn}", "dim")
    if not isinstance(event, DataChange):
        schema = _visible(event.schema or "-")
        yield Text.assemble((time, "dim"), " ", ("ddl   ", _COLOURS["ddl"]), " ", (schema, "bold"), tail)
        for line in event.statement.strip().splitlines():
            yield Text(f"    {_visible(line)}")
        return
    types = {column.name: column.type for column in change.table.columns} if change.table else {}
    op, table = event.op.name.lower(), _visible(str(event.table))
    key = _key(change, event, types)
    yield Text.assemble(
        (time, "dim"), " ", (f"{op:6}", _COLOURS.get(op, "")), " ", (table, "bold"), f" {key}".rstrip(), tail
    )
    if event.op is Op.UPDATE:
        yield from _changed(event.old_data or {}, event.new_data or {}, types)
    else:
        sign, image = ("+", event.new_data) if event.op is Op.INSERT else ("-", event.old_data)
        for name, value in (image or {}).items():
            yield Text.assemble(f"  {sign} ", (_visible(name), "bold"), f" {shown(value, types.get(name))}")
    if missing := sorted(set(types) - set(event.old_data or event.new_data or {}) - set(event.new_data or {})):
        yield Text(f"    not in the log: {', '.join(map(_visible, missing))}", "dim italic")


def shown(value: Any, kind: ColumnType | None = None) -> str:
    """Returns a value as text on one line, shortened if it is long. `kind` is the column's type, if it is known."""
    if value is None:
        return "NULL"
    if isinstance(value, bytes) and not isinstance(json_value(value, kind), list):
        cut = value[: _LONGEST // 2].hex()
        return f"x'{cut}'" if len(value) <= _LONGEST // 2 else f"x'{cut}'… ({len(value)} bytes)"
    plain = json_value(value, kind)
    if not isinstance(plain, str):
        return str(plain)
    if not isinstance(value, str):
        return plain
    text = _visible(plain)
    return f"'{text}'" if len(text) <= _LONGEST else f"'{text[:_LONGEST]}'… ({len(plain)} characters)"


def _key(change: Change, event: DataChange, types: Mapping[str, ColumnType]) -> str:
    image = event.old_data or event.new_data or {}
    names = change.table.identity if change.table else ()
    return " ".join(f"{_visible(name)}={shown(image[name], types.get(name))}" for name in names if name in image)


def _changed(old: Mapping[str, Any], new: Mapping[str, Any], types: Mapping[str, ColumnType]) -> Iterator[Text]:
    for name in types or {**old, **new}:
        if name not in new or (name in old and old[name] == new[name]):
            continue
        before = shown(old[name], types.get(name)) if name in old else "(not in the log)"
        after = shown(new[name], types.get(name))
        yield Text.assemble("    ", (_visible(name), "bold"), " ", (before, "red"), _ARROW, (after, "green"))


def _visible(text: str) -> str:
    """Returns the text with escaped control characters, so that no row can clear the screen of the terminal."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in text)
