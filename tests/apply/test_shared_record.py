"""What an earlier task of the same name has left on record of its groups is forgotten."""

from __future__ import annotations

from contextlib import closing

from pidts.apply import SHARED, dropped_by, owed_by
from pidts.apply.shared_record import put_on_record
from pidts.model import Column, ColumnType, Key, Kind, Lsn, Table, TableName
from pidts.target import ValuesTarget

T, OWN, AT = TableName("shop", "t"), TableName("shop_1", "t_1"), Lsn(0, 1, 9)
TABLE = Table(
    T, (Column("id", ColumnType(Kind.INT), nullable=False),), (Key("PRIMARY", ("id",), unique=True, primary=True),)
)


def test_a_first_start_owes_nothing() -> None:
    target = ValuesTarget("shared record")
    with closing(target.connect()) as session:
        for task in ("t", "other"):
            session.begin()
            session.save_structures(task, owed_by("a", 0), AT, {OWN: TABLE})
            session.save_structures(task, dropped_by("a"), AT, {OWN: TABLE})
            session.save_structures(task, "a", AT, {OWN: TABLE})
            session.commit()
        session.begin()
        put_on_record(session, "t", AT, {T: TABLE}, anew=True)
        session.commit()
        assert session.load_structures("t", owed_by("a", 0)) == session.load_structures("t", dropped_by("a")) == {}
        assert session.load_structures("t", "a") == session.load_structures("other", owed_by("a", 0)) == {OWN: TABLE}
        assert session.load_structures("t", SHARED) == {T: TABLE}
    target.forget()
