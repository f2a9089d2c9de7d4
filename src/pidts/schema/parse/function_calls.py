"""Finds the stored functions that a statement may call: a stored function may change rows of any table.

If a built-in function and a stored function have the same name, the server calls the built-in function. But a qualified
name (`shop.count(1)`) or a quoted name always means a stored function. Without the SQL mode IGNORE_SPACE, some names
mean built-in functions only if no space stands before the parenthesis.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator, Sequence
from functools import lru_cache
from itertools import chain, dropwhile, islice, pairwise, repeat

from pidts.schema.dialect import Dialect
from pidts.schema.parse.lexer import Lexeme, Token, tokens

_NO_CALL_AFTER = frozenset(
    "AS CHARSET DELAYED IGNORE INSERT INTO LOW_PRIORITY REPLACE SET TABLE WINDOW".split()  # noqa: SIM905
)
"""The words before a table, an alias or a charset: a list in parentheses may follow such a name."""
_NONE = Token(Lexeme.END, "", 0, 0)
_OPERANDS = (Lexeme.BYTES, Lexeme.NAME, Lexeme.NUMBER, Lexeme.TEXT)
_DEFINING = ("CREATE", "ALTER", "DROP", "RENAME", "TRUNCATE")
_WITHOUT_SPACE = frozenset(
    """
    ADDDATE BIT_AND BIT_OR BIT_XOR CAST COUNT CUME_DIST CURDATE CURTIME DATE_ADD DATE_SUB DENSE_RANK EXTRACT
    FIRST_VALUE GROUP_CONCAT JSON_ARRAYAGG JSON_OBJECTAGG LAG LEAD MAX MEDIAN MID MIN NOW NTH_VALUE NTILE
    PERCENTILE_CONT PERCENTILE_DISC PERCENT_RANK POSITION RANK SESSION_USER STD STDDEV STDDEV_POP STDDEV_SAMP
    ST_COLLECT SUBDATE SUBSTR SUBSTRING SUM SYSDATE SYSTEM_USER TRIM TRIM_ORACLE VARIANCE VAR_POP VAR_SAMP
    """.split()  # noqa: SIM905
)
_OWN = frozenset(
    """
    ABS ACOS ADDDATE ADDTIME AES_DECRYPT AES_ENCRYPT ALL AND ANY AS ASCII ASIN ATAN ATAN2 AVG BENCHMARK BETWEEN BIGINT
    BIN BINARY BIT BIT_AND BIT_COUNT BIT_LENGTH BIT_OR BIT_XOR BLOB BOTH BY CASE CAST CEIL CEILING CHAR CHARACTER
    CHARACTER_LENGTH CHARSET CHAR_LENGTH CHECK COALESCE COERCIBILITY COLLATION COLUMN COMPRESS CONCAT CONCAT_WS
    CONNECTION_ID CONV CONVERT CONVERT_TZ COS COT COUNT CRC32 CURDATE CURRENT_DATE CURRENT_TIME CURRENT_TIMESTAMP
    CURRENT_USER CURTIME DATABASE DATE DATEDIFF DATETIME DATE_ADD DATE_FORMAT DATE_SUB DAY DAYNAME DAYOFMONTH
    DAYOFWEEK DAYOFYEAR DEC DECIMAL DEFAULT DEGREES DISTINCT DISTINCTROW DIV DOUBLE ELSE ELT ENUM EXISTS EXP
    EXPORT_SET EXTRACT EXTRACTVALUE FIELD FIND_IN_SET FLOAT FLOOR FOR FORMAT FOUND_ROWS FROM FROM_BASE64 FROM_DAYS
    FROM_UNIXTIME GET_FORMAT GET_LOCK GREATEST GROUP GROUP_CONCAT HAVING HEX HIGH_PRIORITY HOUR IF IFNULL IGNORE IN
    INDEX INET6_ATON INET6_NTOA INET_ATON INET_NTOA INSERT INSTR INT INTEGER INTERVAL INTO IS ISNULL IS_FREE_LOCK
    IS_IPV4 IS_IPV4_COMPAT IS_IPV4_MAPPED IS_IPV6 IS_USED_LOCK JOIN KEY LAST_DAY LAST_INSERT_ID LCASE LEADING LEAST
    LEFT LENGTH LIKE LIMIT LINES LN LOAD_FILE LOCALTIME LOCALTIMESTAMP LOCATE LOG LOG10 LOG2 LOWER LOW_PRIORITY LPAD
    LTRIM MAKEDATE MAKETIME MAKE_SET MASTER_POS_WAIT MATCH MAX MBRCONTAINS MBRDISJOINT MBRINTERSECTS MBROVERLAPS
    MBRTOUCHES MBRWITHIN MEDIUMINT MICROSECOND MID MIN MINUTE MOD MONTH MONTHNAME NAME_CONST NATIONAL NCHAR NOT NOW
    NULLIF NUMERIC NVARCHAR OCT OCTET_LENGTH ON OR ORD ORDER PARTITION PASSWORD PERIOD_ADD PERIOD_DIFF PI POSITION POW
    POWER QUARTER QUOTE RADIANS RAND REAL REGEXP RELEASE_LOCK REPEAT REPLACE REVERSE RIGHT RLIKE ROUND ROW ROW_COUNT
    RPAD RTRIM SCHEMA SECOND SEC_TO_TIME SELECT SESSION_USER SET SHA2 SIGN SIGNED SIN SLEEP SMALLINT SOME SOUNDEX
    SPACE SQL_BIG_RESULT SQL_CALC_FOUND_ROWS SQL_SMALL_RESULT SQRT STD STDDEV STDDEV_POP STDDEV_SAMP STRAIGHT_JOIN
    STRCMP STR_TO_DATE ST_AREA ST_ASBINARY ST_ASTEXT ST_ASWKB ST_ASWKT ST_BUFFER ST_CENTROID ST_CONTAINS ST_CROSSES
    ST_DIFFERENCE ST_DIMENSION ST_DISJOINT ST_DISTANCE ST_ENDPOINT ST_ENVELOPE ST_EQUALS ST_EXTERIORRING
    ST_GEOMCOLLFROMTEXT ST_GEOMCOLLFROMWKB ST_GEOMETRYCOLLECTIONFROMTEXT ST_GEOMETRYCOLLECTIONFROMWKB
    ST_GEOMETRYFROMTEXT ST_GEOMETRYFROMWKB ST_GEOMETRYN ST_GEOMETRYTYPE ST_GEOMFROMTEXT ST_GEOMFROMWKB
    ST_INTERIORRINGN ST_INTERSECTION ST_INTERSECTS ST_ISCLOSED ST_ISEMPTY ST_ISSIMPLE ST_LENGTH ST_LINEFROMTEXT
    ST_LINEFROMWKB ST_LINESTRINGFROMTEXT ST_LINESTRINGFROMWKB ST_NUMGEOMETRIES ST_NUMINTERIORRINGS ST_NUMPOINTS
    ST_OVERLAPS ST_POINTFROMTEXT ST_POINTFROMWKB ST_POINTN ST_POLYFROMTEXT ST_POLYFROMWKB ST_POLYGONFROMTEXT
    ST_POLYGONFROMWKB ST_SRID ST_STARTPOINT ST_SYMDIFFERENCE ST_TOUCHES ST_UNION ST_WITHIN ST_X ST_Y SUBDATE SUBSTR
    SUBSTRING SUBSTRING_INDEX SUBTIME SUM SYSDATE SYSTEM_USER TABLE TAN TEXT THEN TIME TIMEDIFF TIMESTAMP TIMESTAMPADD
    TIMESTAMPDIFF TIME_FORMAT TIME_TO_SEC TINYINT TO TO_BASE64 TO_DAYS TO_SECONDS TRAILING TRIM TRUNCATE UCASE
    UNCOMPRESS UNCOMPRESSED_LENGTH UNHEX UNION UNIX_TIMESTAMP UNSIGNED UPDATE UPDATEXML UPPER USER USING UTC_DATE
    UTC_TIME UTC_TIMESTAMP UUID UUID_SHORT VALUE VALUES VARBINARY VARCHAR VARIANCE VAR_POP VAR_SAMP VERSION WEEK
    WEEKDAY WEEKOFYEAR WEIGHT_STRING WHEN WHERE WITH XOR YEAR YEARWEEK
    """.split()  # noqa: SIM905
)
"""The built-in functions of all servers and versions, and the keywords that stand before a parenthesis."""
_SINCE_MARIADB = (
    (
        (10, 3, 7),
        frozenset(
            """
            AREA ASBINARY ASTEXT ASWKB ASWKT BINLOG_GTID_POS BOUNDARY BUFFER CENTROID CHR COLUMN_ADD COLUMN_CHECK
            COLUMN_CREATE COLUMN_DELETE COLUMN_EXISTS COLUMN_GET COLUMN_JSON COLUMN_LIST CONTAINS CONVEXHULL CROSSES
            CUME_DIST CURRENT_ROLE DECODE DECODE_ORACLE DENSE_RANK DIMENSION DISJOINT ENCODE ENCRYPT ENDPOINT
            ENVELOPE EQUALS EXCEPT EXTERIORRING FIRST_VALUE GEOMCOLLFROMTEXT GEOMCOLLFROMWKB
            GEOMETRYCOLLECTIONFROMTEXT GEOMETRYCOLLECTIONFROMWKB GEOMETRYFROMTEXT GEOMETRYFROMWKB GEOMETRYN
            GEOMETRYTYPE GEOMFROMTEXT GEOMFROMWKB GLENGTH INTERIORRINGN INTERSECT INTERSECTS ISCLOSED ISEMPTY ISRING
            ISSIMPLE JSON_ARRAY JSON_ARRAY_APPEND JSON_ARRAY_INSERT JSON_COMPACT JSON_CONTAINS JSON_CONTAINS_PATH
            JSON_DEPTH JSON_DETAILED JSON_EXISTS JSON_EXTRACT JSON_INSERT JSON_KEYS JSON_LENGTH JSON_LOOSE JSON_MERGE
            JSON_OBJECT JSON_QUERY JSON_QUOTE JSON_REMOVE JSON_REPLACE JSON_SEARCH JSON_SET JSON_TYPE JSON_UNQUOTE
            JSON_VALID JSON_VALUE LAG LASTVAL LAST_VALUE LEAD LENGTHB LINEFROMTEXT LINEFROMWKB LINESTRINGFROMTEXT
            LINESTRINGFROMWKB MASTER_GTID_WAIT MBREQUAL MD5 MEDIAN MLINEFROMTEXT MLINEFROMWKB MPOINTFROMTEXT
            MPOINTFROMWKB MPOLYFROMTEXT MPOLYFROMWKB MULTILINESTRINGFROMTEXT MULTILINESTRINGFROMWKB
            MULTIPOINTFROMTEXT MULTIPOINTFROMWKB MULTIPOLYGONFROMTEXT MULTIPOLYGONFROMWKB NEXTVAL NTH_VALUE NTILE
            NUMGEOMETRIES NUMINTERIORRINGS NUMPOINTS NVL NVL2 OVER OVERLAPS PERCENTILE_CONT PERCENTILE_DISC
            PERCENT_RANK POINTFROMTEXT POINTFROMWKB POINTN POINTONSURFACE POLYFROMTEXT POLYFROMWKB POLYGONFROMTEXT
            POLYGONFROMWKB RANK RECURSIVE REGEXP_INSTR REGEXP_REPLACE REGEXP_SUBSTR RETURNING ROW_NUMBER SETVAL SHA
            SHA1 SRID STARTPOINT ST_ASGEOJSON ST_BOUNDARY ST_CONVEXHULL ST_GEOMFROMGEOJSON ST_ISRING
            ST_POINTONSURFACE ST_RELATE TOUCHES TRIM_ORACLE WINDOW WITHIN X Y
            """.split()  # noqa: SIM905
        ),
    ),
    (
        (10, 6, 1),
        frozenset(
            """
            ADD_MONTHS JSON_ARRAYAGG JSON_OBJECTAGG ROWNUM SYS_GUID TO_CHAR
            """.split()  # noqa: SIM905
        ),
    ),
    (
        (10, 11, 0),
        frozenset(
            """
            CRC32C JSON_EQUALS JSON_MERGE_PATCH JSON_MERGE_PRESERVE JSON_NORMALIZE JSON_OVERLAPS JSON_PRETTY
            MBREQUALS NATURAL_SORT_KEY RANDOM_BYTES RELEASE_ALL_LOCKS SFORMAT ST_DISTANCE_SPHERE ST_MLINEFROMTEXT
            ST_MLINEFROMWKB ST_MPOINTFROMTEXT ST_MPOINTFROMWKB ST_MPOLYFROMTEXT ST_MPOLYFROMWKB
            ST_MULTILINESTRINGFROMTEXT ST_MULTILINESTRINGFROMWKB ST_MULTIPOINTFROMTEXT ST_MULTIPOINTFROMWKB
            ST_MULTIPOLYGONFROMTEXT ST_MULTIPOLYGONFROMWKB
            """.split()  # noqa: SIM905
        ),
    ),
)
"""Built-in functions that MariaDB has at least from this version on; not all servers have them."""
_SINCE_MYSQL = (
    (
        (5, 6, 24),
        frozenset(
            """
            AGAINST COLUMNS ESCAPE GEOMETRYCOLLECTION GTID_SUBSET GTID_SUBTRACT LINESTRING MULTILINESTRING MULTIPOINT
            MULTIPOLYGON POINT POLYGON RANDOM_BYTES SQL_BUFFER_RESULT SQL_NO_CACHE VALIDATE_PASSWORD_STRENGTH
            """.split()  # noqa: SIM905
        ),
    ),
    (
        (5, 7, 22),
        frozenset(
            """
            ANY_VALUE JSON_ARRAY JSON_ARRAYAGG JSON_ARRAY_APPEND JSON_ARRAY_INSERT JSON_CONTAINS
            JSON_CONTAINS_PATH JSON_DEPTH JSON_EXTRACT JSON_INSERT JSON_KEYS JSON_LENGTH JSON_MERGE
            JSON_MERGE_PATCH JSON_MERGE_PRESERVE JSON_OBJECT JSON_OBJECTAGG JSON_PRETTY JSON_QUOTE JSON_REMOVE
            JSON_REPLACE JSON_SEARCH JSON_SET JSON_STORAGE_SIZE JSON_TYPE JSON_UNQUOTE JSON_VALID MBRCOVEREDBY
            MBRCOVERS MBREQUALS RELEASE_ALL_LOCKS ST_ASGEOJSON ST_BUFFER_STRATEGY ST_CONVEXHULL
            ST_DISTANCE_SPHERE ST_GEOHASH ST_GEOMFROMGEOJSON ST_ISVALID ST_LATFROMGEOHASH ST_LONGFROMGEOHASH
            ST_MAKEENVELOPE ST_POINTFROMGEOHASH ST_SIMPLIFY ST_VALIDATE
            """.split()  # noqa: SIM905
        ),
    ),
    (
        (8, 0, 13),
        frozenset(
            """
            BIN_TO_UUID CUME_DIST CURRENT_ROLE DENSE_RANK FIRST_VALUE GROUPING IS_UUID JSON_TABLE LAG LAST_VALUE
            LEAD NTH_VALUE NTILE OF OVER PERCENT_RANK RANK RECURSIVE REGEXP_INSTR REGEXP_LIKE REGEXP_REPLACE
            REGEXP_SUBSTR ROW_NUMBER UUID_TO_BIN WINDOW
            """.split()  # noqa: SIM905
        ),
    ),
    (
        (8, 4, 0),
        frozenset(
            """
            EXCEPT FORMAT_BYTES FORMAT_PICO_TIME GEOMCOLLECTION INTERSECT JSON_OVERLAPS JSON_SCHEMA_VALID JSON_VALUE
            LATERAL MEMBER RETURNING ST_COLLECT ST_FRECHETDISTANCE ST_GEOMCOLLFROMTXT ST_HAUSDORFFDISTANCE
            ST_LATITUDE ST_LINEINTERPOLATEPOINT ST_LINEINTERPOLATEPOINTS ST_LONGITUDE ST_MLINEFROMTEXT
            ST_MLINEFROMWKB ST_MPOINTFROMTEXT ST_MPOINTFROMWKB ST_MPOLYFROMTEXT ST_MPOLYFROMWKB
            ST_MULTILINESTRINGFROMTEXT ST_MULTILINESTRINGFROMWKB ST_MULTIPOINTFROMTEXT ST_MULTIPOINTFROMWKB
            ST_MULTIPOLYGONFROMTEXT ST_MULTIPOLYGONFROMWKB ST_NUMINTERIORRING ST_POINTATDISTANCE ST_SWAPXY
            ST_TRANSFORM
            """.split()  # noqa: SIM905
        ),
    ),
    (
        (9, 7, 0),
        frozenset(
            """
            BERNOULLI CUBE QUALIFY ROLLUP SYSTEM VECTOR
            """.split()  # noqa: SIM905
        ),
    ),
)
"""Built-in functions that MySQL has at least from this version on."""
_BEFORE_MYSQL = (
    (
        (8, 0, 0),
        frozenset(
            """
            AREA ASBINARY ASTEXT ASWKB ASWKT BUFFER CENTROID CROSSES DECODE DES_DECRYPT DES_ENCRYPT DIMENSION
            DISJOINT ENCODE ENCRYPT ENDPOINT ENVELOPE EQUALS EXTERIORRING GEOMCOLLFROMTEXT GEOMCOLLFROMWKB
            GEOMETRYCOLLECTIONFROMTEXT GEOMETRYCOLLECTIONFROMWKB GEOMETRYFROMTEXT GEOMETRYFROMWKB GEOMETRYN
            GEOMETRYTYPE GEOMFROMTEXT GEOMFROMWKB GLENGTH INTERIORRINGN INTERSECTS ISCLOSED ISEMPTY ISSIMPLE
            LINEFROMTEXT LINEFROMWKB LINESTRINGFROMTEXT LINESTRINGFROMWKB MBREQUAL MLINEFROMTEXT MLINEFROMWKB
            MPOINTFROMTEXT MPOINTFROMWKB MPOLYFROMTEXT MPOLYFROMWKB MULTILINESTRINGFROMTEXT MULTILINESTRINGFROMWKB
            MULTIPOINTFROMTEXT MULTIPOINTFROMWKB MULTIPOLYGONFROMTEXT MULTIPOLYGONFROMWKB NUMGEOMETRIES
            NUMINTERIORRINGS NUMPOINTS OVERLAPS POINTFROMTEXT POINTFROMWKB POINTN POLYFROMTEXT POLYFROMWKB
            POLYGONFROMTEXT POLYGONFROMWKB SQL_CACHE SRID STARTPOINT TOUCHES WITHIN X Y
            """.split()  # noqa: SIM905
        ),
    ),
    (
        (9, 0, 0),
        frozenset(
            """
            MD5 SHA SHA1
            """.split()  # noqa: SIM905
        ),
    ),
)
"""Built-in functions that MySQL had before this version, at least from 5.6 on."""

_SELECT_OPTIONS = frozenset(
    """
    ALL DISTINCT DISTINCTROW HIGH_PRIORITY SQL_BIG_RESULT SQL_BUFFER_RESULT SQL_CACHE SQL_CALC_FOUND_ROWS SQL_NO_CACHE
    SQL_SMALL_RESULT STRAIGHT_JOIN
    """.split()  # noqa: SIM905
)
"""The words between SELECT and its first column. In other places, MariaDB takes some of them for stored functions."""

_CONSTRUCTORS = frozenset(
    "GEOMETRYCOLLECTION LINESTRING MULTILINESTRING MULTIPOINT MULTIPOLYGON POINT POLYGON".split()  # noqa: SIM905
)
"""Built-in functions of MariaDB: POINT takes two arguments, each other function at least one. With any other number of
arguments, the name means a stored function.
"""


def own_functions(dialect: Dialect) -> frozenset[str]:
    """Returns the names of the server's built-in functions; every other name may be a stored function."""
    return _own_functions(dialect.version, mariadb=dialect.mariadb)


