"""Reads table structures from outside the log: from a server's catalog, or from a file of CREATE TABLE statements."""

from __future__ import annotations

import errno
import re
from dataclasses import dataclass, replace
from pathlib import Path

from pidts.bounded_file import read_small
from pidts.excerpt.blocks import LogInput, ServerInput
from pidts.excerpt.server_tables import ServerTables
from pidts.model import ConfigError, Lsn, Position, Transaction, Where
from pidts.rules import AllowList
from pidts.schema import Dialect
from pidts.schema.affected_tables import understood
from pidts.schema.evolve.known_structures import KnownStructures
from pidts.schema.parse.lexer import NotUnderstoodError, split
from pidts.schema.statements import CreateDatabase, CreateTable, CreateTableLike, Statement, Unknown
from pidts.source import SourceConfig

_LONGEST_SCRIPT = 256 << 20
"""The most bytes of a script: it is read into memory, and a device like `/dev/zero` has no end."""
_ROUTINES = re.compile(r"^DELIMITER (?!;\s*$).*?^DELIMITER ;\s*$", re.IGNORECASE | re.MULTILINE | re.DOTALL)
_USE = re.compile(r"^\s*USE\s+`?([^`;]+?)`?\s*$", re.IGNORECASE | re.MULTILINE)
_TABLE = re.compile(r"^\s*CREATE\s+TABLE\b", re.IGNORECASE | re.MULTILINE)


@dataclass(frozen=True, slots=True)
class ServerStructures:
    """The structures in the catalog of the server that wrote the log."""

    server: SourceConfig
    log: LogInput
    tables: AllowList

    def at(self, place: Position, lsn: Lsn, dialect: Dialect) -> tuple[KnownStructures, Dialect]:
        """Returns the structures after the transaction from `place` to `lsn`, and the server's dialect.

        The catalog has the present structures. The schema changes that the log has after `lsn` are undone in them.
        """
        current = ServerTables.read(self.server, self.tables)
        blocks, number = self.log.again(place), lsn.change_no
        if isinstance(self.log, ServerInput):
            changes = [change for change in current.changes_ahead(blocks, number) if change.lsn > lsn]
            return current.before(changes, number, dialect), current.reading.dialect
        changes = [change for change in current.changes_of_copy(blocks, number) if change.lsn > lsn]
        # The files may be those of another server, and may end before the moment at which the catalog was read.
        return current.reading.history.before(changes, dialect), current.reading.dialect


@dataclass(frozen=True, slots=True)
class ScriptStructures:
    """A file of statements, as from `mysqldump --no-data`, with the structures at the beginning of the log."""

    path: Path

    def begin(self, dialect: Dialect) -> KnownStructures:
        """Returns the tables that the file's statements create. Other statements are ignored."""
        where = Where(file=str(self.path))
        try:
            statements = split(_ROUTINES.sub("", read_small(self.path, _LONGEST_SCRIPT)), dialect)
        except OSError as error:
            todo = "Give a script without rows: mysqldump --no-data" if error.errno == errno.EFBIG else ""
            raise ConfigError("unreadable-file", f"--schema-from: {error.strerror}", where=where, todo=todo) from None
        except (UnicodeDecodeError, NotUnderstoodError) as error:
            raise ConfigError(
                "bad-value",
                f"--schema-from: the file is not SQL: {error}",
                where=where,
                todo="Give a file with the log's CREATE TABLE statements, as mysqldump --no-data writes it",
            ) from None
        history, schema = KnownStructures(), ""
        for text in statements:
            if used := _USE.search(text):
                schema = used[1]
            for statement in understood(text, schema, dialect):
                if _defines_structure(statement, text):
                    if isinstance(statement, Unknown) and not schema:
                        todo = "Write USE and the database's name before this statement"
                        raise ConfigError("bad-value", f"--schema-from: {statement.reason}", where=where, todo=todo)
                    none = Lsn(0, 0, 0)
                    made = Transaction(lsn=none, prev_lsn=none, begin=none, ddl=text, ddl_schema=schema)
                    history = history.after(made, dialect)
        return replace(history, complete=False)


def _defines_structure(statement: Statement, text: str) -> bool:
    """Whether a statement matters for structures. CREATE DATABASE does if it gives the database's tables a charset."""
    if isinstance(statement, CreateDatabase):
        return bool(statement.charset or statement.collation)
    return isinstance(statement, CreateTable | CreateTableLike) or (
        isinstance(statement, Unknown) and _TABLE.search(text) is not None
    )
