"""The types that a task file chooses for columns of a PostgreSQL target, instead of the usual ones.

A choice concerns all columns of a type, the columns of this type in some tables, or one column. Only types that can
store the values are allowed. If only some values fit (`bigint unsigned` as `bigint`), the server refuses a row with
another value.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from pidts.model.errors import ConfigError, Halted, Where
from pidts.model.table import Column, Table
from pidts.model.types import DATED, ColumnType, Kind

_INTEGERS = ("smallint", "integer", "bigint", "numeric(20)")
_TEXT = ("text",)
GEOMETRY = "postgis"
"""The type of the extension PostGIS. Only the target knows whether it has PostGIS."""
_ALLOWED = {
    Kind.TINYINT: ("boolean", *_INTEGERS),
    Kind.SMALLINT: _INTEGERS,
    Kind.MEDIUMINT: _INTEGERS,
    Kind.INT: _INTEGERS,
    Kind.BIGINT: _INTEGERS,
    Kind.JSON: ("jsonb", "json", "text"),
    Kind.SET: ("text[]", "text"),
    Kind.TIME: ("interval", "time"),
    Kind.GEOMETRY: (GEOMETRY,),
    Kind.CHAR: _TEXT,
    Kind.VARCHAR: _TEXT,
}
_TYPE = re.compile(r"(?P<before>unsigned +)?(?P<kind>[a-z]+)(?:\((?P<length>\d+)\))?(?P<behind> +unsigned)?", re.ASCII)
_WITH_DIGITS = frozenset({"interval", "time"})


@dataclass(frozen=True, slots=True)
class TypeChoice:
    """One entry of `pidts.types` in the task file."""

    target: str
    """The type on PostgreSQL."""
    kind: Kind | None = None
    """The type on the source; None if the choice names one column."""
    length: int | None = None
    unsigned: bool = False
    tables: str = "*"
    """A pattern of target tables, as `schema.table`."""
    column: str = ""

    @classmethod
    def parse(cls, source: str, target: str) -> TypeChoice:
        """Returns the choice from a text such as `tinyint(1)`, `json of shop.*` or `shop.orders.active`."""
        target = " ".join(target.lower().split())
        known = sorted({each for allowed in _ALLOWED.values() for each in allowed})
        if target not in known:
            raise ConfigError(
                "bad-value",
                f"{target!r} is not a target type that can be chosen",
                todo=f"Write one of {', '.join(known)}",
            )
        if source.count(".") == 2 and " " not in source:
            tables, _, column = source.rpartition(".")
            return cls(target, tables=tables, column=column)
        text, _, tables = source.partition(" of ")
        found = _TYPE.fullmatch(" ".join(text.lower().split()))
        kind = Kind(found["kind"]) if found and found["kind"] in {*Kind} else None
        if found is None or kind is None or kind not in _ALLOWED:
            types = ", ".join(sorted(_ALLOWED))
            todo = f"Write one of {types}; `TYPE of SCHEMA.TABLE`; or SCHEMA.TABLE.COLUMN, by the target's names"
            raise ConfigError("bad-value", f"{source!r} is not a type whose target type can be chosen", todo=todo)
        if target not in _ALLOWED[kind]:
            raise ConfigError(
                "bad-value", f"{kind} cannot become {target}", todo=f"Write one of {', '.join(_ALLOWED[kind])}"
            )
        length = int(found["length"]) if found["length"] else None
        return cls(target, kind, length, bool(found["before"] or found["behind"]), tables.strip() or "*")

    def concerns(self, table: Table, column: Column) -> bool:
        """Whether the choice concerns this column of a target table."""
        if not fnmatchcase(str(table.name), self.tables):
            return False
        if self.column:
            return self.column.lower() == column.name.lower()
        kind = column.type
        return (
            kind.kind is self.kind
            and self.length in (None, kind.length)
            # A choice for `bigint` concerns signed and unsigned columns.
            and (kind.unsigned or not self.unsigned)
        )

    def type_of(self, table: Table, column: Column) -> str:
        """Returns the type that the column gets; raises if the column cannot have it."""
        kind = column.type
        if self.target not in _ALLOWED.get(kind.kind, ()):
            raise Halted(
                "type-not-possible",
                f"pidts.types chooses {self.target} for column {column.name}, which is {kind.kind} on the source",
                where=Where(table=str(table.name)),
                todo="Correct pidts.types in the task file. See docs/reference/types.md",
            )
        return f"{self.target}({kind.fsp})" if self.target in _WITH_DIGITS else self.target


@dataclass(frozen=True, slots=True)
class TypeMap:
    """All choices of a task file. The most specific one counts: for a column, else for a table, else for a type."""

    choices: tuple[TypeChoice, ...] = ()
    refuses_unreal: bool = False
    """Whether zero and partial dates are errors. Otherwise the target stores NULL for them."""

    def of(self, table: Table) -> Table:
        """Returns the target's table with the chosen types in its columns."""
        if not (self.choices or self.refuses_unreal):
            return table
        return replace(table, columns=tuple(replace(one, type=self._type(table, one)) for one in table.columns))

    def _type(self, table: Table, column: Column) -> ColumnType:
        found = [choice for choice in self.choices if choice.concerns(table, column)]
        kind = column.type
        if self.refuses_unreal and kind.kind in DATED:
            kind = replace(kind, refuses_unreal=True)
        if not found:
            return kind
        return replace(kind, chosen=max(found, key=_exactness).type_of(table, column))


def _exactness(choice: TypeChoice) -> tuple[bool, bool, bool, bool]:
    return bool(choice.column), choice.tables != "*", choice.length is not None, choice.unsigned
