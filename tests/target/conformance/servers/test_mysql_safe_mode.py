"""MySQL and MariaDB: in safe mode, rows that collide with a written unique value are removed, and no other rows are."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.target.conformance.conftest import MYSQL_KINDS
from tests.target.conformance.samples import INT, change, create, rows, table, text
from tests.target.conformance.servers.test_mysql_keys import content, made, write

from pidts.apply import TargetSession
from pidts.model import Column, ColumnType, Halted, Key, Kind, Table, TableName

pytestmark = pytest.mark.parametrize("kind", MYSQL_KINDS)


def test_rows_with_equal_unique_values_are_removed_and_all_others_stay(session: TargetSession, name: TableName) -> None:
    made(
        session,
        name,
        "id int AUTO_INCREMENT PRIMARY KEY, u varchar(40) COLLATE utf8mb4_bin, a int, b int, own int DEFAULT 7,"
        " UNIQUE (u), UNIQUE (a, b)",
    )
    structure = table(name, {"id": INT, "u": text(), "a": INT, "b": INT}, unique=["u"])
    structure = replace(structure, keys=(*structure.keys, Key("a_b", ("a", "b"), unique=True)))
    session.execute(
        f"INSERT INTO {name} VALUES (1,'x',1,1,1), (2,'y',1,2,2), (3,NULL,1,NULL,3), (4,'z',1,NULL,4), (5,'it''s',2,2,5)"
    )
    upserts = [(1, "x", 9, 9), (7, "y", 2, 2), (8, None, 1, None), (9, "new", 1, 3)]
    with pytest.raises(Halted, match="overwrite another"):
        write(session, change(structure, upserts=upserts))
    for _ in range(2):
        write(session, replace(change(structure, upserts=upserts), safe=True))
        whole = table(name, {"id": INT, "u": text(), "a": INT, "b": INT, "own": INT})
        assert (
            session.read_rows(whole)
            .sort_by("id")
            .equals(
                rows(
                    whole,
                    (1, "x", 9, 9, 1),
                    (3, None, 1, None, 3),
                    (4, "z", 1, None, 4),
                    (7, "y", 2, 2, 7),
                    (8, None, 1, None, 7),
                    (9, "new", 1, 3, 7),
                )
            )
        )


FOLDING = ColumnType(Kind.VARCHAR, length=40, charset="utf8mb4", collation="utf8mb4_general_ci")


def prefixed(column: str, length: int | None) -> Key:
    return Key("u", (column,), unique=length is None, unique_prefixes=length is not None, prefixes=(length,))


@pytest.mark.parametrize("of_source", [None, "whole", 4])
def test_rows_with_the_same_prefix_stay_if_the_source_may_have_both(
    session: TargetSession, name: TableName, of_source: str | int | None
) -> None:
    """A unique key of the source over more characters allows the same three characters in two rows."""
    made(
        session,
        name,
        "id varchar(40) COLLATE utf8mb4_general_ci PRIMARY KEY, u varchar(40) COLLATE utf8mb4_bin,"
        " UNIQUE (id(3)), UNIQUE (u(3))",
    )
    structure = table(name, {"id": FOLDING, "u": text()}, key=["id"])
    if of_source is not None:
        key = prefixed("u", None if of_source == "whole" else 4)
        structure = replace(structure, keys=(*structure.keys, key))
    write(session, change(structure, upserts=[("abc1", "100x"), ("other", "200x")]))
    for upsert in (("abc2", "300x"), ("new", "200y")):
        with pytest.raises(Halted, match="overwrite another"):
            write(session, replace(change(structure, upserts=[upsert]), safe=True))
    assert content(session, structure) == [("abc1", "100x"), ("other", "200x")]


def test_rows_with_the_same_value_stay_if_only_the_target_has_the_unique_key(
    session: TargetSession, name: TableName
) -> None:
    made(session, name, "id int PRIMARY KEY, u int, a int, b int, UNIQUE (u), UNIQUE (a, b)")
    structure = table(name, {"id": INT, "u": INT, "a": INT, "b": INT})
    write(session, replace(change(structure, upserts=[(1, 1, 1, 1)]), safe=True))
    for upsert in ((2, 1, 2, 2), (3, 3, 1, 1)):
        with pytest.raises(Halted, match="overwrite another"):
            write(session, replace(change(structure, upserts=[upsert]), safe=True))
    assert content(session, structure) == [(1, 1, 1, 1)]


@pytest.mark.parametrize(
    ("column", "upsert", "gone"),
    [
        ("u varchar(40) COLLATE utf8mb4_bin, UNIQUE (u(3))", "100x", {"100%", "100"}),
        ("u varchar(40) COLLATE utf8mb4_bin, UNIQUE (u(3))", "1_0", {"1_0"}),
        ("u varchar(40) COLLATE utf8mb4_general_ci, UNIQUE (u(3))", "ÄBC", {"abcd"}),
        ("u varchar(40) COLLATE utf8mb4_general_ci, UNIQUE (u)", "ABCD", {"abcd"}),
        ("u text COLLATE utf8mb4_bin, UNIQUE (u(9))", "it's \\", {"it's \\"}),
        ("u varchar(40) COLLATE utf8mb4_bin, UNIQUE (u(3))", "|%", {"|%"}),
    ],
)
def test_prefixes_and_collations_are_the_targets(
    session: TargetSession, name: TableName, column: str, upsert: str, gone: set[str]
) -> None:
    made(session, name, f"id int PRIMARY KEY, {column}")
    structure = table(name, {"id": INT, "u": FOLDING if "general_ci" in column else text()})
    structure = replace(structure, keys=(*structure.keys, prefixed("u", int(column[-3]) if "(u(" in column else None)))
    here = ["100%", "1_0", "abcd", "it's \\", "|%", "1", "|"]
    write(session, change(structure, upserts=list(enumerate(here))))
    write(session, replace(change(structure, upserts=[(99, upsert)]), safe=True))
    assert {row[1] for row in content(session, structure)} == {*here, upsert} - gone | {upsert}


@pytest.mark.parametrize("length", [None, 3])
def test_rows_stay_if_only_the_targets_collation_treats_their_values_as_equal(
    session: TargetSession, name: TableName, length: int | None
) -> None:
    made(
        session,
        name,
        f"id int PRIMARY KEY, u varchar(40) COLLATE utf8mb4_general_ci, UNIQUE (u{f'({length})' if length else ''})",
    )
    structure = table(name, {"id": INT, "u": text()})
    structure = replace(structure, keys=(*structure.keys, prefixed("u", length)))
    write(session, change(structure, upserts=[(1, "abc"), (2, "xyz")]))
    for other in ("ABC", "\u00e4bc"):
        with pytest.raises(Halted, match="overwrite another"):
            write(session, replace(change(structure, upserts=[(3, other)]), safe=True))
    write(session, replace(change(structure, upserts=[(3, "xyz")]), safe=True))
    assert content(session, structure) == [(1, "abc"), (3, "xyz")]


def test_a_row_does_not_collide_with_itself(session: TargetSession, name: TableName) -> None:
    """The identity is compared by bytes: a row whose key differs only in case is another row."""
    made(session, name, "k varchar(20) COLLATE utf8mb4_bin PRIMARY KEY, u int UNIQUE, own int DEFAULT 7")
    structure = table(name, {"k": text(20), "u": INT}, key=["k"], unique=["u"])
    session.execute(f"INSERT INTO {name} VALUES ('a', 1, 1), ('A', 2, 2)")
    write(session, replace(change(structure, upserts=[("a", 2)]), safe=True))
    assert content(session, table(name, {"k": text(20), "u": INT, "own": INT}, key=["k"])) == [("a", 2, 1)]


def test_a_row_with_another_spelling_of_the_key_is_replaced_if_both_collations_are_the_same(
    session: TargetSession, name: TableName
) -> None:
    """Otherwise the source may have both rows."""
    made(session, name, "k varchar(40) COLLATE utf8mb4_general_ci, n int, v int, PRIMARY KEY (k, n)")
    session.execute(f"INSERT INTO {name} VALUES ('A', 1, 1), ('A', 2, 1), ('b', 1, 1)")
    equal, exact = (table(name, {"k": kind, "n": INT, "v": INT}, key=("k", "n")) for kind in (FOLDING, text()))
    row = change(equal, upserts=[("a", 1, 2)])
    for refused in (row, replace(change(exact, upserts=[("a", 1, 2)]), safe=True)):
        with pytest.raises(Halted, match="overwrite another"):
            write(session, refused)
    write(session, replace(row, safe=True))
    assert content(session, equal) == [("A", 2, 1), ("a", 1, 2), ("b", 1, 1)]


def test_two_new_rows_that_the_target_holds_equal_are_still_refused(session: TargetSession, name: TableName) -> None:
    made(session, name, "id int PRIMARY KEY, u varchar(40) COLLATE utf8mb4_general_ci, UNIQUE (u)")
    structure = table(name, {"id": INT, "u": text()}, unique=["u"])
    with pytest.raises(Halted, match="overwrite another"):
        write(session, replace(change(structure, upserts=[(1, "a"), (2, "A")]), safe=True))


def test_children_of_a_replaced_row_stay(session: TargetSession, name: TableName) -> None:
    child = TableName(name.schema, name.name + "_c")
    made(session, name, "id int PRIMARY KEY, u int UNIQUE")
    made(session, child, f"id int PRIMARY KEY, p int, FOREIGN KEY (p) REFERENCES {name} (id) ON DELETE CASCADE")
    parents, children = table(name, {"id": INT, "u": INT}, unique=["u"]), table(child, {"id": INT, "p": INT})
    write(session, change(parents, upserts=[(1, 1)]), change(children, upserts=[(5, 1)]))
    write(session, replace(change(parents, upserts=[(2, 1)]), safe=True))
    assert (content(session, parents), content(session, children)) == ([(2, 1)], [(5, 1)])


def test_composite_identities_and_bytes(session: TargetSession, name: TableName) -> None:
    structure = Table(
        name,
        (
            Column("a", INT, nullable=False),
            Column("b", ColumnType(Kind.VARBINARY, length=9), nullable=False),
            Column("u", ColumnType(Kind.VARBINARY, length=9)),
        ),
        (Key("PRIMARY", ("a", "b"), unique=True, primary=True), Key("u", ("u",), unique=True)),
    )
    create(session, structure)
    write(session, change(structure, upserts=[(1, b"x", b"'"), (1, b"y", b"\\"), (2, b"x", None)]))
    write(session, replace(change(structure, upserts=[(1, b"x", b"\\"), (3, b"z", b"'")]), safe=True))
    assert session.count(name) == 3
    assert set(session.read_rows(structure)["u"].to_pylist()) == {b"\\", b"'", None}


def test_prefixes_of_bytes(session: TargetSession, name: TableName) -> None:
    made(session, name, "id int PRIMARY KEY, u blob, UNIQUE (u(3))")
    structure = table(name, {"id": INT, "u": ColumnType(Kind.BLOB)})
    structure = replace(structure, keys=(*structure.keys, prefixed("u", 3)))
    here = [b"a_%\xff", b"aa%\xff", b"\x00'\\", b"a ", b"a", b"A"]
    write(session, change(structure, upserts=list(enumerate(here))))
    write(session, replace(change(structure, upserts=[(90, b"a_%"), (91, b"\x00'\\more"), (92, b"a")]), safe=True))
    assert [row[0] for row in content(session, structure)] == [1, 3, 5, 90, 91, 92]


def test_a_collision_in_the_middle_of_many_rows(session: TargetSession, name: TableName) -> None:
    """The rows before the collision are rolled back and written once more, so the target has each of them once."""
    made(session, name, "id int PRIMARY KEY, u int UNIQUE")
    structure = table(name, {"id": INT, "u": INT}, unique=["u"])
    write(session, change(structure, upserts=[(90_000, 8_500), (90_001, 90_001), (9, 3)]))
    wanted = [(number, number) for number in range(20_000)]
    write(session, replace(change(structure, upserts=wanted, deletes=[(90_001,)]), safe=True))
    assert content(session, structure) == wanted
