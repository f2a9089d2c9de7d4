"""A task ignores the records about shard groups that an earlier task of the same name has left."""

from __future__ import annotations

from contextlib import closing

from tests.values_target import ValuesTarget

from pidts.apply.merge.merged_tables import record_shared_tables
from pidts.model import (
    Column,
    ColumnType,
    DroppedColumnsKey,
    Key,
    Kind,
    Lsn,
    MergedTablesKey,
    MissedChangesKey,
    SourceTablesKey,
    Table,
    TableName,
)

T, OWN, AT = TableName("shop", "t"), TableName("shop_1", "t_1"), Lsn(0, 1, 9)
TABLE = Table(
    T, (Column("id", ColumnType(Kind.INT), nullable=False),), (Key("PRIMARY", ("id",), unique=True, primary=True),)
)


def test_a_first_start_has_no_missed_changes() -> None:
    target = ValuesTarget("shared record")
    with closing(target.connect()) as session:
        for task in ("t", "other"):
            session.begin()
            session.meta.structures.save(task, MissedChangesKey("a", 0), AT, {OWN: TABLE})
            session.meta.structures.save(task, DroppedColumnsKey("a"), AT, {OWN: TABLE})
            session.meta.structures.save(task, SourceTablesKey("a"), AT, {OWN: TABLE})
            session.commit()
        session.begin()
        record_shared_tables(session, "t", AT, {T: TABLE}, anew=True)
        session.commit()
        assert (
            session.meta.structures.load("t", MissedChangesKey("a", 0))
            == session.meta.structures.load("t", DroppedColumnsKey("a"))
            == {}
        )
        assert (
            session.meta.structures.load("t", SourceTablesKey("a"))
            == session.meta.structures.load("other", MissedChangesKey("a", 0))
            == {OWN: TABLE}
        )
        assert session.meta.structures.load("t", MergedTablesKey()) == {T: TABLE}
    target.forget()
