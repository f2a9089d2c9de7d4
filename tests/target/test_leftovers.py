"""Objects that no target gets are reported; the rows of an exchanged partition are carried into the other table."""

from __future__ import annotations

import pytest

from pidts.model import TableName
from pidts.schema import Dialect, classify
from pidts.target.difference import left_out

KEPT = "foreign key (p): not made on the target; the source enforces it"
DRIFTS = (
    ". If the source does not log row changes by ON DELETE CASCADE ON UPDATE SET NULL, "
    "the target keeps these rows as they are"
)


@pytest.mark.parametrize(
    ("sql", "notes"),
    [
        ("CREATE TABLE t (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES q (id))", (KEPT,)),
        (
            "ALTER TABLE t ADD CONSTRAINT f FOREIGN KEY (p) REFERENCES q (id) ON DELETE CASCADE ON UPDATE SET NULL",
            (KEPT + DRIFTS,),
        ),
        ("ALTER TABLE t ADD FOREIGN KEY (p) REFERENCES q (id) ON DELETE RESTRICT ON UPDATE NO ACTION", (KEPT,)),
        (
            "CREATE TABLE t (id INT, CHECK (id > 0))",
            ("CHECK (id > 0): not made on the target; the source enforces it",),
        ),
        ("CREATE TABLE t (id INT PRIMARY KEY, KEY (id))", ()),
        ("DROP TABLE t", ()),
    ],
)
def test_foreign_keys_and_checks_are_reported(sql: str, notes: tuple[str, ...]) -> None:
    assert left_out(classify(sql, "d")) == notes


@pytest.mark.parametrize(
    "sql",
    [
        "ALTER TABLE t EXCHANGE PARTITION p0 WITH TABLE u",
        "ALTER TABLE t CONVERT PARTITION p0 TO TABLE u",
        "ALTER TABLE t CONVERT TABLE u TO PARTITION p0 VALUES LESS THAN (10)",
    ],
)
def test_a_partition_that_becomes_a_table_concerns_both(sql: str) -> None:
    statement = classify(sql, "d", dialect=Dialect.of("10.11.6-MariaDB"))
    assert statement.tables == (TableName("d", "t"), TableName("d", "u"))
