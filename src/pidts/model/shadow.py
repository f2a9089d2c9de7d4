"""The record of an online schema change that is under way; the target keeps it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pidts.model.table import Table


@dataclass(frozen=True, slots=True)
class Spoken:
    """A statement of the log with all that its meaning depends on."""

    sql: str
    schema: str = ""
    sql_mode: int | None = None


@dataclass(frozen=True, slots=True)
class Shadow:
    """A table that a tool fills beside another one, to take its place in the end. Its rows are never carried."""

    structure: Table | None
    """The structure as the log has left it; None: a statement about it could not be followed."""
    statements: tuple[Spoken, ...] = ()
    """The statements that altered it, in order."""
    complete: bool = True
    """Whether all of its life is known. It is not where the table was there before the task."""

    def to_json(self) -> dict[str, Any]:
        """Plain values, for the target's record."""
        return {
            "structure": self.structure and self.structure.to_json(),
            "statements": [[spoken.sql, spoken.schema, spoken.sql_mode] for spoken in self.statements],
            "complete": self.complete,
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Shadow:
        """The inverse of `to_json`."""
        return cls(
            structure=data["structure"] and Table.from_json(data["structure"]),
            statements=tuple(Spoken(sql, schema, mode) for sql, schema, mode in data["statements"]),
            complete=data["complete"],
        )
