"""What a comparison found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from pidts.model import TableName


class Finding(StrEnum):
    """How the target's row fails to be the source's."""

    MISSING = "missing"
    EXTRA = "extra"
    DIFFERENT = "different"


@dataclass(frozen=True, slots=True)
class Difference:
    """One row that is not the same on both sides."""

    table: TableName
    kind: Finding
    key: Mapping[str, Any]
    columns: tuple[str, ...] = ()
    """The columns that differ; empty for a missing or extra row."""

    def __str__(self) -> str:
        key = ", ".join(f"{name}={value!r}" for name, value in self.key.items())
        return f"{self.table} ({key}): {self.kind}" + (f" in {', '.join(self.columns)}" if self.columns else "")


@dataclass(frozen=True, slots=True)
class TableReport:
    """One table's numbers; `rows` are those of the source."""

    table: TableName
    rows: int = 0
    missing: int = 0
    extra: int = 0
    different: int = 0

    @property
    def differences(self) -> int:
        """All rows that are not the same on both sides."""
        return self.missing + self.extra + self.different


@dataclass(frozen=True, slots=True)
class Report:
    """All tables; `examples` holds the first differences, the numbers count every one."""

    tables: tuple[TableReport, ...]
    examples: tuple[Difference, ...]

    @property
    def rows(self) -> int:
        """Rows of the source that were compared."""
        return sum(table.rows for table in self.tables)

    @property
    def differences(self) -> int:
        """Over all tables."""
        return sum(table.differences for table in self.tables)

    @property
    def equal(self) -> bool:
        """Whether both sides hold the same rows."""
        return self.differences == 0
