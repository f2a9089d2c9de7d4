"""The block-allow-list: which tables of a source a task replicates, decided as DM decides it.

1. Schemas: if `do-dbs` is not empty, a schema must match it, and `ignore-dbs` is not used; otherwise a match of
   `ignore-dbs` drops the schema.
2. Tables in the remaining schemas: a match of `do-tables` keeps the table; otherwise a match of `ignore-tables` drops
   it; otherwise it is kept only if `do-tables` is empty.

So `{do-dbs: [shop], do-tables: [{db-name: crm, tbl-name: t}]}` keeps *nothing*: the first step drops `crm.t`, and the
second step drops the tables of `shop`.

`pidts.rules.patterns` describes patterns. Case does not matter unless the list says so.

One fault in DM's own code is not repeated. If several entries of a list have regular expressions for the schema, DM
combines the schema of one entry with the table of another.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TypeAlias

from pidts.model import TableName
from pidts.rules.patterns import check, is_wide, matches
from pidts.schema.online.names import OnlineDdl, Role

SYSTEM_SCHEMAS = frozenset({"mysql", "information_schema", "performance_schema", "sys", "pidts_meta"})
"""Schemas that are never replicated, whatever a list says: system schemas of the servers, and the schema of PiDTS."""

_Pair: TypeAlias = tuple[str, str]
"""A pattern for the schema, and one for the table."""


class _TablePatterns:
    """The patterns of a list of tables, by name: a list may name 20,000 tables, and is asked about each of them."""

    __slots__ = ("_all", "_by_name", "_others")

    def __init__(self, pairs: tuple[_Pair, ...]) -> None:
        self._all = pairs
        self._by_name: dict[str, list[_Pair]] = {}
        """Patterns that match only one name, in ASCII, keyed by the name in lower case."""
        self._others: list[_Pair] = []
        for pair in pairs:
            if is_wide(pair[1]) or not pair[1].isascii():
                self._others.append(pair)
            else:
                self._by_name.setdefault(pair[1].lower(), []).append(pair)

    def possible(self, name: str) -> Iterable[_Pair]:
        """Returns all patterns that may match a table with this name, and perhaps other patterns.

        If case is ignored, letters outside ASCII may equal letters in ASCII: the long s equals s.
        """
        return (*self._by_name.get(name.lower(), ()), *self._others) if name.isascii() else self._all


@dataclass(frozen=True, slots=True)
class AllowList:
    """One block-allow-list. Called with a table's name, it returns whether the table is replicated.

    An empty list includes every table, except tables in `SYSTEM_SCHEMAS` and in the schema `own`.
    """

    do_dbs: tuple[str, ...] = ()
    ignore_dbs: tuple[str, ...] = ()
    do_tables: tuple[tuple[str, str], ...] = ()
    ignore_tables: tuple[tuple[str, str], ...] = ()
    case_sensitive: bool = False
    shadow: tuple[str, ...] = ()
    """Regular expressions for whole names: tables that tools for online schema changes fill and swap in."""
    trash: tuple[str, ...] = ()
    """Regular expressions for whole names: tables that tools for online schema changes leave or use for notes."""
    own: str = ""
    """A schema that is never taken: the task's `meta-schema`, if it is not the default."""
    _taken: _TablePatterns = field(init=False, repr=False, compare=False)
    _ignored: _TablePatterns = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_taken", _TablePatterns(self.do_tables))
        object.__setattr__(self, "_ignored", _TablePatterns(self.ignore_tables))
        pairs = [name for pair in (*self.do_tables, *self.ignore_tables) for name in pair]
        for pattern in (*self.do_dbs, *self.ignore_dbs, *pairs):
            check(pattern)
        OnlineDdl(self.shadow, self.trash, self.case_sensitive)  # raises for an invalid expression

    @classmethod
    def parse(cls, text: str) -> AllowList:
        """Parses a list such as `shop.orders,crm.*,hr`. A schema means its tables; an empty text, all tables."""
        return cls(do_tables=tuple(pair for name in map(str.strip, text.split(",")) if name for pair in _pairs(name)))

    def __call__(self, table: TableName) -> bool:
        """Whether the table's rows and DDL are replicated."""
        is_real = _is_real(self.shadow, self.trash, table.name, self.case_sensitive)
        if not is_real or not self.takes_schema(table.schema):
            return False
        if self._any_table(self._taken, table):
            return True
        return not self.do_tables and not self._any_table(self._ignored, table)

    def takes_schema(self, schema: str) -> bool:
        """Whether `do-dbs` and `ignore-dbs` keep a schema; False for `SYSTEM_SCHEMAS` and `own`.

        For a statement on a schema, such as CREATE DATABASE, only this method decides.
        """
        if schema.lower() in SYSTEM_SCHEMAS or (self.own and schema.lower() == self.own.lower()):
            return False
        if self.do_dbs:
            return any(self._matches(pattern, schema) for pattern in self.do_dbs)
        return not any(self._matches(pattern, schema) for pattern in self.ignore_dbs)

    def _any_table(self, patterns: _TablePatterns, table: TableName) -> bool:
        return any(
            self._matches(schema, table.schema) and self._matches(name, table.name)
            for schema, name in patterns.possible(table.name)
        )

    def _matches(self, pattern: str, name: str) -> bool:
        return matches(pattern, name, case_sensitive=self.case_sensitive)


def _pairs(text: str) -> Iterable[_Pair]:
    """Yields each schema and table that the text may name: without wildcards, the schema or the table may contain dots.

    In a text that ends with `.*`, all characters before the `.*` may be the name of one schema.
    """
    parts = text.split(".")
    if len(parts) > 2 and parts[-1] == "*" and not is_wide(text.removesuffix(".*")):
        yield ".".join(parts[:-1]), "*"
    for place in range(1, 2 if is_wide(text) else len(parts) + 1):
        yield ".".join(parts[:place]), ".".join(parts[place:]) or "*"


@lru_cache(maxsize=16384)
def _is_real(shadow: tuple[str, ...], trash: tuple[str, ...], name: str, case_sensitive: bool) -> bool:  # noqa: FBT001 - part of the cache's key
    """Whether a table is not a helper table of an online schema change tool.

    The result is cached, since it is needed for the tables of each transaction in the log.
    """
    return OnlineDdl(shadow, trash, case_sensitive).role(TableName("", name)) is Role.REAL
