"""What is known of tables besides what the log tells: a server's catalogue, or a file of CREATE TABLE statements."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path

from pidts.excerpt.blocks import LogInput, ServerInput
from pidts.excerpt.catalogue import Catalogue
from pidts.model import ConfigError, Lsn, Position, Transaction, Where
from pidts.rules import AllowList
from pidts.schema import Dialect
from pidts.schema.concerns import split, understood
from pidts.schema.history import History
from pidts.schema.lexer import NotUnderstoodError
from pidts.schema.statements import CreateDatabase, CreateTable, CreateTableLike, Statement, Unknown
from pidts.source import SourceConfig

_ROUTINES = re.compile(r"^DELIMITER (?!;\s*$).*?^DELIMITER ;\s*$", re.IGNORECASE | re.MULTILINE | re.DOTALL)
_USE = re.compile(r"^\s*USE\s+`?([^`;]+?)`?\s*$", re.IGNORECASE | re.MULTILINE)
_TABLE = re.compile(r"^\s*CREATE\s+TABLE\b", re.IGNORECASE | re.MULTILINE)


@dataclass(frozen=True, slots=True)
class ServerCatalogue:
    """A server's, which wrote the log."""

    server: SourceConfig
    log: LogInput
    tables: AllowList

    def at(self, place: Position, lsn: Lsn, dialect: Dialect) -> tuple[History, Dialect]:
        """Behind the transaction that begins at this place and ends at this Lsn; and the server's own dialect."""
        told = Catalogue.read(self.server, self.tables)
        blocks, number = self.log.again(place), lsn.change_no
        if isinstance(self.log, ServerInput):
            changes = [change for change in told.changes_ahead(blocks, number) if change.lsn > lsn]
            return told.before(changes, number, dialect), told.dialect
        changes = [change for change in told.changes_of_copy(blocks, number) if change.lsn > lsn]
        # The files may be another server's, whose log says nothing about when this one's catalogue was read.
        return told.history.before(changes, dialect), told.dialect


@dataclass(frozen=True, slots=True)
class ScriptCatalogue:
    """A file of statements, such as `mysqldump --no-data` writes: the tables as they were where reading begins."""

    path: Path

    def begin(self, dialect: Dialect) -> History:
        """What the statements make; others in the file do not matter."""
        where = Where(file=str(self.path))
        try:
            statements = split(_ROUTINES.sub("", self.path.read_text("utf-8")), dialect)
        except OSError as error:
            raise ConfigError("unreadable-file", f"--schema-from: {error.strerror}", where=where) from None
        except (UnicodeDecodeError, NotUnderstoodError) as error:
            raise ConfigError("bad-value", f"--schema-from: this is no SQL: {error}", where=where) from None
        history, schema = History(), ""
        for text in statements:
            if used := _USE.search(text):
                schema = used[1]
            for statement in understood(text, schema, dialect):
                if _makes(statement, text):
                    if isinstance(statement, Unknown) and not schema:
                        todo = "Write USE and the database's name in front of it"
                        raise ConfigError("bad-value", f"--schema-from: {statement.reason}", where=where, todo=todo)
                    none = Lsn(0, 0, 0)
                    made = Transaction(lsn=none, prev_lsn=none, begin=none, ddl=text, ddl_schema=schema)
                    history = history.after(made, dialect)
        return replace(history, complete=False)


def _makes(statement: Statement, text: str) -> bool:
    """Whether a statement of a script tells a structure. A database without a charset has one that nobody tells."""
    if isinstance(statement, CreateDatabase):
        return bool(statement.charset or statement.collation)
    return isinstance(statement, CreateTable | CreateTableLike) or (
        isinstance(statement, Unknown) and _TABLE.search(text) is not None
    )
