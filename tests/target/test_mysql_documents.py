"""Documents are written so that MySQL keeps all digits of their numbers; most documents stay a plain text."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.target.conformance.samples import INT, change, create, table

from pidts.model import Column, ColumnType, Kind, TableName
from pidts.sandbox import Server
from pidts.target import MySqlTarget
from pidts.target.json_decimals import losing_digits
from pidts.target.mysql.encode import literals, stored_literals
from pidts.target.mysql.repair_sql import PREAMBLE, repair_sql

RunSql = Callable[..., list[tuple[Any, ...]]]
JSON = Column("j", ColumnType(Kind.JSON))
TEXT = Column("j", ColumnType(Kind.LONGTEXT, charset="utf8mb4"))
LONG_NUMBERS = st.builds(
    lambda sign, digits, last, zeros: Decimal(f"{sign}{digits}{last}{'0' * zeros}E-30"),
    st.sampled_from(["", "-"]),
    st.integers(10**16, 10**46),
    st.integers(1, 9),
    st.integers(0, 16),
)
"""Numbers with 18 or more digits between zeros, up to 30 of them after the point. A double has at most 17 digits."""


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**63), 2**64 - 1), min_size=1))
def test_numbers_that_mysql_reads_as_they_are_stay_a_text(numbers: list[float]) -> None:
    values = pa.array([json.dumps(numbers)])
    assert losing_digits(values) is None
    assert stored_literals(JSON, JSON, values) == literals(JSON, values)


@given(LONG_NUMBERS)
def test_a_number_that_a_double_cannot_hold_is_written_besides_the_text(number: Decimal) -> None:
    values = pa.array([f'{{"a": [{number:f}]}}'])
    (written,) = stored_literals(JSON, JSON, values).to_pylist()
    assert written == b"JSON_SET('%s','$.\"a\"[0]',%s)" % (values[0].as_py().encode(), f"{number:f}".encode())
    assert stored_literals(JSON, TEXT, values) == literals(JSON, values)


@pytest.mark.parametrize(
    "text",
    [
        "1" * 66,
        "0." + "1" * 31,
        "1.23456789012345678901e5",
        '"12345678901234567890.12"',
        "{12345678901234567890.12",
        '{"\\ud800": 12345678901234567890.12}',
        "[" * 100_000 + "12345678901234567890.12",
    ],
)
def test_what_no_decimal_can_hold_and_what_is_no_document_stay_a_text(text: str) -> None:
    assert losing_digits(pa.array([text])) is None


def test_the_statements_of_a_repair_keep_all_digits(
    mysql97: Server, run_sql: RunSql, in_one_session: Callable[..., None]
) -> None:
    structure = table(TableName("mysql_documents", "repaired"), {"id": INT, "j": JSON.type})
    text = '{"\\\\\\"": [-0.12345678901234567890], "it\'s": 12345678901234567890.12}'
    with closing(MySqlTarget(mysql97.host, mysql97.port, mysql97.user, mysql97.password).connect()) as session:
        create(session, structure)
        statements = [*PREAMBLE, *repair_sql(session, change(structure, upserts=[(1, text), (2, None)]))]
    in_one_session(mysql97, "", *statements)
    assert run_sql(mysql97, f"SELECT * FROM {structure.name} ORDER BY id") == [(1, text), (2, None)]
