"""The table of the tests between zones, unless a module has another table."""

from __future__ import annotations

from contextlib import closing

import pytest
from tests.target.conformance.samples import INT, create, table, text

from pidts.apply import Target
from pidts.model import Table, TableName
from pidts.target import IcebergTarget, PostgresTarget


@pytest.fixture
def structure(target: Target, name: TableName) -> Table:
    if isinstance(target, IcebergTarget | PostgresTarget):
        pytest.skip("no program writes there, so it is no target between zones")
    made = table(name, {"id": INT, "s": text(), "u": INT, "t": text()})
    with closing(target.connect()) as session:
        create(session, made)
    return made
