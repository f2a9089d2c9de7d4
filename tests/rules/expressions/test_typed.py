import pytest

from pidts.model import ConfigError, Halted, calendar
from pidts.rules.expressions import ExpressionFilter

from .orders import ROW, TABLE, dropped, rule


@pytest.mark.parametrize(
    "text",
    [
        "id = 7 AND id = '7' AND id = 7.0 AND id = '7.0' AND id = 7e0 AND id <> '8'",
        "b = 9223372036854775807 AND u = 18446744073709551615 AND b < u AND u > -1 AND b <> -1",
        "price = 9.5 AND price = '9.50' AND price > 9 AND price < 9.500001 AND price BETWEEN 9 AND 10.00",
        "wide = 1.5000000000000 AND g = .5 AND price > g",
        "name = 'ada ' AND name = 'ADÁ' AND name < 'adb' AND NOT code = 'AB' AND code = 'Ab  '",
        "name LIKE 'a_A' AND name NOT LIKE 'a_' AND name LIKE '%D%' AND code NOT LIKE 'a%'",
        "day = '2024-02-29' AND day < '2024-02-29 00:00:01' AND at > day AND YEAR(day) = 2024 AND DATE(at) = day",
        "at BETWEEN '2024-02-29 12:30' AND DATE'2024-03-01' AND HOUR(at) = 12 AND span = '-01:00:00'",
        "born = 2024 AND born > '1999' AND state = 'DONE' AND raw = x'6100' AND raw > 'a' AND doc IS NOT NULL",
        "id & 4 AND id | 8 = 15 AND (id ^ 1) = 6 AND ~id = 18446744073709551608 AND id << 1 = 14",
        "id DIV 2 = 3 AND -id % 4 = -3 AND MOD(id, 0) IS NULL AND g / 0 IS NULL AND id + 1.50 = 8.5",
        "IF(id = 7, 'a', 'b') COLLATE utf8mb4_bin = 'a' AND IFNULL(NULL, id) = 7 AND COALESCE(NULL, price, 0) = 9.5",
        "CASE state WHEN 'new' THEN 0 WHEN 'done' THEN 1 END AND NULLIF(id, 7) IS NULL AND GREATEST(id, 9) = 9",
        "CONCAT(name, '-', id) = 'ada-7' AND LEFT(code, 1) = 'A' AND RIGHT(code, 1) = 'b' AND SUBSTRING(code, -2, 1) = 'A'",
        "LOWER(code) = 'ab' AND UPPER(code) = 'AB' AND LENGTH(name) = 3 AND CHAR_LENGTH(TRIM(name)) = 3",
        "(id = 7) = TRUE AND (id = 8) IS FALSE AND (NULL = 1) IS UNKNOWN AND NOT (NULL IS TRUE) AND (id XOR 0)",
        "NULL <=> NULL AND NOT id <=> NULL AND id <=> 7 AND (id IN (1, NULL)) IS NULL AND id IN (NULL, 7)",
        "name IN ('bob', 'ADA') AND '12' < price * 2 AND ABS(-id) = 7 AND big5 IS NOT NULL",
    ],
)  # fmt: skip
def test_true_of_this_row(text):
    for part in text.split(" AND ") if "BETWEEN" not in text else [text]:
        assert dropped(part), part
    assert dropped(text)


@pytest.mark.parametrize(
    "text",
    [
        "name = code", "name > big5", "big5 = 'a'", "UPPER(big5) = 'A'", "'a' = 'A'", "id / 2 = 3", "price / 3 > 1", "price DIV 2 = 1",
        "day = 'yesterday'", "day = 20240229", "day = '2024-02-30'", "day = '2024-00-01'", "span = '1'", "day = name", "span > at",
        "id = 'seven'", "b = '9223372036854775807'", "wide = '1.5'", "state = 1", "state", "state + 1 = 2", "born = 24", "born = '24'",
        "doc = '{}'", "doc LIKE '%'", "rough = 0.5", "raw LIKE 'a%'", "raw = 5", "name LIKE code", "name COLLATE latin1_bin = 'a'",
        "name COLLATE utf8mb4_unknown_ci = 'a'", "day", "span", "YEAR(name) = 1", "name BETWEEN 1 AND 'b'", "IF(id, 1, 'a') = 1",
        "u IN (b, 1)", "b DIV u = 1", "id >> b = 1", "id & price = 1", "LEFT(name, id) = 'a'", "name = 9223372036854775807",
        "COALESCE(born, 1) = 1", "id = 1e309", "LOWER('A') = name COLLATE utf8mb4_unicode_520_ci",
    ],
)  # fmt: skip
def test_refused_before_the_first_row(text):
    with pytest.raises(ConfigError, match="expression-not-supported"):
        ExpressionFilter((rule(insert=text),)).check(TABLE)


