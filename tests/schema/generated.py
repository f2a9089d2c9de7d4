"""Makes random statements about a few tables; a server accepts most of the statements."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

from pidts.model import Column, Table, TableName
from pidts.model.types import LOB_BYTES

NAMES = ("a", "b", "c", "Dd", "e1", "f", "g", "1h", "`i j`", "k")
TABLES = ("t1", "t2", "t3")
KEYS = ("k1", "K2", "u1", "u2", "a", "b", "x")
TYPES = (
    "int",
    "int unsigned",
    "tinyint(1)",
    "bigint",
    "smallint(4) zerofill",
    "decimal(19.5)",
    "decimal(8,3)",
    "double",
    "bit(5)",
    "year",
    "date",
    "time(3)",
    "datetime(6)",
    "timestamp null",
    "char(7)",
    "char(7) binary",
    "varchar(20)",
    "varchar(8)",
    "varchar(12) collate latin1_bin",
    "varchar(9) charset utf8",
    "tinytext",
    "text",
    "text(300)",
    "mediumtext charset latin2",
    "binary(6)",
    "varbinary(16)",
    "blob",
    "enum('x','y ')",
    "set('p','q')",
)
SHORT_TYPES = tuple(kind for kind in TYPES if "text" not in kind and "blob" not in kind)
DEFAULTS = ("default null", "default '7'", "default 3")
CHARSETS = ("latin1", "utf8", "utf8mb4", "utf8mb4 collate utf8mb4_bin", "latin1 collate latin1_german1_ci", "binary")


class Generator:
    """Generates random schema changes. The same seed and the same answers of the server give the same statements."""

    def __init__(self, seed: int, database: str, *, mariadb: bool) -> None:
        self.random = Random(seed)
        self.database = database
        self.mariadb = mariadb

    def statement(self, tables: Mapping[TableName, Table]) -> str:
        """Returns the next statement, for the tables that exist now."""
        there = [table for name, table in sorted(tables.items()) if name.schema == self.database]
        free = [name for name in TABLES if TableName(self.database, name) not in tables]
        if not there or (free and self._one_in(6)):
            return self._create(self._pick(free), there)
        table = self._pick(there)
        name = table.name.name
        if self._one_in(25) or len(table.columns) > 12:
            return f"DROP TABLE {name}"
        if free and self._one_in(20):
            other = self._pick(free)
            return self._pick([f"RENAME TABLE {name} TO {other}", f"ALTER TABLE {name} RENAME {other}"])
        if self._one_in(12):
            return (
                f"CREATE {self._pick(['', 'UNIQUE '])}INDEX {self._pick(KEYS)} ON {name} {self._parts(table.columns)}"
            )
        if table.keys and self._one_in(15):
            return f"DROP INDEX `{self._pick(table.keys).name}` ON {name}"
        clauses = [self._clause(table) for _ in range(self._pick([1, 1, 1, 2, 2, 3, 4]))]
        return f"ALTER TABLE {name} " + ", ".join(clauses)

    def _pick(self, several):
        return self.random.choice(list(several))

    def _one_in(self, number: int) -> bool:
        return self.random.randrange(number) == 0

    def _create(self, name: str, there: list[Table]) -> str:
        if there and self._one_in(8):
            return f"CREATE TABLE {name} LIKE {self._pick(there).name.name}"
        names = self.random.sample(NAMES, self.random.randrange(2, 7))
        types = {column: self._pick(TYPES) for column in names}
        lines = [
            f"{column} {kind}{self._attributes() if kind in SHORT_TYPES else ' null'}" for column, kind in types.items()
        ]
        lines += [self._key(types) for _ in range(self.random.randrange(4))]
        if self._one_in(3):
            self.random.shuffle(lines)
        charset = f" CHARSET {self._pick(CHARSETS)}" if self._one_in(3) else ""
        return f"CREATE TABLE {name} ({', '.join(lines)}){charset}"

    def _attributes(self) -> str:
        text = self._pick(["", "", "", " not null", " not null", " null"])
        if self._one_in(5):
            text += " " + self._pick(DEFAULTS)
        if self._one_in(8):
            text += " " + self._pick(["unique", "unique key", "primary key", "unique primary key", "comment 'c'"])
        return text

    def _key(self, types: Mapping[str, str] | tuple[Column, ...]) -> str:
        parts = self._parts(types)
        kind = self._pick(
            ["KEY", "KEY", "UNIQUE", "UNIQUE KEY", "UNIQUE", "PRIMARY KEY", "CONSTRAINT UNIQUE", "FULLTEXT KEY"]
        )
        condition = "IF NOT EXISTS " if self.mariadb and self._one_in(6) and kind in ("KEY", "UNIQUE KEY") else ""
        named = "" if kind in ("PRIMARY KEY", "CONSTRAINT UNIQUE") or self._one_in(3) else f"{self._pick(KEYS)} "
        return f"{kind} {condition}{named}{parts}"

    def _parts(self, types: Mapping[str, str] | tuple[Column, ...]) -> str:
        if isinstance(types, Mapping):
            known = [
                (name, any(word in kind for word in ("char", "binary(")), "text" in kind or "blob" in kind)
                for name, kind in types.items()
            ]
        else:
            known = [
                (
                    f"`{one.name}`",
                    one.type.length is not None and (one.type.is_text or one.type.is_bytes),
                    one.type.kind in LOB_BYTES,
                )
                for one in types
            ]
        chosen = self.random.sample(known, min(len(known), self._pick([1, 1, 1, 2, 2, 3])))
        parts = []
        for name, is_sized, is_long in chosen:
            prefix = f"({self._pick([1, 3, 5, 7, 8])})" if is_long or (is_sized and self._one_in(2)) else ""
            parts.append(f"{name}{prefix}{self._pick(['', '', '', ' desc'])}")
        return f"({', '.join(parts)})"

    def _clause(self, table: Table) -> str:
        column = self._pick(table.columns)
        old, place = (
            f"`{column.name}`",
            self._pick(["", "", "", " first", f" after `{self._pick(table.columns).name}`"]),
        )
        new = self._pick(NAMES)
        kind = self._pick(TYPES)
        definition = f"{kind}{self._attributes() if kind in SHORT_TYPES else self._pick(['', ' not null'])}{place}"
        key = f"`{self._pick(table.keys).name}`" if table.keys else "k1"
        choices = [
            f"ADD {new} {definition}",
            f"ADD COLUMN {new} {definition}",
            f"ADD ({new} {self._pick(TYPES)}, {self._key(table.columns)})",
            f"DROP {old}",
            f"DROP COLUMN {old}",
            f"DROP {old}, ADD {old} {self._pick(SHORT_TYPES)}{place}",
            f"MODIFY {old} {definition}",
            f"MODIFY {old} {definition}",
            f"CHANGE {old} {new} {definition}",
            f"CHANGE {old} {new} {definition}",
            f"RENAME COLUMN {old} TO {new}",
            f"ALTER {old} SET DEFAULT '5'",
            f"ALTER {old} DROP DEFAULT" if not column.nullable else f"ALTER {old} SET DEFAULT 4",
            f"ADD {self._key(table.columns)}",
            f"ADD {self._key(table.columns)}",
            f"ADD {self._key(table.columns)}",
            f"DROP KEY {key}",
            f"DROP KEY {key}, ADD {self._key(table.columns)}",
            f"RENAME KEY {key} TO {self._pick(KEYS)}",
            "DROP PRIMARY KEY",
            f"DEFAULT CHARSET {self._pick(CHARSETS)}",
            f"CONVERT TO CHARSET {self._pick(CHARSETS)}",
            "COMMENT 'x'",
            f"ORDER BY {table.name.name}.{old}",
        ]
        if self.mariadb:
            choices += [
                f"ADD COLUMN IF NOT EXISTS {new} {definition}",
                f"DROP COLUMN IF EXISTS {new}",
                f"MODIFY IF EXISTS {new} {self._pick(SHORT_TYPES)}{self._attributes()}",
                f"DROP KEY IF EXISTS {self._pick(KEYS)}",
                f"DROP CONSTRAINT {key}",
            ]
        return self._pick(choices)
