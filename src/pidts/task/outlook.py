"""What a first run would do to the target, table by table; nothing is written by asking."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from pidts.apply import TargetSession
from pidts.model import PidtsError, Rendered, Table, TableName
from pidts.schema import type_text
from pidts.source.connection import connect
from pidts.source.sizes import Size, table_sizes
from pidts.source.structures import read_structures
from pidts.task.compose import source_config, target_of
from pidts.task.config import TaskConfig


class Way(StrEnum):
    """What becomes of a table."""

    CREATE = "create"
    USE = "use"
    """It is there and fits."""
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class ColumnOutlook:
    """A column on its way."""

    name: str
    source_type: str
    target_type: str


@dataclass(frozen=True, slots=True)
class TableOutlook:
    """One table of the task."""

    source: TableName
    target: TableName
    way: Way
    key: tuple[str, ...]
    """The columns that rows are found by; empty where whole rows are compared."""
    columns: tuple[ColumnOutlook, ...]
    statements: tuple[str, ...]
    """Before its rows are copied."""
    finish: tuple[str, ...]
    """When they are."""
    notes: tuple[str, ...]
    """What the target cannot have as the source has it."""
    problems: tuple[str, ...]
    """Why the table is refused."""
    size: Size | None
    """None where the source has no statistics."""

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "source": str(self.source),
            "target": str(self.target),
            "way": self.way.value,
            "key": self.key,
            "columns": [asdict(column) for column in self.columns],
            "statements": self.statements,
            "finish": self.finish,
            "notes": self.notes,
            "problems": self.problems,
            "rows": self.size.rows if self.size else None,
            "bytes": self.size.bytes if self.size else None,
        }


def outlook(config: TaskConfig) -> list[TableOutlook]:
    """Every table that the task takes, by name."""
    with closing(connect(source_config(config))) as source, closing(target_of(config).connect()) as target:
        tables = read_structures(source, config.allow)
        sizes = table_sizes(source, tables)
        creates = config.mode != "incremental"
        return [_of(target, table, sizes.get(name), creates=creates) for name, table in sorted(tables.items())]


def _of(target: TargetSession, table: Table, size: Size | None, *, creates: bool) -> TableOutlook:
    rendered, types = Rendered(()), ("",) * len(table.columns)
    finish: tuple[str, ...] = ()
    problems: Iterable[str]
    try:
        misfits = target.misfits(table)
        types = target.column_types(table)
        if misfits is None and creates:
            rendered, problems = target.create_statements(table, before_copy=True), ()
            finish = _later(target.create_statements(table), rendered)
        elif misfits is None:
            problems = ["it does not exist on the target, and task-mode incremental creates no tables"]
        else:
            problems = misfits
    except PidtsError as error:
        misfits, problems = [], [error.what]
    return TableOutlook(
        source=table.name,
        target=table.name,
        way=Way.REFUSED if problems else Way.CREATE if misfits is None else Way.USE,
        key=table.identity,
        columns=tuple(
            ColumnOutlook(column.name, type_text(column.type), there)
            for column, there in zip(table.columns, types, strict=True)
        ),
        statements=rendered.statements,
        finish=finish,
        notes=rendered.notes,
        problems=tuple(problems),
        size=size,
    )


def _later(whole: Rendered, before: Rendered) -> tuple[str, ...]:
    """What is left to the end of the copy."""
    return tuple(statement for statement in whole.statements if statement not in before.statements)
