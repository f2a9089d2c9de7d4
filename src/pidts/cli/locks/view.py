"""Prints locked rows, and the effect of resolving them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from pidts.apply.locks.resolve import Outlook, Values
from pidts.apply.rows.shown_values import value_text
from pidts.cli.backlog_text import moment, plural

if TYPE_CHECKING:
    from pidts.task.operate.row_locks import LockedRow

_LISTED = 100
_WIDTH = 28


@dataclass(frozen=True, slots=True)
class TaskLockedRows:
    """The locked rows of one task. `direction` is set if the task is a direction between zones."""

    task: str
    direction: str
    rows: Sequence[LockedRow]

    def to_json(self) -> dict[str, Any]:
        """Returns plain values for JSON."""
        tables = [
            {"source": source, "table": table, "locked_rows": len(rows), "oldest": min(one.lock.since for one in rows)}
            for (source, table), rows in self.tables().items()
        ]
        locks = [one.to_json() for one in self.rows]
        return {"task": self.task, "locked_rows": len(self.rows), "tables": tables, "locks": locks}

    def tables(self) -> dict[tuple[str, str], list[LockedRow]]:
        """Returns the rows by their source and table."""
        found: dict[tuple[str, str], list[LockedRow]] = {}
        for one in self.rows:
            found.setdefault((one.source, str(one.lock.table.name)), []).append(one)
        return dict(sorted(found.items()))


def show_lists(tasks: Sequence[TaskLockedRows], *, as_json: bool) -> None:
    """Prints the locked rows of each table; on a terminal only the first ones.

    Directions between zones are listed separately.
    """
    if as_json:
        told = [{**one.to_json(), **({"direction": one.direction} if one.direction else {})} for one in tasks]
        all_rows = {"locked_rows": sum(len(one.rows) for one in tasks), "directions": told}
        print(json.dumps(all_rows if tasks[0].direction else told[0], ensure_ascii=False))
        return
    if not any(one.rows for one in tasks):
        print("No rows are locked.")
        return
    for task in tasks:
        of = f", direction {task.direction}" if task.direction else ""
        for (source, table), mine in task.tables().items():
            print(f"{table} (source {source}{of}): {plural('locked row', len(mine))}")
            for one in mine[:_LISTED]:
                waits = f", of {one.lock.needs[:12]}" if one.lock.needs else ""
                print(f"  {one.id}  {one.lock.shown}  since {moment(one.lock.since)}: {one.lock.why}{waits}")
            if len(mine) > _LISTED:
                print(f"  and {len(mine) - _LISTED:,} more")


def show_outlooks(found: Sequence[tuple[LockedRow, Outlook]], *, as_json: bool) -> None:
    """Prints rows side by side."""
    for row, one in found:
        if as_json:
            print(json.dumps({**row.to_json(), **_sides(one)}, ensure_ascii=False))
            continue
        print(f"{one.lock.table.name}  {one.lock.shown}  ({one.lock.why}; since {moment(one.lock.since)})")
        _print_sides(one)
        for each in one.changes:
            of = f", GTID {each.moment.gtid}" if each.moment.gtid else ""
            at = f", {moment(each.moment.time)}" if each.moment.time else ""
            print(f"  held: {each.op.name} at {each.lsn}{of}{at}")


def show_resolved(
    found: Sequence[Outlook], *, asked: int, done: bool, as_json: bool, places: Sequence[tuple[str, str]] = ()
) -> None:
    """Prints the rows after resolving, or as they would be; rows that wait for them are resolved with them.

    `places` has, for each row, its zone and the zone from which its changes come.
    """
    if as_json:
        rows = [
            {
                "id": one.lock.id[:12],
                "table": str(one.lock.table.name),
                **_sides(one),
                **(dict(zip(("zone", "from"), places[number], strict=True)) if places else {}),
            }
            for number, one in enumerate(found)
        ]
        print(json.dumps({"resolved": done, "rows": rows}, ensure_ascii=False))
        return
    for number, one in enumerate(found[:_LISTED]):
        at = f"  (zone {places[number][0]}, change of zone {places[number][1]})" if places else ""
        print(f"{one.lock.id[:12]}  {one.lock.table.name}  {one.lock.shown}{at}")
        _print_sides(one)
    if done:
        print(
            f"{plural('row', len(found))} resolved." + (" Others were resolved before." if len(found) < asked else "")
        )
    else:
        print(f"{plural('row', len(found))} would be resolved. Do it: --yes")


def _sides(one: Outlook) -> dict[str, Any]:
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
                "gtid": each.moment.gtid or None,
                "time": each.moment.time or None,
            }
            for each in one.changes
        ],
    }


def _print_sides(one: Outlook) -> None:
    print(f"  {'column':20} {'the source said':{_WIDTH}} {'the target has':{_WIDTH}} becomes")
    for name in one.table.arrow.names:
        said, has, becomes = (_shown(_text(row, name)) for row in (one.expected, one.actual, one.outcome))
        print(f"  {name:20.20} {said:{_WIDTH}} {has:{_WIDTH}} {becomes}")


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
