"""MySQL, MariaDB and TiDB as targets."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import pymysql
from pymysql.constants import CLIENT

from pidts.login import Tls
from pidts.login.link import Link
from pidts.login.plugins import PLUGINS
from pidts.target.meta_schema import USUAL
from pidts.target.mysql.driver import force_close, wait_without_end, watch
from pidts.target.mysql.errors import translate_connect
from pidts.target.mysql.session import MySqlSession


@dataclass(frozen=True, slots=True)
class MySqlTarget:
    """The configuration of a MySQL, MariaDB or TiDB target: where to connect, and as whom."""

    host: str
    port: int = 3306
    user: str = "root"
    password: str = field(default="", repr=False)
    connect_timeout: int = 10
    tls: Tls = field(default_factory=Tls)
    meta_schema: str = USUAL
    """The schema of PiDTS's own tables."""
    variables: tuple[tuple[str, str], ...] = ()
    """Session variables of the task, set after the variables that PiDTS sets itself."""
    max_packet: int = 0
    """The largest size of a statement in bytes; 0: the server's limit."""
    zone: str = ""
    """The zone whose changes the task writes to this target; empty if the task is not between zones."""
    forwards: tuple[str, ...] = ()
    """The other zones whose changes the task forwards."""
    locks_gaps: bool = False
    """Whether sessions lock gaps: if a transaction has found no row with a key, no other session can insert this
    key.
    """

    piece_rows: ClassVar[int] = 2_500
    buffers_rows: ClassVar[bool] = False

    def connect(self) -> MySqlSession:
        """Returns a new session. A lost connection is detected after half a minute; a statement may take hours."""
        try:
            connection = Link(
                host=self.host,
                port=self.port,
                user=self.user,
                # The driver would encode a text in latin1, but the server's own clients send its bytes in UTF-8.
                password=self.password.encode(),
                charset="utf8mb4",
                autocommit=True,
                connect_timeout=self.connect_timeout,
                # If the peer is not MySQL, it may never answer, so the login has a limit. After the login, statements
                # may take long.
                read_timeout=self.connect_timeout,
                # LOCAL_FILES lets `driver.load` answer LOAD DATA LOCAL with a text of PiDTS. The driver's own answer,
                # which would read the file that the server asks for, stays off.
                client_flag=CLIENT.FOUND_ROWS | CLIENT.MULTI_STATEMENTS | CLIENT.LOCAL_FILES,
                program_name="pidts",
                auth_plugin_map=PLUGINS,
                **self.tls.mysql(),
            )
        except (pymysql.err.Error, OSError) as error:
            raise translate_connect(error, f"{self.host}:{self.port}") from error
        try:
            wait_without_end(connection)
            watch(connection)
            return MySqlSession(
                connection,
                meta_schema=self.meta_schema,
                variables=self.variables,
                max_packet=self.max_packet,
                zone=self.zone,
                forwards=self.forwards,
                locks_gaps=self.locks_gaps,
            )
        except BaseException:
            force_close(connection)
            raise


__all__ = ["MySqlSession", "MySqlTarget"]
