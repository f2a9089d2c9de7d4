"""`NOW()` and similar functions return the time of the change in the source's log."""

import pyarrow as pa
import pytest

from pidts.model import ConfigError, Op, TableName
from pidts.rules import Rules
from pidts.rules.expressions import ExpressionFilter

from .orders import ROW, TABLE, batch, rule

TIMES = pa.array([1_709_209_800_000_000, 1_709_240_000_000_000], pa.int64())
"""2024-02-29 12:30:00 and 20:53:20 in UTC."""


INTERVALS = [
    f"NOW() - INTERVAL {interval} > at"
    for interval in (
        "1 MICROSECOND",
        "'1:1' MINUTE_SECOND",
        "1.5 DAY",
        "id DAY",
        "1 + 1 DAY",
        "1 FORTNIGHT",
        "101 YEAR",
    )
]


def verdicts(text, zone="+00:00"):
    expressions = ExpressionFilter((rule(insert=text),), zone)
    expressions.check(TABLE)
    return expressions.dropped(batch(Op.INSERT, [None] * 2, [ROW] * 2), (), TIMES).to_pylist()


@pytest.mark.parametrize(
    ("text", "zone", "expected"),
    [
        ("NOW() = at", "+00:00", [True, False]),
        ("NOW(6) = '2024-02-29 20:53:20'", "UTC", [False, True]),
        ("CURRENT_TIMESTAMP > '2024-02-29 20:30:00'", "+08:00", [False, True]),
        ("LOCALTIME = '2024-02-29 20:30:00' OR LOCALTIMESTAMP(0) = '1999-01-01'", "Asia/Shanghai", [True, False]),
        ("UTC_TIMESTAMP = at", "+08:00", [True, False]),
        ("CURDATE() = day", "+08:00", [True, False]),
        ("CURRENT_DATE() = '2024-03-01'", "+08:00", [False, True]),
        ("HOUR(NOW()) = 20 AND id = 7", "+00:00", [False, True]),
        ("NOW() = '2024-02-29 07:30:00'", "America/New_York", [True, False]),
        ("NOW() - INTERVAL 8 HOUR < at", "+00:00", [True, False]),
        ("at > NOW() - INTERVAL 1 DAY", "+00:00", [True, True]),
        ("CURDATE() + INTERVAL 1 YEAR = '2025-02-28'", "+00:00", [True, True]),
        ("DATE_SUB(NOW(), INTERVAL 12 MONTH) = '2023-03-01 04:53:20'", "+08:00", [False, True]),
        ("NOW() - INTERVAL 1 MONTH = '2024-01-29 07:30:00'", "America/New_York", [True, False]),
    ],
)
def test_the_time_is_that_of_the_change_in_the_zone_of_the_task(text, zone, expected):
    assert verdicts(text, zone) == expected


@pytest.mark.parametrize(
    "text", ["NOW(7) > at", "NOW(id) > at", "NOW('1') > at", "CURDATE(1) > at", "NOW() + 0 > 1", *INTERVALS]
)
def test_clock_expressions_that_servers_treat_differently_are_refused(text):
    with pytest.raises(ConfigError, match="expression-not-supported"):
        verdicts(text)


def test_only_filters_that_use_it_ask_for_the_time():
    for text, asks in (("id = 7", False), ("`now` = 1", False), ("id = 7 AND CURRENT_DATE > day", True)):
        rules = Rules(expressions=ExpressionFilter((rule(insert=text),)))
        assert (rules.early_filter(TABLE).dropped_at is not None) is asks
    assert not ExpressionFilter((rule(insert="NOW() > at"),)).asks_for_time(TableName("shop", "others"))


def test_rows_of_one_kind_amid_others_have_their_own_times():
    changes = batch(Op.INSERT, [ROW, None], [ROW, ROW])
    ops = pa.array([int(Op.UPDATE), int(Op.INSERT)], pa.int8())
    mixed = type(changes)(TABLE, changes.rows.set_column(1, "op", ops))
    for text, expected in (("NOW() = at", [False, False]), ("NOW() > at", [False, True])):
        assert ExpressionFilter((rule(insert=text),)).dropped(mixed, (), TIMES).to_pylist() == expected