@lru_cache(maxsize=8)
def _own_functions(version: tuple[int, int, int], *, mariadb: bool) -> frozenset[str]:
    since, before = (_SINCE_MARIADB, ()) if mariadb else (_SINCE_MYSQL, _BEFORE_MYSQL)
    return _OWN.union(
        *(names for first, names in since if version >= first), *(names for end, names in before if version < end)
    )


def calls(text: str, dialect: Dialect) -> Iterator[str]:
    """Yields the names, as written, of functions that the text calls and that may be stored functions.

    `dialect` has the modes of the statement's session, which decide whether a double quote encloses a name or a text.

    A CREATE, ALTER or DROP calls functions only in its query: `KEY k (a)` is no call, and the servers do not allow
    stored functions in a table's definition.

    Raises NotUnderstoodError if the text cannot be split into tokens.
    """
    own, read = own_functions(dialect), _Reading(tokens(text, dialect))
    last = second = third = fourth = fifth = _NONE
    for token in read:
        lexeme, sign = token.lexeme, token.text
        if read.begins or lexeme is Lexeme.WORD or (lexeme is Lexeme.SIGN and sign in "();"):
            if sign == "(" and last.lexeme in (Lexeme.WORD, Lexeme.NAME) and read.may_call(last):
                if _is(second, "."):
                    if not _is_no_call(fourth, fifth, read):
                        yield f"{third.text}.{last.text}"
                elif not (
                    _is_own(last, token, own, dialect)
                    or _is_no_call(second, third, read)
                    or (dialect.mariadb and _is_made_by_mariadb(last.word, read))
                    or (dialect.mariadb and _is_select_option(last, (second, third, fourth, fifth)))
                ):
                    yield last.text
            read.follow(token, last)
        last, second, third, fourth, fifth = token, last, second, third, fourth


