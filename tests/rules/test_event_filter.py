"""An event filter drops the same changes as DM's filter."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pidts.model import ConfigError, TableName
from pidts.rules.event_filter import ACTIONS, DML, EVENTS, INCOMPATIBLE, EventFilter, FilterDecision, FilterRule, expand

TAKE, SKIP, REFUSE = FilterDecision
GROUPS = ("all", "all dml", "all ddl", "incompatible ddl changes", "none", "none dml", "none ddl")


def rule(action: str, events: str = "", sql: tuple[str, ...] = (), tables: str = "s*.t*") -> FilterRule:
    schema, _, table = tables.partition(".")
    return FilterRule(schema, table, tuple(name.strip() for name in events.split(",") if name), sql, action)


def verdict(
    *rules: FilterRule, events: str = "", sql: str = "", table: str = "s1.t1", case_sensitive=False
) -> FilterDecision:
    schema, _, name = table.partition(".")
    kinds = frozenset(event.strip() for event in events.split(",") if event)
    return EventFilter(rules, case_sensitive)(TableName(schema, name), kinds, sql)


def test_without_rules_everything_is_taken() -> None:
    assert verdict(events="drop table", sql="DROP TABLE t1") is TAKE


@pytest.mark.parametrize(
    ("action", "listed", "event", "expected"),
    [
        ("Ignore", "delete", "delete", SKIP),
        ("Ignore", "delete", "insert", TAKE),
        ("Error", "delete", "delete", REFUSE),
        ("Error", "delete", "insert", TAKE),
        # A Do rule drops everything that it does not list.
        ("Do", "delete", "delete", TAKE),
        ("Do", "delete", "insert", SKIP),
        ("Do", "all dml", "create table", SKIP),
        ("Do", "", "insert", SKIP),
        ("Ignore", "", "insert", TAKE),
        # A rule may list groups of kinds.
        ("Ignore", "all", "insert", SKIP),
        ("Ignore", "all", "create table", SKIP),
        ("Ignore", "all dml", "update", SKIP),
        ("Ignore", "all dml", "create table", TAKE),
        ("Ignore", "all ddl", "create table", SKIP),
        ("Ignore", "all ddl", "drop column", SKIP),
        ("Ignore", "all ddl", "insert", TAKE),
        ("Error", "incompatible ddl changes", "drop column", REFUSE),
        ("Error", "incompatible ddl changes", "modify constraint", REFUSE),
        ("Error", "incompatible ddl changes", "alter table", TAKE),
        ("Error", "incompatible ddl changes", "alter table, add column", TAKE),
        ("Error", "incompatible ddl changes", "create index", TAKE),
        ("Error", "incompatible ddl changes", "delete", TAKE),
        # A special form of ALTER TABLE has a name of its own, and `alter table` does not include it.
        ("Ignore", "alter table", "drop column", TAKE),
        ("Ignore", "alter table", "alter table, add column", SKIP),
        ("Ignore", "add column", "alter table, add column", SKIP),
        # `none` ends the list for its kinds.
        ("Ignore", "none", "insert", TAKE),
        ("Do", "none", "insert", SKIP),
        ("Ignore", "none, insert", "insert", TAKE),
        ("Ignore", "insert, none", "insert", SKIP),
        ("Ignore", "none ddl, all", "create table", TAKE),
        ("Ignore", "none ddl, all", "insert", SKIP),
        ("Ignore", "none dml, all", "insert", TAKE),
        ("Ignore", "none dml, all", "create table", SKIP),
        ("Do", "all dml, none ddl", "create index", SKIP),
        ("Do", "all dml, none ddl", "insert", TAKE),
        # The case does not matter, and some kinds have a second name.
        ("Ignore", "DELETE", "delete", SKIP),
        ("Ignore", "drop schema", "drop database", SKIP),
        ("Ignore", "Create Schema", "create database", SKIP),
        ("Ignore", "alter schema", "alter database", SKIP),
    ],
)
def test_a_rule_decides_by_the_kind(action: str, listed: str, event: str, expected: FilterDecision) -> None:
    assert verdict(rule(action, listed), events=event) is expected


@pytest.mark.parametrize(
    ("action", "listed", "pattern", "event", "sql", "expected"),
    [
        ("Ignore", "", r"^DROP\s+PROCEDURE", "", "drop  procedure p", SKIP),
        ("Ignore", "", r"^DROP\s+PROCEDURE", "", "create procedure p", TAKE),
        ("Error", "", "partition", "alter table", "ALTER TABLE t1 PARTITION BY HASH (a)", REFUSE),
        ("Do", "", "x", "", "create function y", SKIP),
        ("Do", "", "x", "", "create function x", TAKE),
        # A change must match both: the kinds first, then the patterns.
        ("Do", "create table", "log", "create table", "CREATE TABLE log1 (a int)", TAKE),
        ("Do", "create table", "log", "create table", "CREATE TABLE t1 (a int)", SKIP),
        ("Do", "create table", "log", "drop table", "DROP TABLE log1", SKIP),
        ("Ignore", "drop table", "log", "create table", "CREATE TABLE log1 (a int)", SKIP),
        # Only statements are compared with a pattern, since rows have no text.
        ("Do", "insert", "log", "insert", "", TAKE),
        # Spaces and comments around the text are not part of it.
        ("Ignore", "", r"^DROP.*t1$", "drop table", "\n DROP TABLE t1\n", SKIP),
    ],
)
def test_a_rule_decides_by_the_text(
    action: str, listed: str, pattern: str, event: str, sql: str, expected: FilterDecision
) -> None:
    assert verdict(rule(action, listed, (pattern,)), events=event, sql=sql) is expected


def test_any_pattern_of_a_rule_will_do_and_each_is_alone() -> None:
    one = rule("Ignore", sql=("^DROP", "^TRUNCATE"))
    assert verdict(one, sql="truncate table t1") is SKIP
    assert verdict(one, sql="ALTER TABLE t1 DROP a") is TAKE


@pytest.mark.parametrize(
    ("patterns", "table", "fits"),
    [
        ("s*.t*", "s1.t1", True),
        ("S*.T*", "s1.t1", True),
        ("s*.t*", "S1.T1", True),
        ("s*.t*", "s1.x", False),
        ("s*.t*", "x.t1", False),
        # A rule for a schema also applies to its tables.
        ("s*", "s1.t1", True),
        ("s*", "s1", True),
        # A statement on a schema has no table, and `*` matches no table.
        ("s*.*", "s1", True),
        ("s*.t*", "s1", False),
        # A statement that cannot be parsed has neither schema nor table.
        ("*", "", True),
        ("*.*", "", True),
        ("s*", "", False),
        ("~^s[0-9]$.~^t", "s1.t1", True),
    ],
)
def test_a_rule_is_for_the_names_that_its_patterns_mean(patterns: str, table: str, fits: bool) -> None:
    assert verdict(rule("Ignore", sql=(".",), tables=patterns), sql="x", table=table) is (SKIP if fits else TAKE)


def test_case_matters_where_asked() -> None:
    one = rule("Ignore", "insert", tables="S*.t*")
    assert verdict(one, events="insert", table="S1.t1", case_sensitive=True) is SKIP
    assert verdict(one, events="insert", table="s1.t1", case_sensitive=True) is TAKE


def test_every_rule_that_fits_is_asked() -> None:
    rules = rule("Do", "insert, update", tables="s*"), rule("Do", "insert, delete", tables="s1.t1")
    assert verdict(*rules, events="insert") is TAKE
    assert verdict(*rules, events="update") is SKIP
    assert verdict(*rules, events="delete") is SKIP
    assert verdict(*rules, events="delete", table="s1.x") is SKIP
    assert verdict(*rules, events="update", table="s1.x") is TAKE


@pytest.mark.parametrize(
    ("first", "second"),
    [("s*", "s*.t*"), ("s*.*", "s*.t*"), ("s*.t?", "s*.t1"), ("s*.t*", "s1.t*"), ("s?.t1", "s[1].t1"), ("s1", "*.*")],
)
def test_a_general_rule_decides_before_a_special_one_in_any_order_of_the_file(first: str, second: str) -> None:
    general, special = rule("Ignore", "delete", tables=first), rule("Error", "delete", tables=second)
    assert verdict(general, special, events="delete") is SKIP
    assert verdict(special, general, events="delete") is SKIP
    general, special = rule("Error", "delete", tables=first), rule("Ignore", "delete", tables=second)
    assert verdict(special, general, events="delete") is REFUSE


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ({"schema_pattern": ""}, "bad-pattern"),
        ({"schema_pattern": "a*b"}, "bad-pattern"),
        ({"table_pattern": "**"}, "bad-pattern"),
        ({"sql_patterns": ("(",)}, "bad-pattern"),
        ({"events": ("delete", "create")}, "bad-event"),
        ({"events": ("",)}, "bad-event"),
        ({"action": "ignore"}, "bad-value"),
        ({"action": ""}, "bad-value"),
    ],
)
def test_a_rule_that_means_nothing_is_an_error(arguments: dict, code: str) -> None:
    with pytest.raises(ConfigError) as caught:
        FilterRule(**{"schema_pattern": "s", "action": "Ignore", **arguments})
    assert caught.value.code == code


def test_a_misspelt_event_is_answered_with_the_one_meant() -> None:
    with pytest.raises(ConfigError, match="Did you mean 'truncate table'"):
        rule("Ignore", "truncat table")


def test_two_different_rules_for_the_same_patterns_are_an_error_and_the_same_one_twice_is_one() -> None:
    with pytest.raises(ConfigError) as caught:
        EventFilter((rule("Ignore", "insert", tables="S.t"), rule("Do", "all", tables="s.T")))
    assert caught.value.code == "duplicate-filter"
    EventFilter((rule("Ignore", "insert", tables="S.t"), rule("Do", "all", tables="s.T")), case_sensitive=True)
    assert verdict(rule("Ignore", "insert"), rule("Ignore", "insert"), events="insert") is SKIP


def test_every_event_name_means_known_kinds() -> None:
    kinds = {kind for name in EVENTS for kind in expand(name)}
    assert {"insert", "create database", "drop column"} <= kinds
    assert not kinds & {"all", "none", "create schema", "incompatible ddl changes"}
    assert expand("incompatible ddl changes") == INCOMPATIBLE
    assert expand("all ddl") > INCOMPATIBLE
    assert expand("none ddl") == frozenset()


def walked(listed: list[str], event: str) -> bool:
    """Reads a list as DM does: from its beginning, until a name decides."""
    dml = event in DML
    for name in listed:
        if name in ("all", "all dml" if dml else "all ddl", event):
            return True
        if name == "incompatible ddl changes" and event in INCOMPATIBLE:
            return True
        if name in ("none", "none dml" if dml else "none ddl"):
            return False
    return False


@given(
    st.lists(st.sampled_from([*GROUPS, "insert", "drop column", "create table"]), max_size=5),
    st.sampled_from(["insert", "delete", "drop column", "create table", "alter table"]),
    st.sampled_from(ACTIONS),
)
def test_any_list_is_read_from_its_front(listed: list[str], event: str, action: str) -> None:
    found = walked(listed, event)
    drops = {"Do": SKIP if not found else TAKE, "Ignore": SKIP if found else TAKE, "Error": REFUSE if found else TAKE}
    assert verdict(rule(action, ",".join(listed)), events=event) is drops[action]


def test_a_filter_travels_to_other_processes() -> None:
    events = EventFilter((rule("Ignore", "delete"),))
    again = pickle.loads(pickle.dumps(events))
    assert again == events
    assert hash(again) == hash(events)
    assert again(TableName("s1", "t1"), {"delete"}) is SKIP
