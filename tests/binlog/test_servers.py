"""The logs that the servers of these tests write are decoded to the rows that the servers' own SELECT returns."""

from __future__ import annotations

import pymysql
import pytest
from tests.binlog.logs.scenarios import play, replayed, scenarios


@pytest.mark.parametrize("name", ["types", "transactions", "old-times", "metadata"])
def test_the_rows_of_the_log_are_the_rows_of_the_server(mysql_like, name):
    for scenario in scenarios(mysql_like.kind):
        if scenario.name == name:
            with (
                pymysql.connect(
                    host=mysql_like.host,
                    port=mysql_like.port,
                    user=mysql_like.user,
                    password=mysql_like.password,
                    charset="utf8mb4",
                    autocommit=True,
                    ssl_disabled=True,
                ) as connection,
                connection.cursor() as cursor,
            ):
                recording = play(cursor, mysql_like.kind, scenario, mysql_like.directory / "binlog")
                for table in scenario.tables:
                    cursor.execute(f"DROP DATABASE IF EXISTS {table.name.schema}")
            assert recording.rows
            assert replayed(recording) == recording.rows
