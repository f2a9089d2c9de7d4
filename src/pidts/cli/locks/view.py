"""Prints locked rows, and the effect of resolving them."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from shutil import copyfileobj
from tempfile import SpooledTemporaryFile
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from pidts.apply.locks.resolve import ResolvePreview, Values
from pidts.apply.rows.shown_values import value_text
from pidts.cli.backlog_text import SHOWN, moment
from pidts.model.errors import in_one_line, plural

if TYPE_CHECKING:
    from pidts.task.operate.row_locks import ChosenRows, LockedRow, TaskLocks

_LISTED = 100
_WIDTH = 28
_IN_MEMORY = 1 << 20


@dataclass(frozen=True, slots=True)
class TaskLockedRows:
    """The locked rows of one task. `direction` is set if the task is a direction between zones."""

    task: str
    direction: str
    locks: TaskLocks
    chosen: Sequence[ChosenRows]

    @property
    def count(self) -> int:
        """Returns the number of rows."""
        return sum(len(one.ids) for one in self.chosen)

    def print_json(self, **more: object) -> None:
        """Prints a JSON object without an end of line. Prints row by row, since there may be a million rows."""
        tables = [
            {"source": one.source, "table": str(one.table), "locked_rows": len(one.ids), "oldest": first.lock.since}
            for one in self.chosen
            for first in self.locks.rows(one, 1)
        ]
        head = {"task": self.task, "locked_rows": self.count, "tables": tables, **more}
        print(_json(head)[:-1], end=', "locks": ')
        _print_list(row.to_json() for one in self.chosen for row in self.locks.rows(one))
        print("}", end="")


def show_lists(tasks: Sequence[TaskLockedRows], *, as_json: bool) -> None:
    """Prints the locked rows of each table, as text only the first ones. Directions between zones are separate."""
    if as_json and not tasks[0].direction:
        tasks[0].print_json()
        print()
    elif as_json:
        print(f'{{"locked_rows": {sum(one.count for one in tasks)}, "directions": [', end="")
        for number, one in enumerate(tasks):
            print(", " if number else "", end="")
            one.print_json(direction=one.direction)
        print("]}")
    elif not any(one.count for one in tasks):
        print("No rows are locked.")
    else:
        for task in tasks:
            _print_list_of(task)


def _print_list_of(task: TaskLockedRows) -> None:
    of = f", direction {task.direction}" if task.direction else ""
    for chosen in task.chosen:
        print(f"{in_one_line(str(chosen.table))} (source {chosen.source}{of}): {plural('locked row', len(chosen.ids))}")
        for one in task.locks.rows(chosen, _LISTED):
            waits = f" (locked row {one.needs})" if one.needs else ""
            print(f"  {one.id}  {one.lock.shown}  since {moment(one.lock.since)}: {one.lock.why}{waits}")
        if len(chosen.ids) > _LISTED:
            print(f"  and {len(chosen.ids) - _LISTED:,} more")


def _print_list(values: Iterable[object]) -> None:
    print("[", end="")
    for number, one in enumerate(values):
        print((", " if number else "") + _json(one), end="")
    print("]", end="")


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def show_outlooks(found: Sequence[tuple[LockedRow, ResolvePreview]], *, as_json: bool) -> None:
    """Prints three values of each column: as the source had it, as the target has it, and as it will be."""
    for row, one in found:
        if as_json:
            print(json.dumps({**row.to_json(), **_sides(one)}, ensure_ascii=False))
            continue
        print(f"{one.lock.table.name}  {one.lock.shown}  ({one.lock.why}; since {moment(one.lock.since)})")
        print(*_lines(one), *_held_lines(one, len(one.changes)), sep="\n")


class Resolutions:
    """The text about the rows that a command resolves, in a file, since it may describe a million rows.

    The text is printed when all rows are resolved. So the command resolves all rows even if the reader of stdout ends.
    """

    def __init__(
        self, found: Iterable[ResolvePreview], *, as_json: bool, places: Sequence[tuple[str, str]] = ()
    ) -> None:
        """Takes all rows. `places` has each row's zone, and the zone from which its held changes come."""
        self.count, self.winners, self._as_json = 0, set[str](), as_json
        self._text = SpooledTemporaryFile(_IN_MEMORY, "w+", encoding="utf-8")  # noqa: SIM115 - lives as long as this
        try:
            for number, one in enumerate(found):
                self._take(number, one, places[number] if places else None)
        except BaseException:
            self._text.close()
            raise

    def _take(self, number: int, one: ResolvePreview, place: tuple[str, str] | None) -> None:
        self.count += 1
        self.winners |= {one.lock.winner} - {""}
        if self._as_json:
            zones = dict(zip(("zone", "from"), place, strict=True)) if place else {}
            row = {"id": one.lock.id[:12], "table": str(one.lock.table.name), **_sides(one), **zones}
            self._text.write((", " if number else "") + _json(row))
        elif number < _LISTED:
            at = f"  (zone {place[0]}, change of zone {place[1]})" if place else ""
            print(f"{one.lock.id[:12]}  {one.lock.table.name}  {one.lock.shown}{at}", file=self._text)
            print(*_lines(one), *_held_lines(one, SHOWN), sep="\n", file=self._text)

    def show(self, *, asked: int, done: bool, every: bool) -> None:
        """Prints the rows as they are after resolving, including rows that waited for the chosen rows.

        `every`: whether the command chose all rows of a table, which it resolves only with `--yes`.
        """
        if self._as_json:
            print(f'{{"resolved": {_json(done)}, "rows": [', end="")
        with self._text as text:
            text.seek(0)
            copyfileobj(text, sys.stdout)
        if self._as_json:
            print("]}")
        elif done:
            others = " The others had already been resolved." if self.count < asked else ""
            print(f"{plural('row', self.count)} resolved.{others}")
        else:
            how = "with --yes" if every else "without --dry-run"
            print(f"{plural('row', self.count)} would be resolved. To resolve, repeat the command {how}.")


