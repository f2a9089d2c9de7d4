"""Routes give the same target names as in DM."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pidts.model import ConfigError, TableName
from pidts.rules import Destination, Extract, RouteRule, Routes

SCHEMA = RouteRule("shop_*", target_schema="shop")
TABLE = RouteRule("shop_*", "t_*", "shop", "t")


def table(name: str) -> TableName:
    return TableName(*name.split("."))


def target_table(routes: Routes, name: str) -> str:
    return str(routes.destination(table(name)).name)


@pytest.mark.parametrize(
    ("rules", "routed"),
    [
        ([], "shop_1.t_1>shop_1.t_1 Shop.T>Shop.T"),
        ([SCHEMA], "shop_1.t_1>shop.t_1 shop_1.T>shop.T shop.t_1>shop.t_1"),
        ([TABLE], "shop_1.t_1>shop.t shop_1.x>shop_1.x crm.t_1>crm.t_1"),
        # A rule for a table has priority over a rule for a schema, whatever their order in the file is.
        ([SCHEMA, TABLE], "shop_1.t_1>shop.t shop_1.x>shop.x"),
        ([TABLE, SCHEMA], "shop_1.t_1>shop.t shop_1.x>shop.x"),
        # An empty target keeps the name.
        ([RouteRule("a", "t", "", "u")], "a.t>a.u"),
        ([RouteRule("a", "t", "b", "")], "a.t>b.t"),
        ([RouteRule("a", "t")], "a.t>a.t"),
        # A rule for a schema may name a table: all tables of the schema are routed to it.
        ([RouteRule("a", "", "b", "u")], "a.t>b.u a.v>b.u"),
        ([RouteRule("~^a[0-9]+$", "~^t[0-9]$", "b", "t")], "a12.t3>b.t a.t3>a.t3 a1.t33>a1.t33"),
        ([RouteRule("~a", "*", "b")], "xay.t>b.t xy.t>xy.t"),
        ([RouteRule("a?", "t[0-9]", "b", "t")], "ab.t1>b.t a.t1>a.t1 ab.tx>ab.tx"),
        ([RouteRule("a", "t[!0-9]", "b", "t")], "a.tx>b.t a.t1>a.t1"),
        # The case of a name does not matter, and is kept.
        ([RouteRule("A", "", "B")], "a.Tab>B.Tab A.tab>B.tab"),
        # A route is not applied to the result of another route.
        ([RouteRule("a", "", "b"), RouteRule("b", "", "c")], "a.t>b.t b.t>c.t"),
    ],
)
def test_a_table_has_the_target_that_dm_gives_it(rules: list[RouteRule], routed: str) -> None:
    routes = Routes(tuple(rules))
    for name, target in (pair.split(">") for pair in routed.split()):
        assert target_table(routes, name) == target


def test_case_decides_where_the_task_says_so() -> None:
    routes = Routes((RouteRule("A", "T", "b", "u"), RouteRule("a", "~T", "c", "v")), case_sensitive=True)
    assert [target_table(routes, name) for name in ("A.T", "a.t", "a.xT", "A.t")] == ["b.u", "a.t", "c.v", "A.t"]


@pytest.mark.parametrize(
    ("rules", "schema", "target"),
    [
        ([SCHEMA], "shop_1", "shop"),
        # A rule for tables does not rename the schema, even if it names all tables of the schema.
        ([RouteRule("shop_*", "*", "shop")], "shop_1", "shop_1"),
        ([SCHEMA, TABLE], "shop_1", "shop"),
        ([SCHEMA], "crm", "crm"),
        ([RouteRule("a", "", "", "t")], "a", "a"),
        ([], "a", "a"),
    ],
)
def test_a_schema_needs_a_rule_of_its_own(rules: list[RouteRule], schema: str, target: str) -> None:
    assert Routes(tuple(rules)).schema(schema) == target


def test_two_rules_of_one_level_that_match_one_table_are_an_error() -> None:
    routes = Routes((RouteRule("a*", "t*", "x"), RouteRule("ab", "t1", "y"), SCHEMA, RouteRule("shop_1", "", "z")))
    assert target_table(routes, "a.t1") == "x.t1"
    assert target_table(routes, "ab.t2") == "x.t2"
    for ask in (lambda: routes.destination(table("ab.t1")), lambda: routes.destination(table("shop_1.x"))):
        with pytest.raises(ConfigError, match="2 routes fit") as caught:
            ask()
        assert caught.value.code == "ambiguous-route"
    assert routes.schema("shop_2") == "shop"
    with pytest.raises(ConfigError, match=r"shop_\*.* and shop_1 "):
        routes.schema("shop_1")


def test_two_rules_on_a_schema_do_not_matter_to_a_table_with_its_own() -> None:
    routes = Routes((SCHEMA, RouteRule("shop_1", "", "z"), TABLE))
    assert target_table(routes, "shop_1.t_1") == "shop.t"


@pytest.mark.parametrize(
    ("regexp", "name", "value"),
    [
        ("^t_(.*)$", "t_7", "7"),
        ("^t_(.*)$", "x", ""),  # Without a match, the value is an empty text, never NULL.
        ("t_", "t_7", ""),  # The pattern has no groups.
        ("_(.)_(.)", "t_1_2_3", "12"),  # All groups of the first match are joined.
        ("((a)b)", "ab", "aba"),
        ("(a)?(b)", "b", "b"),
        ("(T)", "t", ""),  # Case matters.
        ("(?i)(T)", "t", "t"),
        (r"(\w+)", "täg", "t"),  # `\w` matches only ASCII.
        (r"(\d*)", "٣", ""),
        ("(?P<year>[0-9]{4})", "log2026", "2026"),
    ],
)
def test_a_value_is_the_groups_of_the_expression(regexp: str, name: str, value: str) -> None:
    assert Extract(regexp, "c")(name) == value


def test_extracted_columns_are_in_the_order_table_schema_source() -> None:
    rule = RouteRule(
        "shop_*",
        "t_*",
        "shop",
        "t",
        extract_source=Extract("^(.*)-", "of_source"),
        extract_table=Extract("^t_(.*)", "of_table"),
        extract_schema=Extract("(.)$", "of_schema"),
    )
    found = Routes((rule, SCHEMA), "mysql-01").destination(table("shop_3.t_7"))
    assert found == Destination(table("shop.t"), (("of_table", "7"), ("of_schema", "3"), ("of_source", "mysql")), rule)
    assert Routes((rule, SCHEMA), "mysql-01").destination(table("shop_3.x")).extracted == ()


def test_a_rule_on_a_schema_extracts_too() -> None:
    routes = Routes((RouteRule("shop_*", target_schema="shop", extract_schema=Extract("_(.*)", "of")),))
    assert routes.destination(table("shop_1.t")).extracted == (("of", "1"),)


@pytest.mark.parametrize(
    ("make", "code"),
    [
        (lambda: Extract("", "c"), "bad-route"),
        (lambda: Extract("(a)", ""), "bad-route"),
        (lambda: Extract("(a", "c"), "bad-pattern"),
        (lambda: Extract("([[:alpha:]])", "c"), "bad-pattern"),
        (lambda: RouteRule("a", extract_table=Extract("a", "c"), extract_source=Extract("b", "C")), "bad-route"),
        (lambda: Routes((RouteRule("", "t"),)), "bad-pattern"),
        (lambda: Routes((RouteRule("a*b"),)), "bad-pattern"),
        (lambda: Routes((RouteRule("a", "~("),)), "bad-pattern"),
    ],
)
def test_impossible_routes_are_refused_when_they_are_read(make, code: str) -> None:
    with pytest.raises(ConfigError) as caught:
        make()
    assert caught.value.code == code


def test_routes_travel_to_other_processes() -> None:
    routes = Routes((SCHEMA, TABLE), "s")
    routes.destination(table("shop_1.t_1"))
    again = pickle.loads(pickle.dumps(routes))
    assert again == routes == Routes((SCHEMA, TABLE), "s")
    assert hash(again) == hash(routes)
    assert target_table(again, "shop_1.t_1") == "shop.t"


PATTERNS = st.sampled_from(["a", "b", "*", "a*", "?", "[ab]", "~a", "~^b$"])
RULES = st.builds(RouteRule, PATTERNS, st.one_of(st.just(""), PATTERNS), st.sampled_from(["", "x"]), st.just("y"))


@given(st.lists(RULES, max_size=4).flatmap(lambda rules: st.tuples(st.just(rules), st.permutations(rules))))
def test_the_order_of_rules_means_nothing(orders: tuple[list[RouteRule], list[RouteRule]]) -> None:
    def answers(rules: list[RouteRule]) -> list[object]:
        routes, found = Routes(tuple(rules)), []
        for schema in ("a", "b", "ab"):
            for ask in (routes.schema, lambda name, routes=routes: routes.destination(TableName(name, "ba"))):
                try:
                    found.append(ask(schema))
                except ConfigError as error:
                    found.append(error.code)
        return found

    assert answers(orders[0]) == answers(orders[1])
