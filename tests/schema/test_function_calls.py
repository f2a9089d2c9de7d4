"""Which functions in a statement may be stored functions."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pidts.schema import MYSQL
from pidts.schema.parse.function_calls import calls


@pytest.mark.parametrize(
    ("sql", "found"),
    [
        ("INSERT INTO t (a, b) VALUES (1, NOW()), (COALESCE(NULL, 1), if (1, 2, 3))", ()),
        ("INSERT d.t (a) VALUES (1) AS n(x) ON DUPLICATE KEY UPDATE a = VALUES(a) + n.x", ()),
        ("REPLACE INTO t SELECT CAST(a AS DECIMAL(10, 2)) FROM (SELECT 1) AS q (a) USE INDEX (i) WHERE (a) IN (1)", ()),
        ("LOAD DATA INFILE 'x' INTO TABLE d.t FIELDS TERMINATED BY \",\" (a, @b) SET c = TRIM(@b)", ()),
        ("UPDATE t SET a = f(1), b = F (2), c = d.g(3)", ("f", "F", "d.g")),
        ("UPDATE t SET a = `count`(1), b = `d`.`max`(2)", ("count", "d.max")),
        ("UPDATE t SET a = count (1)", ("count",)),
        ("UPDATE t SET a = 'f(1)' /* f(1) */ -- f(1)", ()),
        ("UPDATE t SET a = /*!50003 f(1) */", ("f",)),
        ('UPDATE t SET a = "f"(1)', ("f",)),
        ("INSERT INTO t VALUES (1);\nUSE `x`;\nUPDATE t SET a = f(1)", ("f",)),
        ("CREATE TABLE t (a VARCHAR(20), b ENUM('x'), KEY (a)) SELECT f(1) AS a", ("f",)),
    ],
)
def test_all_but_the_servers_own_functions_may_be_stored(sql: str, found: tuple[str, ...]) -> None:
    assert calls(sql, MYSQL) == found


def test_a_quoted_name_is_a_call_in_every_sql_mode() -> None:
    assert calls('UPDATE t SET a = "count"(1)', replace(MYSQL, ansi_quotes=True)) == ("count",)
