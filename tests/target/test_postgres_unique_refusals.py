"""The advice after a unique index has refused a row depends on whether the source's table has the index, too."""

from __future__ import annotations

import pyarrow as pa
import pytest
from psycopg.errors import UniqueViolation
from psycopg.pq import DiagnosticField

from pidts.model import Column, ColumnType, Key, Kind, Table, TableName
from pidts.model.advice import COMPARE_TODO, OTHER_ROW_TODO
from pidts.target.postgres.errors import StatementRefused, translate
from pidts.target.postgres.writer import explained

NAME = TableName("shop", "orders")
COLUMNS = tuple(Column(name, ColumnType(Kind.BIGINT)) for name in ("id", "a", "B"))
PRIMARY = Key("PRIMARY", ("id",), unique=True, primary=True)


def advice(detail: str, *keys: Key) -> str:
    said: dict[int, bytes | None] = dict.fromkeys(DiagnosticField) | {
        DiagnosticField.SQLSTATE: b"23505",
        DiagnosticField.MESSAGE_PRIMARY: b"duplicate key value violates unique constraint",
        DiagnosticField.MESSAGE_DETAIL: detail.encode(),
        DiagnosticField.SCHEMA_NAME: b"shop",
        DiagnosticField.TABLE_NAME: b"orders",
        DiagnosticField.CONSTRAINT_NAME: b"mine",
    }
    error = translate(UniqueViolation("refused", info=said), str(NAME))
    assert isinstance(error, StatementRefused)
    return (explained(Table(NAME, COLUMNS, (PRIMARY, *keys)), pa.table({}), error) or error).todo


def test_an_index_of_the_target_alone_is_named_with_its_statements() -> None:
    todo = advice('Key (a, "B")=(1, 2) already exists.', Key("a", ("a",), unique=True), Key("ab", ("a", "B")))
    assert 'DROP INDEX "shop"."mine"' in todo
    assert 'ALTER TABLE "shop"."orders" DROP CONSTRAINT "mine"' in todo


@pytest.mark.parametrize(
    "detail",
    [
        "Key (id)=(1) already exists.",
        'Key (a, "B")=(1, 2) already exists.',
        'Key ("B", a)=(2, 1) already exists.',
        "Key (abs(a))=(1) already exists.",
    ],
)
def test_a_row_that_only_the_target_has_is_removed_by_a_copy(detail: str) -> None:
    """For example, the source has deleted it by ON DELETE CASCADE, and then inserted another row with its value."""
    assert advice(detail, Key("ab", ("a", "B"), unique=True)) == OTHER_ROW_TODO


def test_an_index_that_the_server_does_not_name_is_compared() -> None:
    assert advice("", Key("ab", ("a", "B"), unique=True)) == COMPARE_TODO
