"""Two sources whose tables are merged, a target, and the task between them."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tests.running import NOT_THERE, Progress, connect

from pidts.model import Halt
from pidts.sandbox import Server

from .commands import Run, Task

TABLES = (
    "CREATE DATABASE {1}",
    "CREATE DATABASE {2}",
    "CREATE TABLE {1}.orders_1 (id BIGINT PRIMARY KEY, v VARCHAR(20) NOT NULL, n INT)",
    "CREATE TABLE {1}.orders_2 LIKE {1}.orders_1",
    "CREATE TABLE {2}.orders_3 LIKE {1}.orders_1",
    "CREATE TABLE {1}.items_1 (id BIGINT PRIMARY KEY)",
)


def routes(schema: str, *, extract: bool = False) -> dict[str, dict[str, Any]]:
    """Returns one route for each kind of table, with or without columns that say from which shard a row comes."""
    extracts = {
        "extract-table": {"table-regexp": "_(.)$", "target-column": "part"},
        "extract-schema": {"schema-regexp": "_(.)$", "target-column": "db"},
        "extract-source": {"source-regexp": "(.*)", "target-column": "origin"},
    }
    return {
        kind: {
            "schema-pattern": f"{schema}_?",
            "table-pattern": f"{kind}_*",
            "target-schema": f"{schema}_all",
            "target-table": kind,
            **(extracts if extract else {}),
        }
        for kind in ("orders", "items")
    }


@dataclass
class Shards:
    """Two sources, each with schemas `…_1` and `…_2`. Their tables `orders_…` are routed to `…_all.orders`, and so on."""

    task: Task
    sources: dict[str, Server]
    target_server: Server
    schema: str

    def __post_init__(self) -> None:
        self._opened: list[Any] = []
        self.sessions = {name: self.session(server) for name, server in self.sources.items()}
        self.target = self.session(self.target_server)
        self._cursors = {name: session.cursor() for name, session in self.sessions.items()}
        if hasattr(self.target, "prepare_threshold"):
            self.target.prepare_threshold = None
        self._target = self.target.cursor()
        for source in self.sources:
            self.on(source, *TABLES)

    def session(self, server: Server) -> Any:
        """Opens a session that ends with the test."""
        self._opened.append(connect(server))
        return self._opened[-1]

    @property
    def target_schema(self) -> str:
        return f"{self.schema}_all"

    def on(self, source: str, *statements: str) -> None:
        """Runs a statement on a source; `{1}` and `{2}` are the schemas."""
        for statement in statements:
            self._cursors[source].execute(statement.format(self.target_schema, f"{self.schema}_1", f"{self.schema}_2"))

    def at_target(self, statement: str) -> list[tuple[Any, ...]]:
        """Returns the rows that a statement finds on the target; `{0}` in it stands for the schema of the merged
        tables.

        Empty if the table does not exist yet.
        """
        try:
            self._target.execute(statement.format(self.target_schema))
            return [tuple(row) for row in self._target.fetchall()] if self._target.description else []
        except NOT_THERE:
            return []

    def on_target(self, *statements: str) -> None:
        for statement in statements:
            self._target.execute(statement.format(self.target_schema))

    def rows(self, table: str = "orders", columns: str = "*") -> list[tuple[Any, ...]]:
        return sorted(self.at_target(f"SELECT {columns} FROM {{0}}.{table}"), key=repr)

    def columns(self, table: str = "orders") -> list[str]:
        about = f"table_schema = '{{0}}' AND table_name = '{table}'"
        found = self.at_target(f"SELECT column_name FROM information_schema.columns WHERE {about} ORDER BY 1")
        return [name for (name,) in found]

    def tables(self) -> list[str]:
        found = self.at_target("SELECT table_name FROM information_schema.tables WHERE table_schema = '{0}'")
        return [name for (name,) in found]

    def halts(self) -> list[dict[str, Any]]:
        """Returns the halts of all sources, each with its source, whatever the reason is."""
        found = self.at_target("SELECT source, about FROM pidts_meta.halt ORDER BY source, about")
        return [{"source": source, **Halt.loads(about).to_json()} for source, about in found]

    def waiting(self) -> set[tuple[str, str]]:
        """Returns the shards that wait before a schema change: source, and the table without the test's own name."""
        return {
            (halt["source"], table.removeprefix(f"{self.schema}_")) for halt in self.halts() for table in halt["tables"]
        }

    def pidts(self, *words: str, code: int = 0) -> dict[str, Any]:
        done = self.task.command(*words, "--json")
        assert done.returncode == code, done.stdout.decode() + done.stderr.decode()
        said: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return said

    def locks(self) -> list[dict[str, Any]]:
        return self.pidts("ddl", "list", str(self.task.path))["locks"]

    def are_copied(self) -> bool:
        return all(Progress(self.target, name).is_copied() for name in self.sources)

    def has_all(self, run: Run, seconds: float = 120) -> None:
        """Waits until the target has all rows that the sources have now."""
        ends = [Progress(self.target, name).has(session) for name, session in self.sessions.items()]
        run.wait_until(lambda: all(has() for has in ends), "all changes of both sources are there", seconds)

    def equal(self, run: Run) -> None:
        """Checks that `pidts verify` finds no difference while the task runs."""
        assert run.process.poll() is None
        found = self.pidts("verify", str(self.task.path))
        wrong = ("missing", "extra", "different", "unsettled", "problem")
        assert [table for table in found["tables"] if any(map(table.get, wrong))] == []

    def close(self) -> None:
        for source in self.sources:
            self.on(source, "DROP DATABASE IF EXISTS {1}", "DROP DATABASE IF EXISTS {2}")
        for session in self._opened:
            session.close()


class Delays:
    """How long it takes until rows written to tables of a source are seen on the target."""

    def __init__(self, source: Any, target: Any, places: Sequence[str], tables: Sequence[str]) -> None:
        """Numbers are written to `places`, each a table and its column on the source. `tables` have them on the target."""
        self._writing, self._reading = source.cursor(), target.cursor()
        self._places = places
        self._written: list[float] = []
        self.seen: dict[str, list[float]] = {table: [] for table in tables}

    def step(self) -> None:
        """Writes one row to each table, and looks up which rows have arrived."""
        for place in self._places:
            self._writing.execute(f"INSERT INTO {place} VALUES ({len(self._written)})")
        self._written.append(time.monotonic())
        for table, seen in self.seen.items():
            self._reading.execute(f"SELECT COUNT(*) FROM {table}")
            count, now = self._reading.fetchone()[0], time.monotonic()
            seen += [now - at for at in self._written[len(seen) : count]]

    def since(self, table: str, first: int) -> list[float]:
        """Returns the delays of the rows from number `first` on, shortest first.

        A row that has not arrived counts with its wait so far.
        """
        now = time.monotonic()
        missing = [now - at for at in self._written[max(first, len(self.seen[table])) :]]
        return sorted(self.seen[table][first:] + missing)

    def count(self) -> int:
        return len(self._written)
