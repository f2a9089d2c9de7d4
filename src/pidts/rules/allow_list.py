r"""The block-allow-list: which tables of a source a task replicates, decided as DM decides it.

1. Schemas: where `do-dbs` is not empty, a schema must match it and `ignore-dbs` is not asked at all; else a match of
   `ignore-dbs` drops it.
2. Tables of the schemas that are left: a match of `do-tables` keeps; else a match of `ignore-tables` drops; else the
   table is kept only if `do-tables` is empty.

So `{do-dbs: [shop], do-tables: [{db-name: crm, tbl-name: t}]}` keeps *nothing*: `crm.t` fails the first step, and the
tables of `shop` the second.

A pattern is a name in which `*` (only as the last character) stands for any rest, `?` for one character and `[a-z]`,
`[!a-z]` for one of a set; or, after `~`, a regular expression that may match anywhere in the name. Case does not
matter unless the list says so.

Two faults of DM's own code are not repeated: where several entries of one list have a regular expression for the
schema, it takes the schema of one with the table of another; and it lowers the case of an expression's text, which
turns `~\D` (not a digit) into its opposite.
"""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass
from functools import lru_cache

from pidts.model import ConfigError, TableName

SYSTEM_SCHEMAS = frozenset({"mysql", "information_schema", "performance_schema", "sys", "pidts_meta"})
"""Never replicated, whatever a list says: the servers' own schemas and the product's own."""


@dataclass(frozen=True, slots=True)
class AllowList:
    """One list; calling it with a table's name tells whether the table is taken. The empty list takes everything."""

    do_dbs: tuple[str, ...] = ()
    ignore_dbs: tuple[str, ...] = ()
    do_tables: tuple[tuple[str, str], ...] = ()
    ignore_tables: tuple[tuple[str, str], ...] = ()
    case_sensitive: bool = False

    def __post_init__(self) -> None:
        pairs = [name for pair in (*self.do_tables, *self.ignore_tables) for name in pair]
        for pattern in (*self.do_dbs, *self.ignore_dbs, *pairs):
            _compiled(pattern, self.case_sensitive)

    @classmethod
    def parse(cls, text: str) -> AllowList:
        """`shop.orders,crm.*`: only these tables; a schema alone is all of its tables, and no text takes everything."""
        parts = (name.partition(".") for name in map(str.strip, text.split(",")) if name)
        return cls(do_tables=tuple((schema, name or "*") for schema, _, name in parts))

    def __call__(self, table: TableName) -> bool:
        """True where the table's rows and DDL are replicated."""
        if not self.takes_schema(table.schema):
            return False
        if self._any_table(self.do_tables, table):
            return True
        return not self.do_tables and not self._any_table(self.ignore_tables, table)

    def takes_schema(self, schema: str) -> bool:
        """The first step alone: what decides about statements on a schema, such as CREATE DATABASE."""
        if schema.lower() in SYSTEM_SCHEMAS:
            return False
        if self.do_dbs:
            return any(self._matches(pattern, schema) for pattern in self.do_dbs)
        return not any(self._matches(pattern, schema) for pattern in self.ignore_dbs)

    def _any_table(self, pairs: tuple[tuple[str, str], ...], table: TableName) -> bool:
        return any(self._matches(schema, table.schema) and self._matches(name, table.name) for schema, name in pairs)

    def _matches(self, pattern: str, name: str) -> bool:
        return _compiled(pattern, self.case_sensitive).search(name) is not None


@lru_cache(maxsize=4096)
def _compiled(pattern: str, case_sensitive: bool) -> re.Pattern[str]:  # noqa: FBT001 - part of the cache's key
    flags = re.NOFLAG if case_sensitive else re.IGNORECASE
    expression = pattern[1:] if pattern.startswith("~") else rf"\A(?s:{_wildcards(pattern)})\Z"
    try:
        with warnings.catch_warnings():
            # `[[:alpha:]]` is a class in DM's expressions. To Python's it is some other set, with a mere warning.
            warnings.simplefilter("error", FutureWarning)
            return re.compile(expression, flags)
    except (re.error, FutureWarning) as error:
        raise ConfigError("bad-pattern", f"the pattern {pattern!r} is not understood: {error}") from None


def _wildcards(pattern: str) -> str:
    if not pattern:
        raise ConfigError("bad-pattern", "an empty name matches nothing", todo="Write '*' to mean every name.")
    if "*" in _SET.sub("", pattern)[:-1]:
        raise ConfigError(
            "bad-pattern",
            f"'*' is only possible as the last character of a name, not in {pattern!r}",
            todo="Write a regular expression instead, e.g. '~^a.*z$'.",
        )
    parts = []
    at = 0
    for found in _SET.finditer(pattern):
        parts += [_plain(pattern[at : found.start()]), _set(found[0][1:-1])]
        at = found.end()
    return "".join([*parts, _plain(pattern[at:])])


_SET = re.compile(r"\[[^\]]+\]")
"""A `[` that nothing closes is an ordinary character, and so is `[]`."""


def _plain(text: str) -> str:
    return "".join({"*": ".*", "?": "."}.get(char, re.escape(char)) for char in text)


def _set(body: str) -> str:
    negated = body.startswith("!") and len(body) > 1
    return f"[{'^' if negated else ''}{''.join(char if char == '-' else re.escape(char) for char in body[negated:])}]"
