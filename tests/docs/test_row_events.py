"""The pages name the number of rows and the privileges with which rows are written to MariaDB as row events."""

from __future__ import annotations

import pytest
from tests.docs.test_pages import ROOT

from pidts.schema import Dialect
from pidts.target.mysql.privileges import for_row_events
from pidts.target.mysql.row_events.writer import LEAST
from pidts.target.mysql.server import TargetServer

MARIADB = TargetServer(
    dialect=Dialect(mariadb=True, version=(10, 11, 0)),
    tidb=False,
    collations=frozenset(),
    max_packet=1 << 24,
    explicit_timestamp=True,
)


@pytest.mark.parametrize("page", ["docs/internals/applying-changes.md", "docs/reference/performance.md"])
def test_the_page_names_the_number_of_rows_and_the_privileges(page: str) -> None:
    text = " ".join((ROOT / page).read_text("utf-8").split())
    assert f"{LEAST} rows of a table or more" in text
    for privilege in for_row_events(MARIADB, ["shop"]):
        assert privilege.name in text