class _Reading:
    """Reads the tokens of a text, and tracks where calls may be."""

    def __init__(self, found: Iterator[Token]) -> None:
        self._found = found
        self._ahead: deque[Token] = deque()
        self._depth, self._is_setting, self._defines, self._first = 0, False, False, _NONE
        self._against = _NONE
        """The word AGAINST of a MATCH whose columns have no parentheses."""
        self.begins = True
        """Whether the next token is the first of a statement."""

    def __iter__(self) -> Iterator[Token]:
        while True:
            token = self._ahead.popleft() if self._ahead else next(self._found, None)
            if token is None:
                return
            yield token

    def may_call(self, name: Token) -> bool:
        """Whether this name may be a function. No name is one in a definition, and no first word or AGAINST is one."""
        return not self._defines and name is not self._first and name is not self._against

    def ahead(self) -> Iterator[Token]:
        """Yields the next tokens; they are read again later."""
        yield from self._ahead  # the list grows only after its tokens are exhausted
        for token in self._found:
            self._ahead.append(token)
            yield token

    def follow(self, token: Token, before: Token) -> None:
        """Updates the state after a word, a parenthesis or a semicolon. `before` is the token before `token`."""
        word = token.word
        if self.begins:
            self._first, self._depth, self._defines = token, 0, word in _DEFINING
            self._is_setting = word == "SET" and next(self.ahead()).word == "STATEMENT"
        self.begins = _is(token, ";")
        if word == "SELECT" or (word == "VALUES" and next(self.ahead()).word not in ("IN", "LESS")):
            self._defines = False  # a query begins here, and not a partition's `VALUES IN` or `VALUES LESS THAN`
        elif word == "FOR" and self._is_setting and not self._depth:
            self.begins = True
        elif word == "MATCH" and not (_is(before, ".") or _is(before, "@")):
            self._against = self._against_ahead()
        self._depth += _is(token, "(") - _is(token, ")")

    def _against_ahead(self) -> Token:
        """Returns the AGAINST after a list of columns: `MATCH a, t.b AGAINST ('c')`."""
        last = _NONE
        for token in self.ahead():
            if token.lexeme not in (Lexeme.WORD, Lexeme.NAME) and not (_is(token, ",") or _is(token, ".")):
                return last if _is(token, "(") and last.word == "AGAINST" else _NONE
            last = token
        return _NONE


