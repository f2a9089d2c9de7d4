"""A zone that returns gets exactly the rows of its seed, even if other zones sent it changes before."""

from __future__ import annotations

from contextlib import closing

import pytest
from tests.task.zones.returning_pair import Pair

from pidts.cli.app import run_command
from pidts.model import Lsn, SourceTablesKey
from pidts.task.config.task_file import load_task


@pytest.mark.timeout(600)
def test_rows_that_only_the_zone_has_go_if_another_task_has_written_there_too(pair: Pair) -> None:
    """The records of a third zone's task name the table. A copy outside a return would keep the rows of this task."""
    config = load_task(pair.file.with_name("zones.yaml@a-b"))
    third = f"k_{pair.database}-c-b"
    with closing(config.target.server.connect()) as session:
        known = session.meta.structures.load(config.name, SourceTablesKey("a"))
        assert known
        session.begin()
        session.meta.structures.save(third, SourceTablesKey("c"), Lsn(0, 1, 4), known)
        session.commit()
    pair.differ()
    pair.write_file(joins=True)
    assert run_command(["zones", "return", str(pair.file), "b", "--yes", "--discard-unsent"]) == 0
    assert pair.rows("b") == pair.rows("a")
    pair.write_file(joins=False)
    pair.demand_returned()
