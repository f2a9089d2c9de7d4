"""`pidts events` as a function, and a connection for what has to happen in one session."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pymysql
import pytest

from pidts.cli.app import run_command
from pidts.sandbox import Server

Shown = Callable[..., list[dict[str, Any]]]
InOneSession = Callable[..., None]


@pytest.fixture
def shown(capsys: pytest.CaptureFixture[str]) -> Shown:
    """The events that a command line prints; its notes go to stderr."""

    def run(*arguments: str) -> list[dict[str, Any]]:
        code = run_command(["events", *arguments])
        output = capsys.readouterr()
        assert code == 0, output.err
        run.notes = output.err
        return [json.loads(line) for line in output.out.splitlines()]

    return run


@pytest.fixture
def in_one_session() -> InOneSession:
    """Runs statements on a server, one after the other."""

    def run(server: Server, database: str, *statements: str) -> None:
        with (
            closing(
                pymysql.connect(
                    host=server.host,
                    port=server.port,
                    user=server.user,
                    password=server.password,
                    database=database,
                    charset="utf8mb4",
                    autocommit=True,
                    ssl_disabled=True,
                )
            ) as connection,
            connection.cursor() as cursor,
        ):
            for statement in statements:
                cursor.execute(statement)

    return run
