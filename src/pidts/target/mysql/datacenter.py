"""The tables of an Inception Gate datacenter, as one session reads and writes them.

`transfer_data` and `transfer_checkpoint` are public: programs that were written for Inception Gate read them. A program
may write the last id that it has read to `reader_cursor`. Then PiDTS removes no rows with higher ids.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from pidts.model import Column, ColumnType, Halted, Kind, TableName, Where
from pidts.target.mysql.dialect import identifier
from pidts.target.mysql.session import MySqlSession

DATA, CHECKPOINT, READERS = "transfer_data", "transfer_checkpoint", "reader_cursor"
_PAGE_ROWS, _PAGE_BYTES = 5_000, 8 << 20

_TABLES = {
    DATA: """(
  `id` bigint(20) unsigned NOT NULL COMMENT 'id but not auto increment',
  `tid` bigint(20) unsigned NOT NULL COMMENT 'transaction id',
  `dbname` varchar(64) DEFAULT NULL COMMENT 'dbname',
  `tablename` varchar(64) DEFAULT NULL COMMENT 'tablename',
  `create_time` timestamp NOT NULL DEFAULT CURRENT_TIMESTAMP COMMENT 'the create time of event ',
  `instance_name` varchar(64) DEFAULT NULL COMMENT 'the source instance of this event',
  `optype` varchar(64) DEFAULT NULL COMMENT 'operation type, include insert, update...',
  `data` longtext COMMENT 'binlog transfer data, format json',
  PRIMARY KEY (`id`,`tid`),
  KEY `idx_dbtablename` (`dbname`,`tablename`),
  KEY `idx_create_time` (`create_time`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COMMENT='binlog transfer data'""",
    CHECKPOINT: """(
  `id` bigint(20) unsigned NOT NULL COMMENT 'eid',
  `tid` bigint(20) unsigned NOT NULL COMMENT 'tid'
) ENGINE=InnoDB DEFAULT CHARSET=utf8 COMMENT='checkpoint sequence, before which are all avialable'""",
    READERS: """(
  `name` varchar(64) NOT NULL COMMENT 'a program that reads transfer_data',
  `id` bigint(20) unsigned NOT NULL COMMENT 'the last id that it has read: older rows may go',
  PRIMARY KEY (`name`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COMMENT='pidts.retention removes no row that one of these has not read'""",
}
_NUMBER = ColumnType(Kind.BIGINT, unsigned=True)
_TEXT = ColumnType(Kind.LONGTEXT, charset="utf8mb4", collation="utf8mb4_bin")
_SIZES = (Column("id", _NUMBER), Column("size", _NUMBER))
_RECORDS = (
    *(Column(name, _NUMBER) for name in ("id", "tid")),
    *(Column(name, _TEXT) for name in ("dbname", "tablename", "instance_name", "optype", "data")),
)
"""The columns that queries select from records."""
_COLUMNS = {
    DATA: ("id", "tid", "dbname", "tablename", "create_time", "instance_name", "optype", "data"),
    CHECKPOINT: ("id", "tid"),
    READERS: ("name", "id"),
}


@dataclass(frozen=True, slots=True)
class Numbers:
    """The last `id` and `tid` that were given to a record of a datacenter."""

    id: int
    tid: int


class Datacenter:
    """Reads and writes a datacenter in one session, and in the session's transaction."""

    def __init__(self, session: MySqlSession, database: str) -> None:
        self._session, self._database = session, database
        self._data, self._checkpoint, self._readers = (
            f"{identifier(database)}.{identifier(name)}" for name in (DATA, CHECKPOINT, READERS)
        )

    def prepare(self) -> None:
        """Creates the database and the tables that are missing. Must not be called in a transaction."""
        self._session.run(f"CREATE DATABASE IF NOT EXISTS {identifier(self._database)}", ())
        for sql in self.create_statements():
            self._session.run(sql, ())

    def misfit(self) -> str | None:
        """Returns how an existing table differs from the public form; None if nothing differs."""
        for name, columns in _COLUMNS.items():
            rows = self._session.rows(
                "SELECT column_name FROM information_schema.columns WHERE table_schema = %s AND table_name = %s "
                "ORDER BY ordinal_position",
                (self._database, name),
            )
            found = tuple(str(column).lower() for (column,) in rows)
            if found and found != columns:
                return f"{self._database}.{name} has the columns {', '.join(found)}, not {', '.join(columns)}"
        return None

    def exists(self) -> bool:
        """Whether Inception Gate, or a channel that has begun, has created the table of records."""
        return self._has(DATA)

    def has_notes(self) -> bool:
        """Whether the datacenter has the table in which tasks keep notes."""
        return self._has("note")

    def create_statements(self) -> list[str]:
        """Returns the statements that create the public tables that are missing."""
        return [
            f"CREATE TABLE IF NOT EXISTS {identifier(self._database)}.{identifier(name)} {definition}"
            for name, definition in _TABLES.items()
            if not self._has(name)
        ]

    def begin(self) -> None:
        """Adds the row of `transfer_checkpoint` if it is missing, in the open transaction.

        If Inception Gate has filled the datacenter, new numbers follow its last numbers.
        """
        if self._session.rows(f"SELECT 1 FROM {self._checkpoint} LIMIT 1 FOR UPDATE"):
            return
        if self._session.rows(f"SELECT 1 FROM {self._data} LIMIT 1"):
            raise self._altered(f"{DATA} has rows, and {CHECKPOINT} has none")
        self._session.run(f"INSERT INTO {self._checkpoint} VALUES (0, 0)", ())

    def numbers(self) -> Numbers:
        """Returns the numbers of `transfer_checkpoint`, which stays locked until the transaction ends."""
        rows = self._session.rows(f"SELECT id, tid FROM {self._checkpoint} FOR UPDATE")
        if len(rows) != 1:
            raise self._altered(f"{CHECKPOINT} has {len(rows)} rows, not one")
        return Numbers(int(rows[0][0]), int(rows[0][1]))

    def reached(self) -> Numbers | None:
        """Returns the numbers of `transfer_checkpoint` without a lock; None if the channel has not begun."""
        if not self._has(CHECKPOINT):
            return None
        rows = self._session.rows(f"SELECT id, tid FROM {self._checkpoint}")
        return Numbers(int(rows[0][0]), int(rows[0][1])) if len(rows) == 1 else None

    def pages(self, after: int, upto: int, *, backwards: bool = False) -> Iterator[Sequence[tuple[Any, ...]]]:
        """Yields pages of records with ids above `after`, up to `upto`; the columns are those of `_RECORDS`."""
        order = "DESC" if backwards else "ASC"
        sql = (
            f"SELECT id, COALESCE(LENGTH(data), 0) FROM {self._data} WHERE id > %s AND id <= %s "
            f"ORDER BY id {order} LIMIT {_PAGE_ROWS}"
        )
        while sizes := self._session.many(sql, (after, upto), _SIZES):
            for part in _portions(sizes):
                yield self._session.many(
                    f"SELECT id, tid, dbname, tablename, instance_name, optype, data FROM {self._data} "
                    f"WHERE id BETWEEN %s AND %s ORDER BY id {order}, tid {order}",
                    (min(part), max(part)),
                    _RECORDS,
                )
            last = sizes[-1][0]
            after, upto = (after, last - 1) if backwards else (last, upto)

    def records(self, ids: Sequence[int]) -> Sequence[tuple[Any, ...]]:
        """Returns the records with these ids, in the form of `pages`."""
        placeholders = ", ".join(["%s"] * len(ids))
        return self._session.rows(
            f"SELECT id, tid, dbname, tablename, instance_name, optype, data FROM {self._data} "
            f"WHERE id IN ({placeholders})",
            tuple(ids),
        )

    def move(self, before: Numbers, after: Numbers) -> None:
        """Moves `transfer_checkpoint` forward, in the open transaction."""
        sql = f"UPDATE {self._checkpoint} SET id = %s, tid = %s WHERE id = %s AND tid = %s"
        if self._session.run(sql, (after.id, after.tid, before.id, before.tid))[1] != 1:
            raise self._altered(f"another program has altered {CHECKPOINT}")

    def add(self, records: pa.Table) -> None:
        """Adds records in the open transaction."""
        name = TableName(self._database, DATA)
        table = self._session.schema.structure(name)
        if table is None:
            raise self._altered(f"{DATA} is gone")
        if not self._session.load(table, records.cast(table.arrow)):
            raise self._altered(f"{DATA} already has rows that were about to be written")

    def rows_beyond(self, id_: int) -> bool:
        """Whether rows have ids above `id_`: rows of an interrupted batch, or of other programs."""
        return bool(self._session.rows(f"SELECT 1 FROM {self._data} WHERE id > %s LIMIT 1", (id_,)))

    def remove_beyond(self, id_: int) -> None:
        """Removes the rows with ids above `id_`, in the open transaction."""
        self._session.run(f"DELETE FROM {self._data} WHERE id > %s", (id_,))

    def remove_old(self, seconds: int, most: int) -> int:
        """Removes at most `most` rows that are older than `seconds`, and returns their number.

        Rows are removed in the order of their ids. The first row that is younger, or that a reader has not read, stays,
        and all rows after it stay, too. Rows with ids above the id in `transfer_checkpoint` also stay.
        """
        cursors = self._session.rows(f"SELECT MIN(id) FROM {self._readers}")
        done = self._session.rows(f"SELECT MIN(id) FROM {self._checkpoint}")
        limit = min(int(id_) for ((id_,),) in (cursors, done) if id_ is not None) if done[0][0] is not None else 0
        rows = self._session.rows(
            f"SELECT id, create_time < CURRENT_TIMESTAMP - INTERVAL %s SECOND FROM {self._data} "
            "WHERE id <= %s ORDER BY id, tid LIMIT %s",
            (seconds, limit, most),
        )
        old = 0
        for _, is_old in rows:
            if not int(is_old):
                break
            old += 1
        if not old:
            return 0
        return self._session.run(f"DELETE FROM {self._data} WHERE id <= %s", (rows[old - 1][0],))[1]

    def _has(self, table: str) -> bool:
        sql = "SELECT 1 FROM information_schema.tables WHERE table_schema = %s AND table_name = %s"
        return bool(self._session.rows(sql, (self._database, table)))

    def _altered(self, what: str) -> Halted:
        return Halted(
            "datacenter-altered",
            f"the datacenter {self._database} has changed since the task wrote to it: {what}",
            where=Where(table=f"{self._database}.{CHECKPOINT}"),
            todo="Restore the former rows of both tables, or begin a new channel with another datacenter",
        )


def _portions(sizes: Sequence[tuple[int, int]]) -> Iterator[list[int]]:
    """Yields lists of successive ids whose records are small enough together; a larger record is alone in its list."""
    part: list[int] = []
    total = 0
    for id_, size in sizes:
        if part and total + size > _PAGE_BYTES:
            yield part
            part, total = [], 0
        part.append(id_)
        total += size
    yield part
