"""The query for dependent views in docs/operate/table-halted.md finds all of them."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pidts.sandbox import Server

PAGE = Path(__file__).parents[2] / "docs" / "operate" / "table-halted.md"
RunSql = Callable[..., list[tuple[Any, ...]]]


def test_the_query_shows_nested_views_in_the_order_in_which_they_can_be_dropped(
    postgres: Server, database: str, run_sql: RunSql
) -> None:
    (query,) = re.findall(r"```sql\n(WITH RECURSIVE.*?);\n```", PAGE.read_text("utf-8"), re.DOTALL)
    for statement in (
        "CREATE SCHEMA shop",
        "CREATE TABLE shop.orders (id int, state text)",
        "CREATE VIEW shop.paid AS SELECT * FROM shop.orders",
        "CREATE MATERIALIZED VIEW shop.many AS SELECT count(*) FROM shop.paid",
        'CREATE VIEW shop."All" AS SELECT id, (SELECT 1 FROM shop.many) FROM shop.orders',
    ):
        run_sql(postgres, statement, database=database)
    found = run_sql(postgres, query, database=database)
    assert [name for name, _ in found] == ['shop."All"', "shop.many", "shop.paid"]
    assert "shop.orders" in found[2][1]
    for name, _ in found:
        kind = "MATERIALIZED VIEW" if name == "shop.many" else "VIEW"
        run_sql(postgres, f"DROP {kind} {name}", database=database)
