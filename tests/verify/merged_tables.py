"""Two sources with merged tables, a target with a copy of their rows, and a task file."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from pidts.apply.merge.discriminating_keys import keyed_targets
from pidts.model import TableName
from pidts.reduce import Counts, NetChange
from pidts.sandbox import Server
from pidts.source import connect, read_structures
from pidts.source.rows import stream_rows
from pidts.task.config.task_file import TaskConfig, load_parts

RunSql = Callable[..., list[tuple[Any, ...]]]
EXTRACTS = {"extract-table": {"table-regexp": "(.*)", "target-column": "c_table"}}
SOURCE_TOO = {**EXTRACTS, "extract-source": {"source-regexp": "(.*)", "target-column": "c_source"}}


@dataclass(frozen=True)
class Shards:
    """Sources `a` and `b`, each with a schema of the task's name. Its tables `t_*` are merged into `t`."""

    sources: dict[str, Server]
    target: Server
    parts: tuple[TaskConfig, ...]
    run_sql: RunSql

    @property
    def name(self) -> str:
        return self.parts[0].name

    @property
    def target_table(self) -> TableName:
        return TableName(self.name, "t")

    def on(self, source: str, *statements: str) -> None:
        for statement in statements:
            self.run_sql(self.sources[source], statement, database=self.name)

    def on_target(self, *statements: str) -> list[tuple[Any, ...]]:
        database = self.name if self.target.kind == "postgres" else None
        found: list[tuple[Any, ...]] = []
        for statement in statements:
            found = self.run_sql(self.target, statement.format(f"{self.name}.t"), database=database)
        return found

    def copy(self, *, keyed: bool = False, made: bool = False) -> None:
        """Creates the target's table, unless it exists, with the rows of all sources.

        If not `keyed`, the table is created as if the sources' key distinguished all rows.
        """
        with closing(self.parts[0].target.server.connect()) as target:
            target.meta.prepare()
            for part in self.parts:
                rules = part.rules
                with closing(connect(part.source.server)) as source:
                    tables = read_structures(source, part.allow)
                    if keyed or made:
                        rules = replace(rules, keyed=keyed_targets(target, rules, tables.values()))
                    for table in tables.values():
                        target_table = rules.target_table(table)
                        for statement in () if made else target.schema.create_statements(target_table).statements:
                            target.execute(statement)
                        made = True
                        for rows in stream_rows(source, table):
                            become = rules.rows(table, rows)
                            target.begin()
                            nothing = become.select(list(target_table.identity)).slice(0, 0)
                            target.write(NetChange(target_table, nothing, become, Counts()))
                            target.commit()


def make_shards(
    folder: Path, name: str, sources: dict[str, Server], target: Server, run_sql: RunSql, **more: Any
) -> Shards:
    """`more`: `extracts` of the route, `mapping` of a column."""
    about = {"host": target.host, "port": target.port, "user": target.user, "password": target.password}
    kind: dict[str, Any] = {"type": "postgresql", "database": name} if target.kind == "postgres" else {"type": "mysql"}
    instances = [
        {
            "source-id": source,
            "from": {"host": server.host, "port": server.port, "user": server.user, "password": server.password},
            "block-allow-list": "ours",
            "route-rules": ["merge"],
            **({"column-mapping-rules": [f"of-{source}"]} if "mapping" in more else {}),
        }
        for source, server in sources.items()
    ]
    route = {"schema-pattern": name, "table-pattern": "t_*", "target-schema": name, "target-table": "t"}
    task = {
        "name": name,
        "task-mode": "all",
        "is-sharding": True,
        "target-database": {**about, **kind},
        "mysql-instances": instances,
        "block-allow-list": {"ours": {"do-dbs": [name]}},
        "routes": {"merge": {**route, **more.get("extracts", {})}},
    }
    if "mapping" in more:
        task["column-mappings"] = {
            f"of-{source}": {
                "schema-pattern": name,
                "table-pattern": "t_*",
                "expression": more["mapping"],
                "target-column": "id",
                "arguments": [str(number), "", "t", "_"] if more["mapping"] == "partition id" else [f"{source}-"],
            }
            for number, source in enumerate(sources, 1)
        }
    path = folder / "task.yaml"
    path.write_text(yaml.safe_dump(task))
    return Shards(sources, target, load_parts(path), run_sql)
