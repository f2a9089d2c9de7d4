import pytest

from pidts.rules.expressions.parser import parse
from pidts.rules.expressions.tree import ColumnRef, FunctionCall, Literal, NotSupportedError
from pidts.schema.parse.lexer import NotUnderstoodError


def shown(node):
    if isinstance(node, Literal):
        return repr(node.value)
    if isinstance(node, ColumnRef):
        return ".".join((*node.qualifier, node.name))
    assert isinstance(node, FunctionCall)
    return f"{node.name}({', '.join(map(shown, node.args))})"


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("a = 1 OR b = 2 AND c", "OR(=(a, 1), AND(=(b, 2), c))"),
        ("a || b && c", "OR(a, AND(b, c))"),
        ("a OR b XOR c AND d", "OR(a, XOR(b, AND(c, d)))"),
        ("a = 1 AND b AND c XOR d XOR e", "XOR(AND(=(a, 1), b, c), d, e)"),
        ("NOT a = b", "NOT(=(a, b))"),
        ("NOT a AND b", "AND(NOT(a), b)"),
        ("!a = b", "=(NOT(a), b)"),
        ("a = b = c", "=(=(a, b), c)"),
        ("a = b IN (1)", "=(a, IN(b, 1))"),
        ("a NOT IN (1, 2)", "NOT(IN(a, 1, 2))"),
        ("a BETWEEN 1 AND 2 AND b", "AND(BETWEEN(a, 1, 2), b)"),
        ("a IS NOT NULL IS TRUE", "IS TRUE(NOT(IS NULL(a)))"),
        ("a <=> NULL", "<=>(a, None)"),
        ("a LIKE 'x!%' ESCAPE '!'", "LIKE(a, 'x!%', '!')"),
        (r"a LIKE 'x\%'", r"LIKE(a, 'x\\%', '\\')"),
        ("1 + 2 * -3", "+(1, *(2, -3))"),
        ("- a - 1", "-(NEGATE(a), 1)"),
        ("a % 4 DIV 2", "DIV(MOD(a, 4), 2)"),
        ("mod(a, 4)", "MOD(a, 4)"),
        ("a | b & c << 1 + d", "|(a, &(b, <<(c, +(1, d))))"),
        ("2 * 3 ^ 4", "*(2, ^(3, 4))"),
        ("CASE a WHEN 1 THEN 'x' ELSE 'y' END", "CASE(=(a, 1), 'x', 'y')"),
        ("CASE WHEN a THEN b END", "CASE(a, b, None)"),
        ("`select` = `a``b`", "=(select, a`b)"),
        ("t.a = db.t.`b c`", "=(t.a, db.t.b c)"),
        ("t.2e5 = 2e5", "=(t.2e5, 200000.0)"),
        ("\"it's\" = 'it''s'", '=("it\'s", "it\'s")'),
        (r"a = 'x\n\'y'", r"=(a, " + repr("x\n'y") + ")"),
        ("a = 'x' 'y'", "=(a, 'xy')"),
        ("a = x'4D' or a = 0x4D or a = b'1'", "OR(=(a, b'M'), =(a, b'M'), =(a, b'\\x01'))"),
        ("a >= DATE'2024-01-01'", ">=(a, DATE LITERAL('2024-01-01'))"),
        ("BINARY a = 'x' COLLATE utf8mb4_bin", "=(BINARY(a), COLLATE('x', 'utf8mb4_bin'))"),
        ("a /* why */ = -- because\n 1.50", "=(a, Decimal('1.50'))"),
        ("left(a, 1) = if((b), 1, (2))", "=(LEFT(a, 1), IF(b, 1, 2))"),
        ("trim((a))", "TRIM(a)"),
        ("now()", "NOW()"),
        ("a > now() - interval 1 day", ">(a, DATE_SUB(NOW(), 1, 'DAY'))"),
        ("NOW() + INTERVAL -2 MONTH - INTERVAL '3' YEAR", "DATE_SUB(DATE_ADD(NOW(), -2, 'MONTH'), '3', 'YEAR')"),
        ("date_add(date(now()), interval 1 + 1 hour)", "DATE_ADD(DATE(NOW()), +(1, 1), 'HOUR')"),
        ("interval_ = NOW(6) - INTERVAL 1 QUARTER", "=(interval_, DATE_SUB(NOW(6), 1, 'QUARTER'))"),
        ("Now(6) > current_timestamp", ">(NOW(6), CURRENT_TIMESTAMP())"),
        ("CURRENT_DATE = day or a < `current_date`", "OR(=(CURRENT_DATE(), day), <(a, current_date))"),
        ("utc_timestamp() = now", "=(UTC_TIMESTAMP(), now)"),
        ("t.a->'$.x' - b->>\"$\" = 1", "=(-(JSON_EXTRACT(t.a, '$.x'), JSON_UNQUOTE(JSON_EXTRACT(b, '$'))), 1)"),
        ("true", "1"),
        ("1000000000000000000000", "1000000000000000000000"),
    ],
)
def test_an_expression_is_read_as_the_server_reads_it(text, meaning):
    assert shown(parse(text)) == meaning


@pytest.mark.parametrize(
    "text",
    ["", "a =", "= a", "a b", "(a", "a)", "a IN ()", "'x", "a = 'x", "CASE END", "CASE WHEN a THEN b", "a IS 1", "a BETWEEN 1", "1a$ 2", "a..b", "a @ b", "a AND", "AND(a)", "a.b.c.d", "f(a,)", "a;"],
)  # fmt: skip
def test_texts_that_are_no_expressions_are_refused(text):
    with pytest.raises(NotUnderstoodError):
        parse(text)


@pytest.mark.parametrize(
    "text",
    ["a IN (SELECT 1)", "EXISTS (SELECT 1)", "a = ANY (1)", "a REGEXP 'x'", "(a, b) = (1, 2)", "a + INTERVAL 1 DAY", "NOW() * INTERVAL 1 DAY", "DATE_SUB(a, INTERVAL 1 DAY)", "_utf8mb4'x'", "CAST(a AS CHAR)", "TRIM(BOTH 'x' FROM a)", "SUBSTRING(a FROM 2)"],
)  # fmt: skip
def test_other_syntax_of_the_servers_is_not_supported(text):
    with pytest.raises(NotSupportedError):
        parse(text)
