"""Connections of other applications to a target."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pymysql
import pytest

from pidts.target import MySqlTarget


@pytest.fixture
def rival(target: MySqlTarget) -> Iterator[Callable[..., Any]]:
    """Runs a statement on a connection of another application."""
    connection = pymysql.connect(
        host=target.host,
        port=target.port,
        user=target.user,
        password=target.password,
        autocommit=True,
        ssl_disabled=True,
    )

    def run(sql: str) -> Any:
        with connection.cursor() as cursor:
            cursor.execute(sql)
            return cursor.fetchall()

    yield run
    with suppress(pymysql.err.Error):
        connection.close()
