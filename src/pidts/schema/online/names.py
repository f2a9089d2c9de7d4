"""Recognizes the tables of online schema changes by gh-ost and pt-online-schema-change by their names.

Such a tool creates an empty *shadow* of the table, alters the shadow, fills it while the table is in use, and swaps the
names of the two tables. After the swap, the old table is *trash*; gh-ost's changelog table is trash, too. The target
gets one ALTER TABLE instead, so shadow and trash are not replicated. The statements on the shadow are remembered. When
the shadow takes the *real* table's name, these statements are applied to the real table (`swap`).

The roles are recognized only by names: a regular expression matches a whole name, and its only group is the real name.
If a shadow's name already exists, a tool puts more underscores before the name. So `__t_new` may be the shadow of `_t`
or of `t`.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import lru_cache

import pidts.schema.actions as alter
import pidts.schema.statements as ddl
from pidts.model.errors import ConfigError
from pidts.model.table import TableName

SHADOW = (r"^_(.+)_(?:new|gho)$",)
"""The names that both tools give to shadows."""
TRASH = (r"^_(.+)_(?:ghc|del|old)$",)
"""The names of the old tables that the tools leave behind, and of gh-ost's changelog table."""

_LONGEST = 64
"""The largest number of characters of a name. The tool may have cut off a name of this length."""


class Role(Enum):
    """The role of a table in an online schema change."""

    REAL = "real"
    SHADOW = "shadow"
    TRASH = "trash"


Pairs = tuple[tuple[TableName, TableName], ...]


@dataclass(frozen=True, slots=True)
class SplitStatement:
    """The parts of one statement that are handled differently."""

    rest: ddl.Statement | None
    """The part that concerns only real tables; None if there is none."""
    shadows: tuple[TableName, ...] = ()
    """The shadows that the statement names."""
    swapped: Pairs = ()
    """The shadows that take a real name, each with this real name."""


@dataclass(frozen=True, slots=True)
class OnlineDdl:
    """Distinguishes real, shadow and trash tables by their names. Without expressions, all tables are real."""

    shadow: tuple[str, ...] = ()
    trash: tuple[str, ...] = ()
    case_sensitive: bool = False

    def __post_init__(self) -> None:
        for rule in (*self.shadow, *self.trash):
            _compiled(rule, self.case_sensitive)

    @property
    def is_on(self) -> bool:
        """Whether any table can have a role that is not `real`."""
        return bool(self.shadow or self.trash)

    def role(self, name: TableName) -> Role:
        """Returns a table's role by its name."""
        if self._found(self.shadow, name) is not None:
            return Role.SHADOW
        return Role.REAL if self._found(self.trash, name) is None else Role.TRASH

    def reals(self, shadow: TableName) -> tuple[TableName, ...] | None:
        """Returns the real tables to which this shadow may belong; None (any table) if its name may be cut off."""
        if len(shadow.name) >= _LONGEST:
            return None
        name = self._found(self.shadow, shadow) or ""
        bare = name.lstrip("_")
        spellings = dict.fromkeys(name[at:] for at in range(len(name) - len(bare) + 1) if name[at:])
        return tuple(TableName(shadow.schema, spelling) for spelling in spellings)

    def split(self, statement: ddl.Statement) -> SplitStatement:
        """Splits a statement by its tables' names: the part on real tables, and the shadow tables that it names."""
        if not self.is_on:
            return SplitStatement(statement)
        match statement:
            case ddl.RenameTable(pairs=pairs):
                return self._renamed(statement, net(pairs))
            case ddl.AlterTable(table=table, actions=actions) if moved := _of(alter.RenameTo, actions):
                return self._renamed(statement, ((table, moved[-1].name),))
            case ddl.CreateTable(table=table) | ddl.CreateTableLike(table=table) | ddl.TruncateTable(table=table):
                shadows = self._shadows(statement.tables)
                return SplitStatement(statement if self.role(table) is Role.REAL else None, shadows)
            case ddl.DropTable(tables=tables):
                real = tuple(name for name in tables if self.role(name) is Role.REAL)
                rest = statement if real == tables else replace(statement, tables=real) if real else None
                return SplitStatement(rest, self._shadows(tables))
            case ddl.AlterTable() | ddl.Unknown() | ddl.StatementDml() if statement.tables:
                is_real = any(self.role(name) is Role.REAL for name in statement.tables)
                return SplitStatement(statement if is_real else None, self._shadows(statement.tables))
            case _:
                return SplitStatement(statement)

    def _renamed(self, statement: ddl.RenameTable | ddl.AlterTable, pairs: Pairs) -> SplitStatement:
        named = [(old, new, self.role(old), self.role(new)) for old, new in pairs]
        real = tuple((old, new) for old, new, was, becomes in named if _is_known(was, becomes))
        swapped = tuple((old, new) for old, new, was, becomes in named if (was, becomes) == (Role.SHADOW, Role.REAL))
        rest: ddl.Statement | None = None
        if real:
            rest = statement
            if isinstance(statement, ddl.RenameTable) and real != pairs:
                rest = replace(statement, pairs=real)
        return SplitStatement(rest, self._shadows(name for pair in pairs for name in pair), swapped)

    def _shadows(self, names: Iterable[TableName]) -> tuple[TableName, ...]:
        return tuple(dict.fromkeys(name for name in names if self.role(name) is Role.SHADOW))

    def _found(self, rules: tuple[str, ...], name: TableName) -> str | None:
        for rule in rules:
            if (found := _compiled(rule, self.case_sensitive).fullmatch(name.name)) is not None:
                return (found[1] if found.re.groups else "") or ""
        return None


def checked(rules: Iterable[str], key: str) -> tuple[str, ...]:
    """Returns a task file's expressions, made to match whole names. Raises ConfigError for an invalid expression."""
    whole = [("" if rule.startswith("^") else "^") + rule + ("" if rule.endswith("$") else "$") for rule in rules]
    for rule in whole:
        if (groups := _compiled(rule, True).groups) != 1:  # noqa: FBT003 - part of the cache's key
            raise ConfigError(
                "bad-pattern",
                f"{key}: {rule!r} has {groups} groups instead of one",
                todo="Write one group, (...), for the real table's name; write every other group as (?:...)",
            )
    return tuple(dict.fromkeys(whole))


def net(pairs: Iterable[tuple[TableName, TableName]]) -> Pairs:
    """Returns each table's name before and after a whole RENAME, which renames pair by pair: a swap has three pairs."""
    firsts: dict[TableName, TableName] = {}
    for old, new in pairs:
        firsts[new] = firsts.pop(old, old)
    return tuple((first, last) for last, first in firsts.items())


def _is_known(was: Role, becomes: Role) -> bool:
    """Whether a rename belongs to the part on real tables: the rename of a real table to trash does not."""
    if was is Role.REAL:
        return becomes is not Role.TRASH
    return was is Role.TRASH and becomes is Role.REAL


def _of(kind: type[alter.RenameTo], actions: Sequence[object]) -> list[alter.RenameTo]:
    return [action for action in actions if isinstance(action, kind)]


@lru_cache(maxsize=256)
def _compiled(rule: str, case_sensitive: bool) -> re.Pattern[str]:  # noqa: FBT001 - part of the cache's key
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", FutureWarning)  # Python would read a class like [[:alpha:]] as a set
            return re.compile(rule, re.NOFLAG if case_sensitive else re.IGNORECASE)
    except (re.error, FutureWarning) as error:
        raise ConfigError(
            "bad-pattern",
            f"the pattern {rule!r} is not understood: {error}",
            todo="Write a regular expression, such as ^_(.+)_gho$",
        ) from None
