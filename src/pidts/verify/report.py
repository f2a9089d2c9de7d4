"""The result of a comparison."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from pidts.model import TableName


class DifferenceKind(StrEnum):
    """The kinds of differences between a target row and its source row."""

    MISSING = "missing"
    EXTRA = "extra"
    DIFFERENT = "different"
    UNSETTLED = "unsettled"
    """A row that was not equal at the last look, but a change may still have been on its way."""
    WAITING = "waiting"
    """A row that is not equal, as expected: its table waits for a schema change or is halted."""
    LOCKED = "locked"
    """A row that is not equal, and that is set aside for an operator."""


@dataclass(frozen=True, slots=True)
class RowDifference:
    """One row that differs between the two sides."""

    table: TableName
    kind: DifferenceKind
    key: Mapping[str, Any]
    """Empty where the table has no key."""
    columns: tuple[str, ...] = ()
    """The columns that differ; empty for a missing or extra row."""
    members: tuple[str, ...] = ()
    """The members that have the row, of a table that several are merged into."""
    shard: str | None = ""
    """The table that ought to have an extra row, by its extracted columns; None: no one that there is."""

    def __str__(self) -> str:
        key = ", ".join(f"{name}={value!r}" for name, value in self.key.items())
        text = f"{self.table} ({key}): {self.kind}" + (f" in {', '.join(self.columns)}" if self.columns else "")
        text += f" of {self.shard}" if self.shard else ""
        text += ", of no shard that there is (dropped, or by others)" if self.shard is None else ""
        return text + (f"; it is in {' and in '.join(self.members)}" if self.members else "")

    def to_json(self) -> dict[str, Any]:
        """Returns plain values; those that JSON does not know are text."""
        key = {name: _plain(value) for name, value in self.key.items()}
        values: dict[str, Any] = {
            "table": str(self.table),
            "kind": self.kind.value,
            "key": key,
            "columns": list(self.columns),
        }
        values |= {} if self.shard == "" else {"shard": self.shard}
        return values | ({"members": list(self.members)} if self.members else {})


_SELDOM = frozenset(
    {"problem", "filtered", "waiting", "waits", "locked", "source", "members", "note", "of_no_shard", "not_compared"}
)
"""The keys that are written only where they are true."""


@dataclass(frozen=True, slots=True)
class TableReport:
    """One table's numbers; `rows` are those of the source that were compared."""

    table: TableName
    rows: int = 0
    missing: int = 0
    extra: int = 0
    different: int = 0
    unsettled: int = 0
    problem: str = ""
    """Why the table as a whole cannot be equal."""
    has_key: bool = True
    filtered: bool = False
    """The task leaves out some of its changes, so rows may differ on purpose."""
    waiting: int = 0
    """Rows that are not equal, and are not expected to be before what is in `waits` has come."""
    waits: tuple[str, ...] = ()
    """The causes that some of the table's rows wait for."""
    locked: int = 0
    """Rows that are set aside, and not equal before an operator resolves them."""
    source: str = ""
    """The source's id, where the task has several."""
    members: tuple[str, ...] = ()
    """The tables that are merged into this one, each with its source."""
    note: str = ""
    """The part of the table that was not compared, in words."""
    of_no_shard: int = 0
    """The number of extra rows whose extracted columns are of no table that there is."""
    not_compared: int = 0
    """Rows of which a channel's records do not tell what they are now."""

    @property
    def differences(self) -> int:
        """Counts all rows that are not known to be the same on both sides, though they should be."""
        return self.missing + self.extra + self.different + self.unsettled

    @property
    def equal(self) -> bool:
        """Whether both sides hold the same rows."""
        return not (self.differences or self.problem or self.waits or self.locked)

    def to_json(self) -> dict[str, Any]:
        """Returns plain values; what is said of few tables only where it is true."""
        facts = {name: value for name, value in asdict(self).items() if name not in {"table", "has_key"}}
        return {"name": str(self.table)} | {
            name: value for name, value in facts.items() if value or name not in _SELDOM
        }


@dataclass(frozen=True, slots=True)
class Report:
    """The reports of all tables; `examples` holds the first differences, the numbers count every one."""

    tables: tuple[TableReport, ...]
    examples: tuple[RowDifference, ...]

    @property
    def rows(self) -> int:
        """Rows of the source that were compared."""
        return sum(table.rows for table in self.tables)

    @property
    def differences(self) -> int:
        """Counts the differences of all tables."""
        return sum(table.differences for table in self.tables)

    @property
    def equal(self) -> bool:
        """Whether both sides hold the same rows."""
        return all(table.equal for table in self.tables)

    @property
    def waits(self) -> bool:
        """Whether that is all: nothing is known to be different, but some rows wait."""
        return not self.equal and not any(table.differences or table.problem for table in self.tables)

    def to_json(self, task: str) -> dict[str, Any]:
        """Returns the report in the form that `--json` prints."""
        return {
            "task": task,
            "equal": self.equal and bool(self.tables),
            "rows": self.rows,
            "tables": [table.to_json() for table in self.tables],
            "differences": [example.to_json() for example in self.examples],
        }


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.hex()
    return value if isinstance(value, str | int | float | None) else str(value)
