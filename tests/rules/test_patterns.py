"""A pattern in a rule fits the names that it is meant to fit."""

from __future__ import annotations

import pytest

from pidts.model import ConfigError
from pidts.rules.patterns import check, expression, matches


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        ("a", "a A", "b ab ba"),
        ("*", "a ab", ""),
        ("a*", "a ab A1", "b ba"),
        ("a?", "ab a_", "a abc"),
        ("?b*", "ab abc", "b aab"),
        ("a[0-9]", "a0 a9", "a ax a12"),
        ("a[!0-9]", "ax", "a1 a"),
        ("a[0-9]*", "a1 a1x", "ax a"),
        ("a[]", "a[]", "a"),
        ("a[", "a[", "a"),
        ("a.c", "a.c", "abc"),
        ("~^a", "a ab", "ba"),
        (r"~^t_\d+$", "t_1 T_22", "t_ t_x xt_1"),
        (r"~^\D+$", "ab", "a1"),
    ],
)
def test_a_pattern_means_names(pattern: str, yes: str, no: str) -> None:
    assert [name for name in yes.split() if not matches(pattern, name, case_sensitive=False)] == []
    assert [name for name in no.split() if matches(pattern, name, case_sensitive=False)] == []


def test_case_matters_where_asked() -> None:
    assert matches("A*", "Ab", case_sensitive=True)
    assert not matches("A*", "ab", case_sensitive=True)
    assert not matches("~^A", "ab", case_sensitive=True)


def test_only_a_star_matches_the_empty_name_of_a_statement_without_a_table() -> None:
    assert matches("*", "", case_sensitive=False)
    assert not any(matches(pattern, "", case_sensitive=False) for pattern in ("a*", "?", "a", "[a]"))


@pytest.mark.parametrize("pattern", ["", "a*b", "**", "*a", "~(", "~[[:alpha:]]", "a[z-a]", "~a(?i)b"])
def test_a_pattern_that_cannot_mean_anything_is_an_error(pattern: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check(pattern)
    assert caught.value.code == "bad-pattern"


@pytest.mark.parametrize(
    ("pattern", "named"), [("~^[[:digit:]]+$", "[:digit:]"), (r"~^\pL", r"\p"), (r"~a\z", r"\z"), (r"~\\(", r"\(")]
)
def test_the_advice_names_what_only_dm_knows(pattern: str, named: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check(pattern)
    assert named in caught.value.todo


def test_an_expression_for_texts_is_compiled_once() -> None:
    assert expression("^drop", case_sensitive=False) is expression("^drop", case_sensitive=False)
    assert expression("^drop", case_sensitive=False).search("DROP TABLE t")
