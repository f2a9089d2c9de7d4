"""A source, a target with a copy of its rows, and a task file; no task runs unless a test starts one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml
from tests.target.conformance.samples import write

from pidts.model import Table, TableName
from pidts.reduce import Counts, NetChange
from pidts.sandbox import Server, start_mariadb
from pidts.source import connect, read_structures
from pidts.source.rows import stream_rows
from pidts.task.config.task_file import TaskConfig, load_task

RunSql = Callable[..., list[tuple[Any, ...]]]


@dataclass(frozen=True)
class Pair:
    """Two servers with the same tables."""

    source: Server
    target: Server
    config: TaskConfig
    run_sql: RunSql
    in_one_session: Callable[..., None]

    def on_source(self, *statements: str) -> None:
        for statement in statements:
            self.run_sql(self.source, statement, database=self.config.name)

    def on_target(self, *statements: str) -> None:
        for statement in statements:
            self.run_sql(self.target, statement, database=self.database)

    @property
    def database(self) -> str | None:
        return self.config.target.database if self.target.kind == "postgres" else None

    def tables(self) -> dict[TableName, Table]:
        with closing(connect(self.config.source.server)) as session:
            return read_structures(session, self.config.allow)

    def copy(self, *, made: bool = False) -> None:
        """Creates the tables on the target, unless they exist, with the rows that the source has now."""
        with (
            closing(connect(self.config.source.server)) as source,
            closing(self.config.target.server.connect()) as target,
        ):
            target.meta.prepare()
            for table in read_structures(source, self.config.allow).values():
                for statement in () if made else target.schema.create_statements(table).statements:
                    target.execute(statement)
                for rows in stream_rows(source, table):
                    deletes = rows.select(list(table.identity or rows.column_names)).slice(0, 0)
                    times = None if table.identity else pa.array([], pa.int64())
                    write(target, NetChange(table, deletes, rows, Counts(), times))


@pytest.fixture(scope="session")
def other_mariadb() -> Iterator[Server]:
    """Starts a second MariaDB, since tables have the same names on both sides."""
    with start_mariadb() as server:
        yield server


@pytest.fixture
def pair_of(
    tmp_path: Path, database: str, run_sql: RunSql, in_one_session: Callable[..., None]
) -> Iterator[Callable[[Server, Server], Pair]]:
    """`pair_of(source, target)` makes the schema `database` on both servers, and a task file."""
    made: list[Pair] = []

    def make(source: Server, target: Server) -> Pair:
        about: dict[str, Any] = {
            "host": target.host,
            "port": target.port,
            "user": target.user,
            "password": target.password,
        }
        about |= {"type": "postgresql", "database": database} if target.kind == "postgres" else {"type": "mysql"}
        login = {"host": source.host, "port": source.port, "user": source.user, "password": source.password}
        task = {
            "name": database,
            "task-mode": "all",
            "target-database": about,
            "mysql-instances": [{"source-id": "one", "from": login, "block-allow-list": "ours"}],
            "block-allow-list": {"ours": {"do-dbs": [database]}},
        }
        path = tmp_path / "task.yaml"
        path.write_text(yaml.safe_dump(task))
        made.append(Pair(source, target, load_task(path), run_sql, in_one_session))
        return made[-1]

    yield make
    for pair in made:
        if pair.target.kind != "postgres":
            run_sql(pair.target, f"DROP DATABASE IF EXISTS `{database}`")
