"""Values become the same SQL text as with PyMySQL's own function."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal

import pymysql
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pymysql.constants import SERVER_STATUS

from pidts.target.mysql.driver import sql_literals

VALUES = st.lists(
    st.text()
    | st.sampled_from(["a'b\\c\"\n\r\0\x1a", "\udcff", ""])
    | st.integers()
    | st.booleans()
    | st.none()
    | st.binary(max_size=5)
    | st.just(Decimal("1.50"))
    | st.just(datetime(2024, 2, 29, 1, 2, 3, 4))
)


@pytest.mark.slow
@pytest.mark.parametrize("status", [0, SERVER_STATUS.SERVER_STATUS_NO_BACKSLASH_ESCAPES])
@given(values=VALUES)
def test_literals_are_those_of_the_driver(status: int, values: list[object]) -> None:
    connection = pymysql.Connection(defer_connect=True)
    connection.server_status = status
    assert sql_literals(connection, values) == tuple(map(connection.escape, values))
