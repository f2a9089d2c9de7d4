"""Reads a server's tables, and computes their structures at an earlier place in the log.

The server's catalog shows the *current* tables. The log between the earlier place and the present is searched for
schema changes. If a change concerns a table, the table's structure before the change is not known.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass

from pidts.binlog.events import EventType
from pidts.binlog.walk import iter_raw
from pidts.excerpt.blocks import LogBlock, completed, server_blocks
from pidts.excerpt.files import FIRST_EVENT
from pidts.model import Lsn, Position, Transaction
from pidts.rules import AllowList
from pidts.schema import Dialect
from pidts.schema.evolve.known_structures import KnownStructures
from pidts.source import SourceConfig, binary_logs, connect
from pidts.source.current_tables import CurrentTables, look_at_tables

_TYPE_AT = 4
_MADE = slice(0, 9)
"""The bytes of a log file's first event that say when the file was created, and by which server."""


@dataclass(frozen=True, slots=True)
class ServerTables:
    """The current tables of a server, which are compared with its log."""

    server: SourceConfig
    reading: CurrentTables
    files: tuple[str, ...]
    """The log files that the server still has."""

    @classmethod
    def read(cls, server: SourceConfig, tables: AllowList) -> ServerTables:
        """Reads the tables from the server's catalog."""
        with closing(connect(server)) as session:
            return cls(server, look_at_tables(session, tables), tuple(name for name, _ in binary_logs(session)))

    def before(self, changes: Iterable[Transaction], change_no: int, dialect: Dialect) -> KnownStructures:
        """Returns the structures as they were before all of these schema changes.

        Structures of tables that changed while the catalog was read are not known: the catalog may show the state
        before or after such a change.
        """
        began, ended = Lsn.at(self.reading.began, change_no), Lsn.at(self.reading.ended, change_no)
        passed = [change for change in changes if change.lsn <= ended]
        doubtful = [change for change in passed if change.lsn > began]
        return self.reading.history.doubting(doubtful, dialect).before(passed, dialect)

    def changes_ahead(self, blocks: Iterable[LogBlock], change_no: int) -> Iterator[Transaction]:
        """Yields the schema changes of the log in these blocks, up to the place at which the catalog was read."""
        ended = Lsn.at(self.reading.ended, change_no)
        for change in schema_changes(blocks, change_no, ended):
            if change.begin >= ended:
                return
            yield change

    def changes_of_copy(self, blocks: Iterable[LogBlock], change_no: int) -> Iterator[Transaction]:
        """Yields the schema changes in copied log files, and in the server's own log after the last copied file.

        The server's own log is used only if the server has written the last copied file, and still has this file.
        """
        reached, copy = Lsn(change_no, 0, 0), LastFile()
        for change in schema_changes(copy.watch(blocks), change_no):
            yield change
            reached = change.lsn
        for change in schema_changes(self.blocks_from(copy), change_no):
            if change.lsn > reached:
                yield change

    def blocks_from(self, last: LastFile) -> Iterator[LogBlock]:
        """Yields the server's log from a file on; nothing if the file is purged, or is a file of another server."""
        if last.file not in self.files:
            return
        mine = LastFile()
        for block in mine.watch(server_blocks(self.server, Position(last.file, FIRST_EVENT))):
            if mine.made and mine.made != last.made:
                return
            yield block


class LastFile:
    """Distinguishes the log file that was read last from other files with the same name."""

    def __init__(self) -> None:
        self.file = ""
        self.made = b""

    def watch(self, blocks: Iterable[LogBlock]) -> Iterator[LogBlock]:
        """Yields the blocks unchanged, and remembers the last file."""
        for block in blocks:
            if block.begins is not None:
                self.file, self.made = block.begins.file, b""
            if not self.made:
                formats = (raw for raw in iter_raw(block.data) if raw[_TYPE_AT] == EventType.FORMAT_DESCRIPTION)
                self.made = bytes(next(formats, b"")[_MADE])
            yield block


def schema_changes(blocks: Iterable[LogBlock], change_no: int, until: Lsn | None = None) -> Iterator[Transaction]:
    """Yields the transactions with statements in blocks from a known place on, up to `until` (None: all)."""
    for found, _, _ in completed(blocks, change_no):
        if isinstance(found.what, Transaction):
            if found.what.ddl is not None:
                yield found.what
        elif until is not None and found.what.last >= until:
            return
