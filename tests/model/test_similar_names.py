"""A misspelt name leads to the known names that it may mean."""

from __future__ import annotations

from pidts.model.similar_names import similar, suggestion


def test_the_most_similar_names_come_first() -> None:
    assert similar("oders", ["users", "orders_1", "orders", "zebra"], most=2) == ["orders", "orders_1"]
    assert similar("oders", []) == []


def test_case_and_the_kind_of_dash_do_not_matter() -> None:
    assert similar("TASK_MODE", ["task-mode"]) == ["task-mode"]
    assert similar("crm", ["CRM"]) == ["CRM"]


def test_names_that_differ_only_in_case_or_dash_are_all_found() -> None:
    assert similar("a.b", ["a_b", "a-b"]) == ["a_b", "a-b"]
    assert similar("crm", ["CRM", "crm", "Crm", "other"], most=2) == ["crm", "CRM"]


def test_a_suggestion_asks_about_one_name_or_says_nothing() -> None:
    assert suggestion("oders", ["orders", "orders_1"]) == "Did you mean 'orders'?"
    assert suggestion("oders", ["zebra"]) == ""