def _sides(one: ResolvePreview) -> dict[str, Any]:
    return {
        "columns": [
            {"name": name, "source": _text(one.expected, name), "target": _text(one.actual, name), "outcome": after}
            for name in one.table.arrow.names
            for after in [_text(one.outcome, name)]
        ],
        "changes": [
            {
                "lsn": str(each.lsn),
                "op": each.op.name.lower(),
                "gtid": each.transaction.gtid or None,
                "time": each.transaction.time or None,
            }
            for each in one.changes
        ],
    }


def _lines(one: ResolvePreview) -> Iterator[str]:
    yield f"  {'column':20} {'the source had':{_WIDTH}} {'the target has':{_WIDTH}} becomes"
    for name in one.table.arrow.names:
        said, has, becomes = (_shown(_text(row, name)) for row in (one.expected, one.actual, one.outcome))
        yield f"  {name:20.20} {said:{_WIDTH}} {has:{_WIDTH}} {becomes}"


def _held_lines(one: ResolvePreview, most: int) -> Iterator[str]:
    """Yields the first held changes, one per line, and how many more there are."""
    for each in one.changes[:most]:
        of = f", GTID {each.transaction.gtid}" if each.transaction.gtid else ""
        at = f", {moment(each.transaction.time)}" if each.transaction.time else ""
        yield f"  held: {each.op.name} at {each.lsn}{of}{at}"
    if (more := len(one.changes) - most) > 0:
        yield f"  held: {plural('more change', more)}"


def _text(row: Values | None, name: str) -> str | None:
    """Returns a value as text; None if there is no row. A NULL is the text NULL."""
    if row is None:
        return None
    value = row.get(name)
    if value is None:
        return "(not in the log)"
    return value_text(pa.repeat(value, 1)) if value.is_valid else "NULL"


def _shown(text: str | None) -> str:
    return f"{'(no row)' if text is None else text:.{_WIDTH}}"
