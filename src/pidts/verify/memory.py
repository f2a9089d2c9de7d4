"""How far a comparison has come, so that the next process goes on from there.

It is told only when nothing is open: every row before the place it names is either equal or among its differences.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from pidts.model import TableName
from pidts.verify.report import Difference, Finding, TableReport
from pidts.verify.side import Key

_FORM = 3


@dataclass(frozen=True, slots=True)
class Place:
    """In the table that is being compared."""

    report: TableReport
    structure: str
    """The table and its members as they were when its comparison began; others are compared anew."""
    after: Key | None = None
    walking: bool = False
    """The source's rows are done, the target's keys are gone through."""
    walk_all: bool = False
    """From the first key on, since the target may order them differently."""


@dataclass(frozen=True, slots=True)
class Memory:
    """Everything that a comparison has to know of its past."""

    asked: str = ""
    """What was to be compared."""
    done: tuple[TableReport, ...] = ()
    examples: tuple[Difference, ...] = ()
    place: Place | None = None

    @property
    def begun(self) -> bool:
        """Whether anything was compared."""
        return bool(self.done) or self.place is not None

    def at(self, place: Place, examples: Sequence[Difference]) -> Memory:
        """Further on."""
        return replace(self, place=place, examples=tuple(examples))

    def finished(self, report: TableReport, examples: Sequence[Difference]) -> Memory:
        """A table more."""
        return replace(self, done=(*self.done, report), examples=tuple(examples), place=None)


@dataclass(frozen=True, slots=True)
class MemoryFile:
    """One file, replaced as a whole."""

    path: Path

    def load(self, asked: str) -> Memory:
        """What is there about the same question; nothing where there is none, or none that can be read."""
        with suppress(OSError, ValueError, KeyError, TypeError):
            found = _from_json(json.loads(self.path.read_text("utf-8")))
            if found.asked == asked:
                return found
        return Memory(asked)

    def save(self, memory: Memory) -> None:
        """A crash leaves the file as it was, or as it is to be."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        fresh = self.path.with_suffix(".new")
        fresh.write_text(json.dumps(_to_json(memory), ensure_ascii=False), "utf-8")
        fresh.replace(self.path)

    def forget(self) -> None:
        """The next comparison begins anew."""
        self.path.unlink(missing_ok=True)


def _to_json(memory: Memory) -> dict[str, Any]:
    place = memory.place
    return {
        "form": _FORM,
        "asked": memory.asked,
        "done": [_report_json(report) for report in memory.done],
        "examples": [
            [one.table.schema, one.table.name, told["kind"], told["key"], one.columns, one.members, one.shard]
            for one, told in ((one, one.to_json()) for one in memory.examples)
        ],
        "place": None if place is None else {**asdict(place), "report": _report_json(place.report)},
    }


def _from_json(data: dict[str, Any]) -> Memory:
    if data["form"] != _FORM:
        raise ValueError(data["form"])
    place = data["place"]
    return Memory(
        data["asked"],
        tuple(_report(item) for item in data["done"]),
        tuple(
            Difference(TableName(schema, name), Finding(kind), key, tuple(columns), tuple(members), shard)
            for schema, name, kind, key, columns, members, shard in data["examples"]
        ),
        None if place is None else Place(**{**place, "report": _report(place["report"])}),
    )


def _report_json(report: TableReport) -> dict[str, Any]:
    return {**asdict(report), "table": [report.table.schema, report.table.name]}


def _report(data: dict[str, Any]) -> TableReport:
    lists = {name: tuple(data[name]) for name in ("waits", "members")}
    return TableReport(**{**data, **lists, "table": TableName(*data["table"])})
