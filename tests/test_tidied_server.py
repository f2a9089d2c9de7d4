"""The tests of a file find a server without the log of earlier files, even if a killed program still reads it."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable
from contextlib import closing
from typing import Any

from tests.running import connect
from tests.tidied_server import tidy

from pidts.sandbox import Server

_BINLOG_DUMP = 0x12


def test_a_reader_that_takes_nothing_keeps_no_log(
    mariadb: Server, database: str, run_sql: Callable[..., list[tuple[Any, ...]]]
) -> None:
    log = run_sql(mariadb, "SHOW BINARY LOGS")[-1][0]
    run_sql(mariadb, f"CREATE TABLE {database}.big (t LONGTEXT)")
    # More than the buffers of a connection hold, so the server waits in the middle of this log.
    run_sql(mariadb, f"INSERT INTO {database}.big SELECT REPEAT('x', 1000000) FROM seq_1_to_40", database=database)
    with closing(connect(mariadb)) as reader, closing(connect(mariadb)) as other:
        reader._sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        reader.cursor().execute("SET @master_binlog_checksum = 'CRC32'")
        reader._execute_command(_BINLOG_DUMP, struct.pack("<IHI", 4, 0, 4711) + log.encode())
        states: list[tuple[Any, ...]] = []
        deadline = time.monotonic() + 30
        while ("Binlog Dump", "Writing to net") not in states:
            assert time.monotonic() < deadline, states
            states = run_sql(mariadb, "SELECT command, state FROM information_schema.processlist")
        tidy(other, mariadb.kind)
        assert [name for name, *_ in run_sql(mariadb, "SHOW BINARY LOGS")] != [log]
        assert len(run_sql(mariadb, "SHOW BINARY LOGS")) == 1
