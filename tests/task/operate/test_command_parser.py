"""A `;` in a text, a name or a comment ends no statement, in the SQL of either target."""

from __future__ import annotations

import pytest

from pidts.task.operate.command_parser import statements, words

BOTH = [
    (["ALTER TABLE a ADD x INT;"], ("ALTER TABLE a ADD x INT",)),
    (["one; two ;", "three"], ("one", "two", "three")),
    (["INSERT INTO a VALUES ('it''s;'); two"], ("INSERT INTO a VALUES ('it''s;')", "two")),
    (['ALTER TABLE a ADD "x;""y" INT; two'], ('ALTER TABLE a ADD "x;""y" INT', "two")),
    (["one /* ; */; two -- ; three\n; four"], ("one /* ; */", "two -- ; three", "four")),
    ([" ; ", "/* ; */;-- nothing\n"], ()),
    (["one 'that does not end; two"], ("one 'that does not end; two",)),
]
MYSQL = [
    (["VALUES (';', \";\", `;`); two"], ("VALUES (';', \";\", `;`)", "two")),
    ([r"VALUES ('it\'s; x', 'a\\'); two"], (r"VALUES ('it\'s; x', 'a\\')", "two")),
    (["one # ; \n; two"], ("one # ;", "two")),
    (["SELECT 1--1; two"], ("SELECT 1--1", "two")),
    (["a $$ ; b $$"], ("a $$", "b $$")),
    (
        ["CREATE DEFINER=x@y TRIGGER t BEFORE INSERT ON a FOR EACH ROW BEGIN SET NEW.a = 1; END; two"],
        ("CREATE DEFINER=x@y TRIGGER t BEFORE INSERT ON a FOR EACH ROW BEGIN SET NEW.a = 1; END; two",),
    ),
    (
        ["CREATE TRIGGER t BEFORE INSERT ON a FOR EACH ROW SET NEW.a = 1; two"],
        ("CREATE TRIGGER t BEFORE INSERT ON a FOR EACH ROW SET NEW.a = 1", "two"),
    ),
]
POSTGRES = [
    (["DO $$ BEGIN x; y; END $$; two"], ("DO $$ BEGIN x; y; END $$", "two")),
    (["SELECT $q$ a;b $$ ; $q$; two"], ("SELECT $q$ a;b $$ ; $q$", "two")),
    (["SELECT a$1$b; two"], ("SELECT a$1$b", "two")),
    ([r"SELECT E'it\'s; x', 'a\'; two"], (r"SELECT E'it\'s; x', 'a\'", "two")),
    (["one /* ; /* ; */ ; */; two"], ("one /* ; /* ; */ ; */", "two")),
    (["one /* ; /* ; */ ; two"], ("one /* ; /* ; */ ; two",)),
    (
        ["CREATE FUNCTION f() AS $$BEGIN x; END$$; two"],
        ("CREATE FUNCTION f() AS $$BEGIN x; END$$", "two"),
    ),
]


@pytest.mark.parametrize(("texts", "found"), [*BOTH, *MYSQL])
def test_mysql(texts: list[str], found: tuple[str, ...]) -> None:
    assert statements(texts, postgres=False) == found


@pytest.mark.parametrize(("texts", "found"), [*BOTH, *POSTGRES])
def test_postgres(texts: list[str], found: tuple[str, ...]) -> None:
    assert statements(texts, postgres=True) == found


@pytest.mark.parametrize("postgres", [False, True])
def test_words_are_those_that_count(postgres: bool) -> None:
    assert words("/* COMMIT */ begin 'x' -- end\n work", postgres=postgres) == ("BEGIN", "WORK")