def _is_own(name: Token, parenthesis: Token, own: Collection[str], dialect: Dialect) -> bool:
    is_near = dialect.ignore_space or name.end == parenthesis.start
    return name.word in own and (is_near or name.word not in _WITHOUT_SPACE)


def _is_no_call(before: Token, second: Token, read: _Reading) -> bool:
    """Whether a name before a parenthesis is no call. `before` and `second`: the tokens before it, nearest first."""
    if before.lexeme in _OPERANDS or _is(before, ")"):
        return True  # no expression begins here: `IGNORE 1 ROWS (a)`, `MATCH (a) AGAINST ('b')`, `(SELECT 1) q (a)`
    if before.word in _NO_CALL_AFTER or (before.word == "HIGH_PRIORITY" and second.word == "INSERT"):
        return True  # but `SELECT HIGH_PRIORITY f(1)` is a call
    if next(read.ahead()).word in ("SELECT", "WITH"):
        return True  # `MINUS (SELECT 1)`: a query as an argument has parentheses of its own
    *_, word, sign = _up_to_close(read)
    return word.word == "AS" and _is(sign, "(")  # `WITH c (n) AS (SELECT 1)`


def _is_select_option(name: Token, before: Sequence[Token]) -> bool:
    """Whether the name is an option between SELECT and the first column; `before`: the tokens before, nearest first."""
    options = chain((name.word,), (token.word for token in before))
    return next(dropwhile(_SELECT_OPTIONS.__contains__, options), "") == "SELECT" and name.word in _SELECT_OPTIONS


def _is_made_by_mariadb(name: str, read: _Reading) -> bool:
    """Whether MariaDB has a built-in function with this name and these arguments."""
    if name == "JSON_TABLE":
        texts = pairwise(_up_to_close(read))
        return any(path.lexeme is Lexeme.TEXT and columns.word == "COLUMNS" for path, columns in texts)
    if name not in _CONSTRUCTORS:
        return False
    depth, arguments = 0, 0
    for token in _up_to_close(read)[:-3]:
        depth += _is(token, "(") - _is(token, ")")
        arguments += not arguments or (not depth and _is(token, ","))
    return arguments == 2 if name == "POINT" else arguments > 0


def _up_to_close(read: _Reading) -> list[Token]:
    """Returns the tokens after a parenthesis up to the closing parenthesis, and two more tokens."""
    depth, found, ahead = 1, [], read.ahead()
    for token in ahead:
        found.append(token)
        depth += _is(token, "(") - _is(token, ")")
        if not depth:
            break
    return [*found, *islice(chain(ahead, repeat(_NONE)), 2)]


def _is(token: Token, sign: str) -> bool:
    return token.lexeme is Lexeme.SIGN and token.text == sign
