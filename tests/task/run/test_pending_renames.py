"""The name of a table after the pending schema changes is found, and whether these changes determine the table's
structure.
"""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from pidts.model import Lsn, TableName
from pidts.rules import AllowList
from pidts.schema import Statement
from pidts.schema.affected_tables import understood
from pidts.schema.dialect import MYSQL
from pidts.task.run.pending_renames import joining_tables, known_after, removed_by


@pytest.mark.parametrize(
    ("statements", "names"),
    [
        ([], "a.t"),
        (["CREATE TABLE u (id INT)"], "a.t a.u"),
        (["CREATE TABLE IF NOT EXISTS u (id INT)"], "a.t"),
        (["CREATE TABLE IF NOT EXISTS t (id INT)"], "a.t"),
        (["CREATE TABLE u LIKE t"], "a.t a.u"),
        (["CREATE TABLE u LIKE b.x"], "a.t"),
        (["CREATE TABLE IF NOT EXISTS u LIKE t"], "a.t"),
        (["DROP TABLE t"], ""),
        (["DROP TABLE t", "CREATE TABLE t (id INT)"], "a.t"),
        (["RENAME TABLE t TO u"], "a.u"),
        (["ALTER TABLE t RENAME TO u"], "a.u"),
        (["ALTER TABLE b.x RENAME TO a.u"], "a.t"),
        (["RENAME TABLE b.x TO a.u"], "a.t"),
        (["RENAME TABLE t TO b.old, b.new TO t"], ""),
        (["CREATE TABLE b.new (id INT)", "RENAME TABLE b.new TO u"], "a.t"),
        (["RENAME TABLE t TO b.x, b.x TO u"], "a.u"),
        (["RENAME TABLE t TO x, u TO t, x TO u"], "a.u"),
        (["CREATE TABLE u (id INT)", "RENAME TABLE t TO x, u TO t, x TO u"], "a.t a.u"),
        (["DROP DATABASE a"], ""),
        (["DROP DATABASE b"], "a.t"),
        (["TRUNCATE TABLE t", "ALTER TABLE t ADD x INT"], "a.t"),
    ],
)
def test_names_that_follow_from_the_log(statements: list[str], names: str) -> None:
    assert display_name(known_after([T], pending(*statements), ONLY_A, {})) == names


@pytest.mark.parametrize(
    ("statements", "names"),
    [
        ([], ""),
        (["TRUNCATE TABLE t", "ALTER TABLE t ADD x INT", "CREATE TABLE u (id INT)"], ""),
        (["DROP TABLE t, u"], "a.t a.u"),
        (["DROP DATABASE a"], "a.t a.u"),
        (["DROP DATABASE b"], ""),
        (["DROP DATABASE a", "CREATE DATABASE a", "CREATE TABLE t (id INT)"], "a.u"),
        (["RENAME TABLE t TO x"], "a.t"),
        (["ALTER TABLE t RENAME TO x"], "a.t"),
        (["DROP TABLE t", "RENAME TABLE u TO t"], "a.u"),
        (["DROP TABLE t", "ALTER TABLE u RENAME TO t"], "a.u"),
    ],
)
def test_tables_that_are_gone_after_the_statements(statements: list[str], names: str) -> None:
    assert display_name(removed_by(pending(*statements), {T, TableName("a", "u")})) == names


T = TableName("a", "t")
ONLY_A = AllowList(do_dbs=("a",))
NEW_T = "RENAME TABLE t TO old, b.new TO t"


def pending(*statements: str) -> list[tuple[Lsn, Statement]]:
    """Returns pending transactions at the places 1, 2, 3 and so on."""
    return [(Lsn(0, 1, at), found) for at, text in enumerate(statements, 1) for found in understood(text, "a", MYSQL)]


def display_name(names: Iterable[TableName]) -> str:
    return " ".join(sorted(map(str, names)))


@pytest.mark.parametrize(
    ("statements", "since", "there", "joining"),
    [
        ([], None, "t u", "a.u"),
        (["CREATE TABLE u (id INT)"], None, "t u", ""),
        (["RENAME TABLE b.x TO u"], None, "t u", "a.u"),
        (["RENAME TABLE b.x TO t"], 1, "t", ""),
        ([NEW_T], None, "t old", "a.old a.t"),
        ([NEW_T], 1, "t old", "a.old"),
        ([NEW_T, "RENAME TABLE t TO w"], 1, "w old", "a.old"),
        ([NEW_T, "RENAME TABLE t TO w"], 2, "w old", "a.old a.w"),
        (["RENAME TABLE t TO x, u TO t, x TO u", NEW_T], None, "t old u", "a.old a.t a.u"),
    ],
)
def test_who_joins(statements: list[str], since: int | None, there: str, joining: str) -> None:
    names = [TableName("a", name) for name in there.split()]
    places = {} if since is None else {T: Lsn(0, 1, since)}
    assert display_name(joining_tables([T], pending(*statements), ONLY_A, places, names)) == joining
