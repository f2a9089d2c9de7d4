"""At the end, the target has what each scenario's folder says."""

from __future__ import annotations

from typing import Any

import pytest

from .shared_task import of_kind

pytestmark = [pytest.mark.spark, pytest.mark.server, pytest.mark.timeout(600)]


def test_the_target_has_what_is_expected(scenario, target, carried) -> None:
    demand_expected(scenario, target, carried(scenario, target))


def demand_expected(scenario: Any, target: str, done: Any) -> None:
    for expected in scenario.expected["expect"]:
        query, rows = of_kind(expected["query"], target), of_kind(expected["rows"], target)
        assert done.rows(query) == rows, query
    for schema in scenario.expected.get("verify", []):
        tables = {name: found for name, found in done.verified.items() if name.startswith(f"{schema}.")}
        assert tables, f"nothing of {schema} was compared"
        wrong = ("missing", "extra", "different", "unsettled", "problem")
        assert [name for name, found in tables.items() if any(map(found.get, wrong))] == [], tables
