"""The block-allow-list keeps and drops the same tables as DM's."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pidts.model import ConfigError, TableName
from pidts.rules import SYSTEM_SCHEMAS, AllowList, allow_list
from pidts.rules.patterns import matches


def table(name: str) -> TableName:
    return TableName(*name.split("."))


@pytest.mark.parametrize(
    ("allow", "kept", "dropped"),
    [
        (AllowList(), "a.t z.t", ""),
        (AllowList(do_dbs=("a",)), "a.t A.t", "b.t ab.t"),
        (AllowList(do_dbs=("a*",)), "a.t ab.t", "b.t ba.t"),
        (AllowList(do_dbs=("a?",)), "ab.t", "a.t abc.t"),
        (AllowList(do_dbs=("a[0-9]",)), "a1.t", "a.t ax.t a12.t"),
        (AllowList(do_dbs=("a[!0-9]",)), "ax.t", "a1.t a.t"),
        (AllowList(do_dbs=("a[!]",)), "a!.t", "ax.t a.t"),
        (AllowList(do_dbs=("a[xz]*",)), "ax.t azz.t", "ay.t"),
        (AllowList(do_dbs=("a[",)), "a[.t", "a.t"),
        (AllowList(do_dbs=("a.c",)), "", "abc.t"),
        (AllowList(do_dbs=("~^shop_",)), "shop_1.t SHOP_2.t", "myshop_1.t"),
        (AllowList(do_dbs=("~op",)), "shop.t", "sho.t"),
        (AllowList(do_dbs=(r"~^\D+$",)), "shop.t", "shop1.t"),
        (AllowList(ignore_dbs=("a",)), "b.t", "a.t"),
        # With do-dbs, ignore-dbs is not used.
        (AllowList(do_dbs=("a*",), ignore_dbs=("ab",)), "ab.t a.t", "b.t"),
        (AllowList(do_tables=(("a", "t"),)), "a.t", "a.u b.t"),
        (AllowList(do_tables=(("a", "t*"),)), "a.t a.tt", "a.u"),
        (AllowList(do_tables=(("~^a", "~^t"),)), "a.t aa.tt", "a.u b.t"),
        (AllowList(do_tables=(("~^a", "t"),)), "ab.t", "ab.u"),
        (AllowList(do_tables=(("a", "~t$"),)), "a.xt", "a.tx"),
        # Both patterns of an entry must match.
        (AllowList(do_tables=(("~^a", "t"), ("~^b", "u"))), "a.t b.u", "a.u b.t"),
        (AllowList(ignore_tables=(("a", "log*"),)), "a.t b.log", "a.log a.logs"),
        # With do-tables, a match keeps a table whatever ignore-tables says. A table that matches neither is dropped.
        (AllowList(do_tables=(("a", "t*"),), ignore_tables=(("a", "t1"),)), "a.t1 a.t2", "a.u"),
        # The schema is checked first.
        (AllowList(do_dbs=("b",), do_tables=(("a", "t"),)), "", "a.t b.t b.u"),
        (AllowList(ignore_dbs=("a",), do_tables=(("a", "t"),)), "", "a.t"),
        (AllowList(do_dbs=("a",), ignore_tables=(("a", "t"),)), "a.u", "a.t b.u"),
        (AllowList(do_dbs=("A",), case_sensitive=True), "A.t", "a.t"),
        (AllowList(do_dbs=("~A",), case_sensitive=True), "xA.t", "xa.t"),
    ],
    ids=str,
)
def test_tables_are_kept_and_dropped_as_dm_does(allow: AllowList, kept: str, dropped: str) -> None:
    assert [name for name in kept.split() if not allow(table(name))] == []
    assert [name for name in dropped.split() if allow(table(name))] == []


def test_a_statement_on_a_schema_is_decided_by_the_schema_step_alone() -> None:
    allow = AllowList(do_dbs=("a",), do_tables=(("a", "t"),))
    assert allow.takes_schema("a")
    assert not allow.takes_schema("b")


@pytest.mark.parametrize("schema", sorted(SYSTEM_SCHEMAS))
def test_system_schemas_are_never_taken(schema: str) -> None:
    allow = AllowList(do_dbs=("*",), do_tables=((schema, "*"),))
    assert not allow(TableName(schema, "t"))
    assert not allow(TableName(schema.upper(), "t"))
    assert not allow.takes_schema(schema)


@pytest.mark.parametrize("pattern", ["", "a*b", "**", "~(", "~[[:alpha:]]", "a[z-a]"])
def test_a_pattern_that_cannot_mean_anything_is_an_error(pattern: str) -> None:
    with pytest.raises(ConfigError) as caught:
        AllowList(do_tables=(("a", pattern),))
    assert caught.value.code == "bad-pattern"


def test_a_list_travels_to_other_processes() -> None:
    allow = AllowList(do_dbs=("~^a",), ignore_tables=(("a", "x*"),))
    again = pickle.loads(pickle.dumps(allow))
    assert again == allow
    assert again(table("a.t"))
    assert not again(table("a.xx"))


_NAMES = st.text("aAsSkK_1\u017f\u212aé*?[]", min_size=1, max_size=3)
_PATTERNS = st.one_of(
    st.text("aAsSkK_1\u017f\u212aé", min_size=1, max_size=3),
    st.sampled_from(["*", "a*", "?", "[as]", "[!a]k", "~^s", "~K", "[]", "[s"]),
)


@given(names=_NAMES, patterns=st.lists(st.tuples(st.sampled_from(["shop", "s*"]), _PATTERNS)), case=st.booleans())
def test_a_table_is_found_as_if_it_were_compared_with_each_pattern(
    names: str, patterns: list[tuple[str, str]], case: bool
) -> None:
    wanted = any(
        matches(schema, "shop", case_sensitive=case) and matches(pattern, names, case_sensitive=case)
        for schema, pattern in patterns
    )
    table = TableName("shop", names)
    assert AllowList(do_tables=tuple(patterns), case_sensitive=case)(table) == (wanted or not patterns)
    assert AllowList(ignore_tables=tuple(patterns), case_sensitive=case)(table) == (not wanted)


def test_a_list_of_thousands_of_tables_compares_each_table_with_its_own_patterns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compared: list[str] = []

    def counted(pattern: str, name: str, *, case_sensitive: bool) -> bool:
        compared.append(pattern)
        return matches(pattern, name, case_sensitive=case_sensitive)

    names = [f"T_{number}" for number in range(3000)]
    allow = AllowList(do_tables=(("shop", "x*"), *(("shop", name.lower()) for name in names)))
    monkeypatch.setattr(allow_list, "matches", counted)
    assert all(allow(TableName("shop", name)) for name in names)
    assert not allow(TableName("shop", "t_3000"))
    assert len(compared) == 2 * len(names) + 2, (
        "the schema and the name of one pattern, and at the end of the other one"
    )


@pytest.mark.parametrize(
    ("text", "table", "takes"),
    [
        ("my.app.orders", TableName("my.app", "orders"), True),
        ("my.app.orders", TableName("my", "app.orders"), True),
        ("my.app", TableName("my.app", "orders"), True),
        ("my.app", TableName("my", "orders"), False),
        ("my.app.orders", TableName("my.app", "items"), False),
        ("shop", TableName("shop", "orders"), True),
        ("shop.o*", TableName("shop", "orders"), True),
        ("my.a*,shop.orders", TableName("shop", "orders"), True),
        ("my.app.*", TableName("my.app", "orders"), True),
        ("my.app.*", TableName("my", "app.orders"), True),
        ("my.app.*", TableName("my", "orders"), False),
        ("m*.app.*", TableName("my.app", "orders"), False),
    ],
)
def test_the_names_in_an_option_may_have_dots(text: str, table: TableName, *, takes: bool) -> None:
    """For example, the advice of a halted table names it as schema and table with a dot between them."""
    assert AllowList.parse(text)(table) is takes