DOC = '{"id": 2, "n": null, "t": true, "a": {"b c": [1, 2.5, "x"]}, "s": "2", "big": 1e300}'


@pytest.mark.parametrize(
    "text",
    [
        'doc->"$.id" = 2', "doc->'$.id' = 2.0", "JSON_EXTRACT(doc, '$.id') < 2.5e0", "doc->'$.s' = '2'", "doc->'$.s' > 100",
        "orders.doc->'$.a.\"b c\"[1]' = 2.5", "doc->>'$.a.\"b c\"[2]' = 'x '", "doc->>'$.id' = 2", "doc->>'$.id' = '2'",
        "doc->>'$.a' = '{\"b c\": [1, 2.5, \"x\"]}'", "doc->'$.id[0]' = 2", "doc->'$.none' IS NULL", "doc->'$.none' <=> NULL",
        "doc->'$.n' IS NOT NULL", "doc->'$.n' < -1", "doc->>'$.n' = 'null'", "doc->'$.t' > 7", "doc->>'$.t' = 'true'",
        "JSON_UNQUOTE(doc->'$.s') LIKE '_'", "2 < doc->'$.big'", "doc->>'$.id' IN ('1', '2')",
    ],
)  # fmt: skip
def test_values_in_a_json_document(text):
    assert dropped(text, {**ROW, "doc": DOC})


@pytest.mark.parametrize(
    "text", ["doc->'$.s' = 2", "doc->'$.id' = '2'", "doc->'$.n' = 0", "doc->'$.none' = 1", "doc->'$.id[1]' = 2", "doc->'$.id' = NULL"]
)  # fmt: skip
def test_a_json_value_has_a_type_of_its_own(text):
    assert not dropped(text, {**ROW, "doc": DOC})


@pytest.mark.parametrize(
    "text",
    [
        "doc->'$.a' = TRUE", "doc->'$.a' = id", "doc->'$.a' = doc->'$.b'", "doc->'$.a' > 'a'", "doc->'$.a' = '2024-01-01'",
        "doc->'$.a'", "doc->'$.a' IN (1, 2)", "doc->'$.a' BETWEEN 1 AND 2", "doc->'$.a' LIKE 'a'", "doc->'$.a' + 1 = 2",
        "doc->'$.*' = 1", "doc->'$**.a' = 1", "doc->'$[last]' = 1", "doc->'a' = 1", "doc->'$.a' = 1e300", "name->'$.a' = 1",
        "JSON_EXTRACT(doc, code) = 1", "JSON_UNQUOTE(name) = 'a'", "IFNULL(doc->'$.a', 1) = 1", "NULLIF(doc->'$.a', 1) IS NULL",
        "doc->'$.a' = DATE'2024-01-01'", "doc->'$.a' = x'61'", "CONCAT(doc->'$.a', 'b') = 'b'", "-(doc->'$.a') = 1",
    ],
)  # fmt: skip
def test_json_values_of_which_servers_differ_are_refused(text):
    with pytest.raises(ConfigError, match="expression-not-supported"):
        ExpressionFilter((rule(insert=text),)).check(TABLE)


def test_a_case_compares_json_by_another_rule():
    for text in ("CASE doc->'$.a' WHEN 1 THEN 1 END", "CASE 1 WHEN doc->'$.a' THEN 1 END"):
        with pytest.raises(ConfigError, match="CASE of a JSON value"):
            rule(insert=text)
    assert dropped("CASE WHEN doc->'$.id' = 2 THEN 1 END", {**ROW, "doc": DOC})


def test_overflow_halts_as_it_is_an_error_on_the_server():
    for text in ("b + 1 > 0", "u - 18446744073709551615 - 1 = 0", "b * 2 > 0", "g * 1e308 * 10 > 0", "-u < 0"):
        with pytest.raises(Halted, match="expression-failed"):
            dropped(text)


