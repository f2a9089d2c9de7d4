"""The notes of a plan on columns that a MySQL or MariaDB target declares differently."""

from __future__ import annotations

import pytest

from pidts.model import Column, ColumnType, Kind, Table, TableName
from pidts.schema import Dialect, classify
from pidts.schema.statement_time import UNKNOWN_TIME
from pidts.target.mysql.dialect import adapted, render
from pidts.target.mysql.server import TargetServer

OTHERS = frozenset({"utf8mb4_nopad_bin", "utf8mb4_general_ci", "utf8mb3_general_ci"})
SERVER = TargetServer(
    Dialect(mariadb=True, version=(10, 11, 0)),
    tidb=False,
    collations=OTHERS,
    max_packet=1 << 20,
    explicit_timestamp=True,
)

DIFFER = "Texts like `a` and `A` may be equal on the source, and differ on the target (also in unique keys)"


@pytest.mark.parametrize(
    ("charset", "collation", "note"),
    [
        (
            "utf8mb4",
            "utf8mb4_0900_ai_ci",
            f"the target has no collation utf8mb4_0900_ai_ci, so the column gets utf8mb4_nopad_bin. {DIFFER}",
        ),
        (
            "utf8mb4",
            "utf8mb4_0900_as_cs",
            "the target has no collation utf8mb4_0900_as_cs, so the column gets utf8mb4_nopad_bin",
        ),
        (
            "utf8",
            "utf8_general_ci",
            "the target has no collation utf8_general_ci, so the column gets utf8mb3_general_ci",
        ),
    ],
)
def test_the_note_on_a_collation_says_what_is_different(charset: str, collation: str, note: str) -> None:
    text = Column("c", ColumnType(Kind.VARCHAR, length=9, charset=charset, collation=collation))
    _, notes = adapted(Table(TableName("s", "t"), (text,)), SERVER)
    assert notes == [f"column c: {note}"]


def test_an_alter_table_has_notes_on_the_columns_that_it_changes_only() -> None:
    def texts(*names: str) -> Table:
        kind = ColumnType(Kind.VARCHAR, length=9, charset="utf8mb4", collation="utf8mb4_0900_as_cs")
        return Table(TableName("s", "t"), tuple(Column(name, kind) for name in names))

    def notes(sql: str, before: Table, after: Table) -> list[str]:
        rendered = render(classify(sql, "s"), {before.name: before}, {after.name: after}, SERVER, UNKNOWN_TIME)
        return [note.partition(":")[0] for note in rendered.notes]

    assert notes("ALTER TABLE t ADD b VARCHAR(9)", texts("a"), texts("a", "b")) == ["column b"]
    assert notes("ALTER TABLE t COMMENT 'x'", texts("a"), texts("a")) == []
