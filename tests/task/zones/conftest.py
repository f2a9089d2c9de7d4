"""The pair of zones that the tests of this folder share."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.forked_programs import LoadedPrograms
from tests.task.zones.returning_pair import Pair, RunSql

from pidts.sandbox import Server


@pytest.fixture
def pair(
    tmp_path: Path, mariadb: Server, mysql97: Server, database: str, run_sql: RunSql, programs: LoadedPrograms
) -> Pair:
    return Pair(tmp_path, {"a": mariadb, "b": mysql97}, database, run_sql, programs)
