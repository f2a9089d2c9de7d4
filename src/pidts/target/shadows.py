"""Records, in `pidts_meta`, online schema changes that are under way; the SQL is for all servers."""

from __future__ import annotations

import json
from collections.abc import Mapping

from pidts.model import Shadow, TableName
from pidts.target.meta_schema import Run

_OURS = "task = %s AND source = %s"


class ShadowRecord:
    """The online schema changes, as one session reads and writes them; the caller decides about transactions."""

    def __init__(self, run: Run) -> None:
        self._run = run

    def load(self, task: str, source: str) -> dict[TableName, Shadow]:
        """Returns all of a source, by the source's names."""
        sql = f"SELECT table_schema, table_name, about FROM pidts_meta.shadow WHERE {_OURS}"
        rows, _ = self._run(sql, (task, source))
        return {TableName(schema, name): Shadow.from_json(json.loads(about)) for schema, name, about in rows}

    def save(self, task: str, source: str, shadows: Mapping[TableName, Shadow | None]) -> None:
        """Insert or overwrite; None forgets."""
        for name, shadow in sorted(shadows.items(), key=lambda item: item[0]):
            place = (task, source, name.schema, name.name)
            self._run(f"DELETE FROM pidts_meta.shadow WHERE {_OURS} AND table_schema = %s AND table_name = %s", place)
            if shadow is not None:
                self._run(
                    "INSERT INTO pidts_meta.shadow (task, source, table_schema, table_name, about) "
                    "VALUES (%s, %s, %s, %s, %s)",
                    (*place, json.dumps(shadow.to_json(), ensure_ascii=True)),
                )

    def replace(self, task: str, source: str, shadows: Mapping[TableName, Shadow]) -> None:
        """Saves these and removes all others: those of an earlier task of this name are of another place of the log."""
        self._run(f"DELETE FROM pidts_meta.shadow WHERE {_OURS}", (task, source))
        self.save(task, source, shadows)
