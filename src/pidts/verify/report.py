"""The result of a comparison."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from pidts.model import TableName
from pidts.model.errors import plain_value


class DifferenceKind(StrEnum):
    """How a row of the target differs from the source's row."""

    MISSING = "missing"
    EXTRA = "extra"
    DIFFERENT = "different"
    UNSETTLED = "unsettled"
    """A row that was not equal when it was last read; a change of the row may have been pending."""
    WAITING = "waiting"
    """A row that is not equal while its table waits for a schema change or is halted, or while its task does not run.

    The waiting changes may make the row equal. PiDTS does not read which rows these changes concern.
    """
    LOCKED = "locked"
    """A row that is not equal because it is set aside for an operator."""


@dataclass(frozen=True, slots=True)
class RowDifference:
    """One row that differs between the two sides."""

    table: TableName
    kind: DifferenceKind
    key: Mapping[str, Any]
    """The key; empty if the table has no key."""
    columns: tuple[str, ...] = ()
    """The columns that differ; empty for a missing or extra row."""
    members: tuple[str, ...] = ()
    """In a merged table, the members that have the row."""
    shard: str | None = ""
    """The source's table to which an extra row belongs, by its extracted columns. None: the table does not exist."""

    def __str__(self) -> str:
        key = ", ".join(f"{name}={plain_value(value)}" for name, value in self.key.items())
        waits = self.kind is DifferenceKind.WAITING
        text = f"{self.table} ({key}): {'not equal' if waits else self.kind}"
        text += f" in {', '.join(self.columns)}" if self.columns else ""
        text += ", and changes of its table are not applied yet" if waits else ""
        text += f" of {self.shard}" if self.shard else ""
        text += (
            ", of no existing shard (of a dropped table, or written by another program)" if self.shard is None else ""
        )
        return text + (f"; it is in {' and in '.join(self.members)}" if self.members else "")

    def to_json(self) -> dict[str, Any]:
        """Returns plain values. Values that JSON does not have are texts."""
        key = {name: _plain(value) for name, value in self.key.items()}
        values: dict[str, Any] = {
            "table": str(self.table),
            "kind": self.kind.value,
            "key": key,
            "columns": list(self.columns),
        }
        values |= {} if self.shard == "" else {"shard": self.shard}
        return values | ({"members": list(self.members)} if self.members else {})


def divided(examples: Sequence[RowDifference], most: int) -> list[RowDifference]:
    """Returns at most `most` examples, divided evenly among their tables.

    So a table with many differences does not hide those of other tables. If there are more tables than examples, the
    first tables get one each.
    """
    counts = Counter(one.table for one in examples)
    left = most
    largest_first = sorted(counts.items(), key=lambda item: item[1], reverse=True)
    for tables, (table, count) in zip(range(len(counts), 0, -1), reversed(largest_first), strict=True):
        counts[table] = min(count, left // tables)
        left -= counts[table]
    found = []
    for one in examples:
        if counts[one.table]:
            counts[one.table] -= 1
            found.append(one)
    return found


_SELDOM = frozenset(
    {
        "problem",
        "filtered",
        "waiting",
        "waits",
        "locked",
        "source",
        "members",
        "note",
        "of_no_shard",
        "not_compared",
        "unfinished",
    }
)
"""Keys that are written to the JSON only if their values are not empty."""


@dataclass(frozen=True, slots=True)
class TableReport:
    """The result of one table. `rows` is how many of the source's rows were compared."""

    table: TableName
    rows: int = 0
    missing: int = 0
    extra: int = 0
    different: int = 0
    unsettled: int = 0
    problem: str = ""
    """The reason why the table as a whole cannot be equal."""
    has_key: bool = True
    filtered: bool = False
    """Whether the task leaves out some of the table's changes, so that rows may differ on purpose."""
    only_extra: bool = False
    """Whether extra rows are the only differences that the filters cause on purpose."""
    waiting: int = 0
    """How many rows are not equal while the table waits for the causes in `waits`."""
    waits: tuple[str, ...] = ()
    """The causes for which some of the table's rows wait."""
    locked: int = 0
    """How many rows are set aside, and not equal until an operator resolves them."""
    source: str = ""
    """The source's id, if the task has several sources."""
    members: tuple[str, ...] = ()
    """The tables that are merged into this one, each with its source."""
    note: str = ""
    """A text that names the part of the table that was not compared."""
    of_no_shard: int = 0
    """How many extra rows have extracted values of no existing table."""
    not_compared: int = 0
    """How many rows were not compared, since their current values do not follow from a channel's records."""
    unfinished: bool = False
    """Whether the comparison was stopped within this table. Then the numbers are those of the rows compared before."""

    @property
    def differences(self) -> int:
        """The number of rows that should be equal on both sides and were not found to be equal."""
        return self.missing + self.extra + self.different + self.unsettled

    @property
    def equal(self) -> bool:
        """Whether both sides have the same rows."""
        return not (self.differences or self.problem or self.waits or self.locked or self.unfinished)

    def to_json(self) -> dict[str, Any]:
        """Returns the report as plain values. The keys of `_SELDOM` are left out if their values are empty."""
        facts = {name: value for name, value in asdict(self).items() if name not in {"table", "has_key", "only_extra"}}
        return {"name": str(self.table)} | {
            name: value for name, value in facts.items() if value or name not in _SELDOM
        }


@dataclass(frozen=True, slots=True)
class Report:
    """The reports of all tables. `examples` has some differences of each table; the numbers count all of them."""

    tables: tuple[TableReport, ...]
    examples: tuple[RowDifference, ...]
    stopped: bool = False
    """Whether the user has stopped the comparison. Then the report lacks the tables that were not compared."""

    @property
    def rows(self) -> int:
        """The number of the source's rows that were compared."""
        return sum(table.rows for table in self.tables)

    @property
    def differences(self) -> int:
        """The number of differences of all tables."""
        return sum(table.differences for table in self.tables)

    @property
    def equal(self) -> bool:
        """Whether both sides have the same rows."""
        return not self.stopped and all(table.equal for table in self.tables)

    @property
    def waits(self) -> bool:
        """Whether some rows wait, and no row is known to be different."""
        return not self.equal and not any(table.differences or table.problem for table in self.tables)

    def to_json(self, task: str) -> dict[str, Any]:
        """Returns the report in the form that `--json` prints."""
        return {
            "task": task,
            **({"stage": "stopped"} if self.stopped else {}),
            "equal": self.equal and bool(self.tables),
            "rows": self.rows,
            "tables": [table.to_json() for table in self.tables],
            "differences": [example.to_json() for example in self.examples],
        }


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.hex()
    return value if isinstance(value, str | int | float | None) else str(value)
