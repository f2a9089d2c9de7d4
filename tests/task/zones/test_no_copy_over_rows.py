"""Unless a zone returns, no table is copied over its rows, whatever the log of the task's source lacks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from tests.forked_programs import LoadedPrograms
from tests.task.zones.returning_pair import Pair

from pidts.model import Halted, Table, TableName
from pidts.plan import CopyMode
from pidts.task.config.task_file import TaskConfig
from pidts.task.run.table_set import demand_no_rows_in_zone
from pidts.task.tables.target_fit import TableFit


@pytest.fixture
def other(pair: Pair) -> Iterator[str]:
    """Returns a database of zone a that is not part of the tasks."""
    name = f"{pair.database}_other"
    pair.sql("a", f"CREATE DATABASE {name}")
    yield name
    pair.sql("a", f"DROP DATABASE {name}")


@pytest.mark.timeout(600)
def test_another_table_that_takes_a_name_is_not_copied_over_rows(
    pair: Pair, other: str, programs: LoadedPrograms
) -> None:
    pair.sql("b", "INSERT INTO t VALUES (7, 7)")
    pair.sql("a", f"CREATE TABLE {other}.new (id INT PRIMARY KEY, n INT NOT NULL)")
    pair.sql("a", f"RENAME TABLE t TO {other}.old, {other}.new TO t")
    ran = programs.run(["run", f"{pair.file}@a-b", "--until-synced"], 400)
    assert ran.returncode == Halted.exit_code
    assert "zone-copy" in ran.stderr.decode()
    assert pair.rows("b") == [(1, 1), (2, 2), (7, 7)]


@pytest.mark.parametrize("mode", [CopyMode.REPAIR, CopyMode.ADD])
@pytest.mark.parametrize("is_between_zones", [False, True])
def test_only_between_zones_and_only_over_rows(mode: CopyMode, *, is_between_zones: bool) -> None:
    config = cast(
        "TaskConfig",
        SimpleNamespace(
            into_zone="b" if is_between_zones else None, source=SimpleNamespace(source_id="a"), path=Path("zones.yaml")
        ),
    )
    full, empty = (
        TableFit(name, Table(name, ()), mode, has_rows=has_rows)
        for name, has_rows in ((TableName("shop", "full"), True), (TableName("shop", "empty"), False))
    )
    demand_no_rows_in_zone(config, [empty])
    if is_between_zones:
        with pytest.raises(Halted, match=r"structure of shop\.full,") as caught:
            demand_no_rows_in_zone(config, [full, empty])
        assert caught.value.code == "zone-copy"
    else:
        demand_no_rows_in_zone(config, [full, empty])