def test_null_is_no_overflow():
    assert not dropped("b + 1 > 0", {**ROW, "b": None})


def test_unreal_dates_compare_by_year_month_and_day():
    rows = [{**ROW, "day": None}] * 4
    days = [calendar.days(0, 0, 0), calendar.days(2023, 12, 31), calendar.days(2024, 0, 15), calendar.days(2024, 1, 1)]
    rows = [{**ROW, "day": day} for day in days]
    assert dropped("day = '0000-00-00'", *rows) == [True, False, False, False]
    assert dropped("day > '2023-12-31'", *rows) == [False, False, True, True]
    assert dropped("day < '2024-01-01'", *rows) == [True, True, True, False]
    assert dropped("MONTH(day) = 0 AND YEAR(day) = 2024 AND DAY(day) = 15", *rows) == [False, False, True, False]
    with pytest.raises(Halted, match="SQL mode"):
        dropped("day = at", *rows)


@pytest.mark.parametrize(
    ("zone", "local"),
    [("+00:00", "2024-02-29 20:00"), ("+08:00", "2024-03-01 04:00"), ("-05:30", "2024-02-29 14:30"), ("Asia/Shanghai", "2024-03-01 04:00"), ("UTC", "2024-02-29 20:00")],
)  # fmt: skip
def test_timestamps_are_read_in_the_tasks_time_zone(zone, local):
    assert dropped(f"instant = '{local}'", zone=zone)
    assert not dropped(f"instant <> '{local}'", zone=zone)


OFFSETS = (
    "2024-02-29 20:30:00+08:00", "2024-02-29 12:30:00+00:00", "2024-02-29 07:00:00-05:30", "2024-03-01 02:30:00+14:00",
    "2024-02-29T12:30:00.5+00:00", "2024-02-29 12:30:00-08:00",
)  # fmt: skip


@pytest.mark.parametrize("zone", ["+00:00", "+08:00"])
def test_a_date_with_an_offset_has_the_same_value_as_on_mysql(zone, mysql97, database, in_one_session, run_sql):
    """Servers from 8.0.19 on convert the offset into the session's time zone, as the TiDB in DM does."""
    in_one_session(
        mysql97,
        database,
        f"SET time_zone = '{zone}'",
        "CREATE TABLE t (at DATETIME(6), instant TIMESTAMP(6))",
        "SET @instant = FROM_UNIXTIME(UNIX_TIMESTAMP(CONVERT_TZ('2024-02-29 20:00:00', '+00:00', @@time_zone)))",
        "INSERT INTO t VALUES ('2024-02-29 12:30:00', @instant)",
        "CREATE TABLE documents AS " + " UNION ALL ".join(
            f"SELECT {n} AS n, at = TIMESTAMP '{text}' AS same, instant >= TIMESTAMP '{text}' AS later FROM t" for n, text in enumerate(OFFSETS)
        ),
    )  # fmt: skip
    for n, same, later in run_sql(mysql97, "SELECT * FROM documents ORDER BY n", database=database):
        assert dropped(f"at = TIMESTAMP '{OFFSETS[n]}'", zone=zone) == bool(same), OFFSETS[n]
        assert dropped(f"instant >= TIMESTAMP '{OFFSETS[n]}'", zone=zone) == bool(later), OFFSETS[n]


@pytest.mark.parametrize("text", ["2024-02-29 12:00:00-00:00", "2024-02-29 12:00:00+14:01", "2024-02-29 12:00:00+8:00"])
def test_an_offset_that_no_server_takes_is_refused(text):
    with pytest.raises(ConfigError, match="expression-not-supported"):
        dropped(f"at = TIMESTAMP '{text}'")


def test_a_time_with_an_offset_that_servers_read_differently_is_refused_with_what_to_write():
    with pytest.raises(ConfigError, match="write TIMESTAMP '2024-02-29 12:00:00\\+08:00'"):
        dropped("at = '2024-02-29 12:00:00+08:00'")


def test_a_column_that_compares_texts_by_weights_we_lack_may_be_asked_for_null():
    ExpressionFilter((rule(insert="big5 IS NULL AND doc IS NOT NULL"),)).check(TABLE)
