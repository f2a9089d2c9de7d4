"""A table with a column of every kind, rows with many edge cases, and random conditions on them."""

# ruff: noqa: RUF001 - letters that look like others are what collations are about

from __future__ import annotations

from random import Random

COLUMNS = """
id INT PRIMARY KEY, ti TINYINT, us SMALLINT UNSIGNED, n INT, b BIGINT, ub BIGINT UNSIGNED, d2 DECIMAL(10,2), d9 DECIMAL(30,9),
f FLOAT, g DOUBLE, bt BIT(5), y YEAR, da DATE, dt DATETIME(3), ts TIMESTAMP(6) NULL, tm TIME(2),
s VARCHAR(20) CHARACTER SET utf8mb4 COLLATE {ci}, s2 VARCHAR(20) CHARACTER SET utf8mb4 COLLATE {ci},
bin VARCHAR(20) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, gen CHAR(12) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci,
uni TEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_ci, lat VARCHAR(12) CHARACTER SET latin1 COLLATE latin1_swedish_ci,
vb VARBINARY(12), m MEDIUMINT UNSIGNED, dd DECIMAL(65,30), u3 VARCHAR(12) CHARACTER SET utf8 COLLATE utf8_general_ci, bn BINARY(4), gb VARCHAR(12) CHARACTER SET gbk COLLATE gbk_chinese_ci,
e ENUM('new','Done','deleted') CHARACTER SET utf8mb4 COLLATE {ci}, st SET('a','b','c') CHARACTER SET utf8mb4 COLLATE {ci}
"""

_INTS = [0, 1, -1, 2, 3, 5, 7, 10, 24, 99, 100, 127, -128]
_WORDS = [
    "", " ", "a", "A", "b", "ab", "aB", "a b", "abc", "abc ", "a\t", "a!", "é", "É", "e", "ß", "ss", "Straße", "STRASSE", "æ", "AE",
    "1", "12", "12abc", " 3", "-1.5", "1e2", "+7", ".5", "0", "deleted", "Deleted", "完成", "完", "删除", "😀", "😁", "x%y", "x_y",
    "a\\b", "new", "и", "й", "l·", "Ł", "ｆｕｌｌ", "İ", "ı", "i", "\u00ad", "a\u0301", "á", "a\u00adb", "\0", "10", "9", "2024-01-01",
]  # fmt: skip
_BASIC = [word for word in _WORDS if max(word, default="") <= "\uffff"]
_GBK = ["", "a", "A", "完成", "完", "删除", "y", "~", "и", "ab ", "12"]
_LATIN = [word for word in _WORDS if all(ord(sign) < 256 and sign != "\u00ad" for sign in word)]
_DATES = [
    "0000-00-00",
    "2024-00-15",
    "2024-01-00",
    "2023-12-31",
    "2024-01-01",
    "2024-02-29",
    "1969-12-31",
    "9999-12-31",
    "1000-01-01",
]
_TIMES = ["00:00:00", "23:59:59.999", "12:00:00", "00:00:00.001"]


def rows(random: Random, count: int, *, unreal: bool) -> list[tuple[object, ...]]:
    """Returns values for all columns, on request with dates that are in no calendar."""
    dates = [date for date in _DATES if unreal or "-00" not in date]

    def pick(values):
        return None if random.random() < 0.12 else random.choice(values)

    def integer(low, high):
        return pick([*(value for value in _INTS if low <= value <= high), low, high, random.randint(low, high)])

    def number(digits, scale):
        return pick([f"{random.choice(_INTS)}", f"{random.randint(-(10**digits), 10**digits) / 10**scale:.{scale}f}"])

    return [
        (
            row,
            integer(-128, 127),
            integer(0, 65535),
            integer(-(2**31), 2**31 - 1),
            integer(-(2**63), 2**63 - 1),
            integer(0, 2**64 - 1),
            number(9, 2),
            number(17, 9),
            pick([0, 0.1, -1.5, 3, 1e10, 16777217]),
            pick([0, 0.1, 0.5, -1.5, 3, 1e300, 1e-300, 2**53, 2**63]),
            integer(0, 31),
            pick([0, 1901, 1970, 2024, 2155]),
            pick(dates),
            pick([f"{random.choice(dates)} {random.choice(_TIMES)}" for _ in range(3)]),
            pick(
                [
                    "0000-00-00 00:00:00" if unreal else "1980-01-01",
                    "1970-01-01 00:00:01",
                    "2024-01-01 00:00:00.000001",
                    "2024-02-29 23:59:59",
                    "2037-12-31 12:00:00",
                ]
            ),
            pick(["00:00:00", "-12:30:00.25", "838:59:59", "-838:59:59", "12:00:00", "23:59:59.99"]),
            pick(_WORDS),
            pick(_WORDS),
            pick(_WORDS),
            pick(_WORDS),
            pick(_WORDS),
            pick(_LATIN),
            pick([b"", b"a", b"A", b"a ", b"\0", b"ab", b"\xff\xfe", b"abc"]),
            integer(0, 2**24 - 1),
            number(20, 15),
            pick(_BASIC),
            pick([b"", b"a", b"ab", b"abcd"]),
            pick(_GBK),
            pick(["new", "Done", "deleted", ""]),
            pick(["", "a", "b", "a,b", "a,c", "a,b,c"]),
        )
        for row in range(count)
    ]


def quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "''").replace("\0", "\\0") + "'"


class Conditions:
    """Draws random conditions, of the supported grammar and a little beyond it."""

    def __init__(self, random: Random) -> None:
        self._random = random

    def _any(self, *choices):
        return self._random.choice(choices)()

    def _one(self, *values):
        return self._random.choice(values)

    def condition(self, depth: int = 3) -> str:
        if depth <= 0 or self._random.random() < 0.35:
            return self._predicate()
        inner = [self.condition(depth - 1) for _ in range(2)]
        return self._any(
            lambda: f"({inner[0]}) AND ({inner[1]})",
            lambda: f"{inner[0]} OR {inner[1]}",
            lambda: f"({inner[0]}) XOR ({inner[1]})",
            lambda: f"NOT {inner[0]}",
            lambda: f"!({inner[0]})",
            lambda: f"({inner[0]}) IS {self._one('', 'NOT ')}{self._one('TRUE', 'FALSE', 'NULL', 'UNKNOWN')}",
            lambda: f"({inner[0]}) = ({inner[1]})",
            lambda: f"IF({inner[0]}, {self._number(1)}, {self._number(1)}) > 1",
            lambda: f"CASE WHEN {inner[0]} THEN 1 WHEN {inner[1]} THEN NULL ELSE 0 END",
        )

    def _sign(self) -> str:
        return self._one("=", "=", "<>", "!=", "<", "<=", ">", ">=", "<=>")

    def _predicate(self) -> str:
        return self._any(
            lambda: f"{self._number(2)} {self._sign()} {self._number(2)}",
            lambda: f"{self._number(1)} {self._sign()} {self._number(1)}",
            lambda: f"{self._number(1)} {self._one('', 'NOT ')}BETWEEN {self._number(1)} AND {self._number(1)}",
            lambda: (
                f"{self._number(1)} {self._one('', 'NOT ')}IN ({self._number(0)}, {self._number(0)}, {self._one('NULL', '5')})"
            ),
            lambda: f"{self._text(1)} {self._sign()} {self._text(1)}",
            lambda: f"{self._text(1)} {self._sign()} {self._word()}",
            lambda: f"{self._text(1)} {self._one('', 'NOT ')}IN ({self._word()}, {self._word()}, {self._word()})",
            lambda: f"{self._text(1)} BETWEEN {self._word()} AND {self._word()}",
            lambda: f"{self._text(1)} {self._one('', 'NOT ')}LIKE {self._pattern()}",
            lambda: f"{self._moment()} {self._sign()} {self._date()}",
            lambda: f"{self._moment()} {self._sign()} {self._moment()}",
            lambda: f"{self._moment()} BETWEEN {self._date()} AND {self._date()}",
            lambda: f"{self._moment()} IN ({self._date()}, {self._date()})",
            lambda: (
                f"tm {self._sign()} {self._one(*map(quoted, ['12:00:00', '-12:30:00.25', '838:59:59', '00:00:00']))}"
            ),
            lambda: f"{self._text(0)} {self._sign()} {self._number(0)}",
            lambda: (
                f"{self._number(0)} {self._sign()} {self._one(*map(quoted, ['1', '0', '1.5', '-1', '24', '100', ' 7 ', '2024']))}"
            ),
            lambda: (
                f"{self._one('ti', 'n', 's', 'da', 'dt', 'tm', 'vb', 'e', 'g', 'bt')} IS {self._one('', 'NOT ')}NULL"
            ),
            lambda: f"ISNULL({self._one('ti', 's', 'da')})",
            lambda: (
                f"vb {self._sign()} {self._one(quoted('a'), quoted('A'), 'x' + quoted('fffe'), '0x6162', quoted('a '))}"
            ),
            lambda: f"bn {self._sign()} {self._one(quoted('a'), '0x61000000', quoted('abcd'))}",
            lambda: self._number(1),
            lambda: self._one("s", "bin", "gen"),
            lambda: f"e {self._sign()} {self._one(*map(quoted, ['new', 'done', 'DONE', 'deleted ', '', 'x']))}",
            lambda: (
                f"st {self._one('=', '<>', '<', 'LIKE')} {self._one(*map(quoted, ['a', 'A,B', 'a,b,c', '', 'a%']))}"
            ),
        )

    def _number(self, depth: int) -> str:
        plain = [
            lambda: self._one("ti", "us", "n", "b", "ub", "d2", "d9", "f", "g", "bt", "y", "id", "m", "dd"),
            lambda: self._one("ti", "us", "n", "id"),
            lambda: str(
                self._one(
                    *_INTS,
                    2024,
                    9223372036854775807,
                    18446744073709551615,
                    "1.5",
                    "0.10",
                    "-2.25",
                    "1e2",
                    "0.1",
                    ".5",
                    "TRUE",
                    "NULL",
                )
            ),
        ]
        if depth <= 0:
            return self._any(*plain)
        return self._any(
            *plain,
            lambda: (
                f"({self._number(depth - 1)} {self._one('+', '-', '*', 'DIV', '%', 'MOD', '/')} {self._number(depth - 1)})"
            ),
            lambda: f"({self._number(depth - 1)} {self._one('&', '|', '^', '<<', '>>')} {self._number(depth - 1)})",
            lambda: f"-{self._one('ti', 'n', 'us', 'd2', 'g', 'b')}",
            lambda: f"~{self._one('ti', 'n', 'us', 'ub', 'bt')}",
            lambda: f"ABS({self._number(depth - 1)})",
            lambda: f"{self._one('FLOOR', 'CEIL')}({self._one('g', 'n', 'f')})",
            lambda: f"MOD({self._one('n', 'id', 'us', 'ti')}, {self._one('2', '3', '4', '0', '-3')})",
            lambda: f"{self._one('LENGTH', 'CHAR_LENGTH')}({self._text(depth - 1)})",
            lambda: (
                f"{self._one('YEAR', 'MONTH', 'DAY', 'DAYOFMONTH', 'QUARTER', 'HOUR', 'MINUTE', 'SECOND', 'MICROSECOND')}({self._moment()})"
            ),
            lambda: (
                f"{self._one('IFNULL', 'COALESCE', 'GREATEST', 'LEAST', 'NULLIF')}({self._number(depth - 1)}, {self._number(depth - 1)})"
            ),
        )

    def _text(self, depth: int) -> str:
        column = self._one("s", "s2", "bin", "gen", "uni", "lat", "e", "s", "u3", "gb")
        if depth <= 0:
            return column
        size = self._one(-3, -1, 0, 1, 2, 3)
        return self._any(
            lambda: column,
            lambda: column,
            lambda: f"{column} COLLATE {self._one('utf8mb4_bin', 'utf8mb4_general_ci', 'utf8mb4_unicode_520_ci')}",
            lambda: f"BINARY {column}",
            lambda: f"{self._one('LOWER', 'UPPER', 'LCASE', 'UCASE')}({column})",
            lambda: f"{self._one('TRIM', 'LTRIM', 'RTRIM')}({column})",
            lambda: f"{self._one('LEFT', 'RIGHT')}({column}, {size})",
            lambda: f"{self._one('SUBSTRING', 'SUBSTR', 'MID')}({column}, {size}, {self._one(0, 1, 2)})",
            lambda: f"SUBSTRING({column}, {size})",
            lambda: f"CONCAT({column}, {self._word()})",
            lambda: f"CONCAT({column}, {self._one('n', 'ti', 's2')})",
            lambda: f"{self._one('IFNULL', 'COALESCE', 'NULLIF')}({column}, {self._word()})",
            lambda: f"REPLACE({column}, {quoted(self._one('a', 'b', ' '))}, {quoted(self._one('', 'x'))})",
        )

    def _word(self) -> str:
        return quoted(self._one(*_WORDS))

    def _pattern(self) -> str:
        word = self._one(*_WORDS)
        return self._one(
            quoted(word), quoted(f"{word}%"), quoted(f"%{word}%"), quoted(f"%{word}"), quoted(f"_{word}"), quoted(f"{word}_"), "'x\\%y'", "'x\\_%'",
            "'x!%y' ESCAPE '!'", "'%'", "'_'", "'__'",
        )  # fmt: skip

    def _moment(self) -> str:
        return self._one("da", "dt", "ts", "DATE(dt)", "DATE(ts)", "da", "COALESCE(dt, ts)", "IF(n > 1, dt, NULL)")

    def _date(self) -> str:
        return self._one(
            "'2024-01-01'", "'2024-1-1'", "'2024-02-29 23:59:59'", "'1969-12-31'", "'2024-01-01 00:00:00.000001'", "DATE'2023-12-31'",
            "TIMESTAMP'2024-01-01 00:00:00'", "'9999-12-31'", "'1970-01-01 00:00:01'",
        )  # fmt: skip
