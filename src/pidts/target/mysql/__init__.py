"""MySQL, MariaDB and TiDB as targets."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import pymysql
from pymysql.constants import CLIENT

from pidts.login import Tls
from pidts.login.link import Link
from pidts.login.password_file import state_for_another_process, with_password
from pidts.login.plugins import PLUGINS
from pidts.target.mysql.connection import SessionSettings
from pidts.target.mysql.driver import force_close, wait_without_end
from pidts.target.mysql.errors import translate_connect
from pidts.target.mysql.session import MySqlSession


@dataclass(frozen=True, slots=True)
class MySqlTarget(SessionSettings):
    """The configuration of a MySQL, MariaDB or TiDB target: where to connect, and as whom."""

    host: str
    port: int = 3306
    user: str = "root"
    password: str = field(default="", repr=False)
    connect_timeout: int = 10
    tls: Tls = field(default_factory=Tls)
    password_file: str = ""
    """The file from which the password comes; each login reads it again. Empty if there is no such file."""

    piece_rows: ClassVar[int] = 2_500
    buffers_rows: ClassVar[bool] = False

    def __getstate__(self) -> list[Any]:
        """Returns the state for a pickle: another process gets the last password that the server has accepted."""
        return state_for_another_process(self)

    def connect(self) -> MySqlSession:
        """Returns a new session. A lost connection is detected after half a minute; a statement may take hours."""
        connection = with_password(self._log_in, self)
        try:
            wait_without_end(connection)
            return MySqlSession(connection, self)
        except BaseException:
            force_close(connection)
            raise

    def _log_in(self, password: str) -> Link:
        try:
            return Link(
                host=self.host,
                port=self.port,
                user=self.user,
                # The driver would encode a text in latin1, but the server's own clients send its bytes in UTF-8.
                password=password.encode(),
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


__all__ = ["MySqlSession", "MySqlTarget"]
