"""Stores the place of a comparison, so that the next process continues from there.

The place is saved only when no row is doubtful: every row before it is either equal or among the differences.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from pidts.durable_folder import make_folder, replace_file
from pidts.model import TableName
from pidts.verify.compared_servers import Key
from pidts.verify.report import DifferenceKind, Report, RowDifference, TableReport

_FORM = 3


@dataclass(frozen=True, slots=True)
class ComparisonPlace:
    """The place in the table that is being compared."""

    report: TableReport
    structure: str
    """The table and its members when its comparison began, as text. If the text changes, the table is compared anew."""
    after: Key | None = None
    walking: bool = False
    """Whether all rows of the source are compared, and the target's keys are now read."""
    walk_all: bool = False
    """Whether the target's keys are read from the first key on, since the target may order keys differently."""


@dataclass(frozen=True, slots=True)
class ComparisonState:
    """The results of a comparison so far."""

    asked: str = ""
    """A text that says what is compared, and by which rules."""
    done: tuple[TableReport, ...] = ()
    examples: tuple[RowDifference, ...] = ()
    place: ComparisonPlace | None = None

    @property
    def begun(self) -> bool:
        """Returns whether anything has been compared yet."""
        return bool(self.done) or self.place is not None

    @property
    def so_far(self) -> Report:
        """Returns the report of a comparison that is stopped now."""
        within = () if self.place is None else (replace(self.place.report, unfinished=True),)
        return Report((*self.done, *within), self.examples, stopped=True)

    def at(self, place: ComparisonPlace, examples: Sequence[RowDifference]) -> ComparisonState:
        """Returns this state with a later place, and with the differences that are listed so far."""
        return replace(self, place=place, examples=tuple(examples))

    def finished(self, report: TableReport, examples: Sequence[RowDifference]) -> ComparisonState:
        """Returns this state with one more finished table, and with the differences that are listed so far."""
        return replace(self, done=(*self.done, report), examples=tuple(examples), place=None)


@dataclass(frozen=True, slots=True)
class MemoryFile:
    """The file with the state of a comparison, which is replaced as a whole."""

    path: Path

    def load(self, asked: str) -> ComparisonState:
        """Reads the state of the same comparison; returns an empty state if there is none or it cannot be read."""
        with suppress(OSError, ValueError, KeyError, TypeError):
            found = _from_json(json.loads(self.path.read_text("utf-8")))
            if found.asked == asked:
                return found
        return ComparisonState(asked)

    def save(self, memory: ComparisonState) -> None:
        """Saves the state. A crash leaves either the old file or the new file."""
        make_folder(self.path.parent, 0o700)  # this may create the task's relay, which only the task's user may read
        replace_file(self.path, json.dumps(_to_json(memory), ensure_ascii=False), durable=False)

    def forget(self) -> None:
        """Deletes the file, so that the next comparison begins anew."""
        self.path.unlink(missing_ok=True)


def _to_json(memory: ComparisonState) -> dict[str, Any]:
    place = memory.place
    return {
        "form": _FORM,
        "asked": memory.asked,
        "done": [_report_json(report) for report in memory.done],
        "examples": [
            [one.table.schema, one.table.name, values["kind"], values["key"], one.columns, one.members, one.shard]
            for one, values in ((one, one.to_json()) for one in memory.examples)
        ],
        "place": None if place is None else {**asdict(place), "report": _report_json(place.report)},
    }


def _from_json(data: dict[str, Any]) -> ComparisonState:
    if data["form"] != _FORM:
        raise ValueError(data["form"])
    place = data["place"]
    return ComparisonState(
        data["asked"],
        tuple(_report(item) for item in data["done"]),
        tuple(
            RowDifference(TableName(schema, name), DifferenceKind(kind), key, tuple(columns), tuple(members), shard)
            for schema, name, kind, key, columns, members, shard in data["examples"]
        ),
        None if place is None else ComparisonPlace(**{**place, "report": _report(place["report"])}),
    )


def _report_json(report: TableReport) -> dict[str, Any]:
    return {**asdict(report), "table": [report.table.schema, report.table.name]}


def _report(data: dict[str, Any]) -> TableReport:
    lists = {name: tuple(data[name]) for name in ("waits", "members")}
    return TableReport(**{**data, **lists, "table": TableName(*data["table"])})
