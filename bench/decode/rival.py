"""Decodes a log file with the reader and the classes of mysql-replication.

The program runs in an environment of its own (requirements/bench.in), and prints seconds and changes as JSON.
"""

from __future__ import annotations

import json
import sys
import time
from types import SimpleNamespace

from pymysql.protocol import MysqlPacket
from pymysqlreplication import BinLogStreamReader
from pymysqlreplication.row_event import DeleteRowsEvent, UpdateRowsEvent, WriteRowsEvent


class File:
    """A log file with the methods of a connection that the stream reader of mysql-replication calls."""

    charset = "utf8mb4"

    def __init__(self, raw: bytes) -> None:
        self.raw, self.at = raw, 4

    def _read_packet(self) -> MysqlPacket:
        if self.at >= len(self.raw):
            return MysqlPacket(b"\xfe\0\0\2\0", "utf8mb4")
        size = int.from_bytes(self.raw[self.at + 9 : self.at + 13], "little")
        event = self.raw[self.at : self.at + size]
        self.at += size
        return MysqlPacket(b"\0" + event, "utf8mb4")

    def _get_dbms(self) -> str:
        return "mariadb"

    def close(self) -> None:
        pass


def main() -> None:
    with open(sys.argv[1], "rb") as file:  # noqa: PTH123
        source = File(file.read())
    reader = BinLogStreamReader(
        connection_settings={"host": "nowhere", "user": "", "passwd": ""},
        server_id=9,
        only_events=[WriteRowsEvent, UpdateRowsEvent, DeleteRowsEvent],
        is_mariadb=True,
    )
    for name, value in {
        "_stream_connection": source,
        "_ctl_connection": source,
        "_BinLogStreamReader__connected_stream": True,
        "_BinLogStreamReader__connected_ctl": True,
        "_BinLogStreamReader__use_checksum": True,
        "_BinLogStreamReader__optional_meta_data": True,
    }.items():
        setattr(reader, name, value)
    reader.mysql_version = (10, 11, 0)
    changes = 0
    start = time.perf_counter()
    for event in reader:
        changes += len(event.rows)
    seconds = time.perf_counter() - start
    print(json.dumps(vars(SimpleNamespace(seconds=seconds, changes=changes))))


main()
