"""Finds the stored functions that a statement may call: a stored function may change rows of any table.

A call of a server's own function is not a call of a stored function, since the server prefers its own functions. But a
qualified name (`shop.count(1)`) is always a stored function, and so is a quoted one. Some own functions are found only
if no space stands before the parenthesis.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from functools import lru_cache
from itertools import pairwise

from pidts.schema.dialect import Dialect
from pidts.schema.parse.lexer import Lexeme, Token, tokens

_NO_CALL_AFTER = frozenset(
    "AS DELAYED IGNORE INSERT INTO LOW_PRIORITY REPLACE SET TABLE WINDOW".split()  # noqa: SIM905
)
"""The words before a table, an alias or a charset: a list in parentheses may follow such a name."""
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
    ABS ACOS ADDDATE ADDTIME AES_DECRYPT AES_ENCRYPT ALL AND ANY AS ASCII ASIN ATAN ATAN2 AVG BENCHMARK BETWEEN
    BIGINT BIN BINARY BIT BIT_AND BIT_COUNT BIT_LENGTH BIT_OR BIT_XOR BLOB BY CASE CAST CEIL CEILING CHAR
    CHARACTER CHARACTER_LENGTH CHARSET CHAR_LENGTH CHECK COALESCE COERCIBILITY COLLATION COLUMN COMPRESS
    CONCAT CONCAT_WS CONNECTION_ID CONV CONVERT CONVERT_TZ COS COT COUNT CRC32 CURDATE CURRENT_DATE CURRENT_TIME
    CURRENT_TIMESTAMP CURRENT_USER CURTIME DATABASE DATE DATEDIFF DATETIME DATE_ADD DATE_FORMAT DATE_SUB DAY
    DAYNAME DAYOFMONTH DAYOFWEEK DAYOFYEAR DEC DECIMAL DEFAULT DEGREES DISTINCT DISTINCTROW DIV DOUBLE ELSE ELT
    ENUM EXISTS EXP EXPORT_SET EXTRACT EXTRACTVALUE FIELD FIND_IN_SET FLOAT FLOOR FOR FORMAT FOUND_ROWS
    FROM FROM_BASE64 FROM_DAYS FROM_UNIXTIME GET_FORMAT GET_LOCK GREATEST GROUP GROUP_CONCAT HAVING HEX HOUR IF
    IFNULL IN INDEX INET6_ATON INET6_NTOA INET_ATON INET_NTOA INSERT INSTR INT INTEGER INTERVAL INTO IS ISNULL
    IS_FREE_LOCK IS_IPV4 IS_IPV4_COMPAT IS_IPV4_MAPPED IS_IPV6 IS_USED_LOCK JOIN KEY LAST_DAY LAST_INSERT_ID
    LCASE LEAST LEFT LENGTH LIKE LIMIT LINES LN LOAD_FILE LOCALTIME LOCALTIMESTAMP LOCATE LOG LOG10 LOG2 LOWER
    LPAD LTRIM MAKEDATE MAKETIME MAKE_SET MASTER_POS_WAIT MATCH MAX MBRCONTAINS MBRDISJOINT MBRINTERSECTS
    MBROVERLAPS MBRTOUCHES MBRWITHIN MEDIUMINT MICROSECOND MID MIN MINUTE MOD MONTH MONTHNAME NAME_CONST
    NATIONAL NCHAR NOT NOW NULLIF NUMERIC NVARCHAR OCT OCTET_LENGTH ON OR ORD ORDER PARTITION PASSWORD
    PERIOD_ADD PERIOD_DIFF PI POSITION POW POWER QUARTER QUOTE RADIANS RAND REAL REGEXP
    RELEASE_LOCK REPEAT REPLACE REVERSE RIGHT RLIKE ROUND ROW ROW_COUNT RPAD RTRIM SCHEMA SECOND SEC_TO_TIME
    SELECT SESSION_USER SET SHA2 SIGN SIGNED SIN SLEEP SMALLINT SOME SOUNDEX SPACE SQRT STD STDDEV STDDEV_POP
    STDDEV_SAMP STRAIGHT_JOIN STRCMP STR_TO_DATE ST_AREA ST_ASBINARY ST_ASTEXT ST_ASWKB ST_ASWKT ST_BUFFER
    ST_CENTROID ST_CONTAINS ST_CROSSES ST_DIFFERENCE ST_DIMENSION ST_DISJOINT ST_DISTANCE ST_ENDPOINT
    ST_ENVELOPE ST_EQUALS ST_EXTERIORRING ST_GEOMCOLLFROMTEXT ST_GEOMCOLLFROMWKB ST_GEOMETRYCOLLECTIONFROMTEXT
    ST_GEOMETRYCOLLECTIONFROMWKB ST_GEOMETRYFROMTEXT ST_GEOMETRYFROMWKB ST_GEOMETRYN ST_GEOMETRYTYPE
    ST_GEOMFROMTEXT ST_GEOMFROMWKB ST_INTERIORRINGN ST_INTERSECTION ST_INTERSECTS ST_ISCLOSED ST_ISEMPTY
    ST_ISSIMPLE ST_LENGTH ST_LINEFROMTEXT ST_LINEFROMWKB ST_LINESTRINGFROMTEXT ST_LINESTRINGFROMWKB
    ST_NUMGEOMETRIES ST_NUMINTERIORRINGS ST_NUMPOINTS ST_OVERLAPS ST_POINTFROMTEXT ST_POINTFROMWKB ST_POINTN
    ST_POLYFROMTEXT ST_POLYFROMWKB ST_POLYGONFROMTEXT ST_POLYGONFROMWKB ST_SRID ST_STARTPOINT ST_SYMDIFFERENCE
    ST_TOUCHES ST_UNION ST_WITHIN ST_X ST_Y SUBDATE SUBSTR SUBSTRING SUBSTRING_INDEX SUBTIME SUM SYSDATE
    SYSTEM_USER TABLE TAN TEXT THEN TIME TIMEDIFF TIMESTAMP TIMESTAMPADD TIMESTAMPDIFF TIME_FORMAT
    TIME_TO_SEC TINYINT TO_BASE64 TO_DAYS TO_SECONDS TRIM TRUNCATE UCASE UNCOMPRESS UNCOMPRESSED_LENGTH UNHEX
    UNION UNIX_TIMESTAMP UNSIGNED UPDATEXML UPPER USER USING UTC_DATE UTC_TIME UTC_TIMESTAMP UUID UUID_SHORT
    VALUE VALUES VARBINARY VARCHAR VARIANCE VAR_POP VAR_SAMP VERSION WEEK WEEKDAY WEEKOFYEAR WEIGHT_STRING WHEN
    WHERE WITH XOR YEAR YEARWEEK
    """.split()  # noqa: SIM905
)
"""The own functions of all servers and versions, and the keywords that stand before a parenthesis."""
_SINCE_MARIADB = (
    (
        (10, 3, 7),
        frozenset(
            """
            BINLOG_GTID_POS CHR COLUMN_ADD COLUMN_CHECK COLUMN_CREATE COLUMN_DELETE COLUMN_EXISTS COLUMN_GET
            COLUMN_JSON COLUMN_LIST CUME_DIST CURRENT_ROLE DECODE DECODE_ORACLE DENSE_RANK ENCODE ENCRYPT EXCEPT
            FIRST_VALUE INTERSECT JSON_ARRAY JSON_ARRAY_APPEND JSON_ARRAY_INSERT JSON_COMPACT JSON_CONTAINS
            JSON_CONTAINS_PATH JSON_DEPTH JSON_DETAILED JSON_EXISTS JSON_EXTRACT JSON_INSERT JSON_KEYS
            JSON_LENGTH JSON_LOOSE JSON_MERGE JSON_OBJECT JSON_QUERY JSON_QUOTE JSON_REMOVE JSON_REPLACE
            JSON_SEARCH JSON_SET JSON_TYPE JSON_UNQUOTE JSON_VALID JSON_VALUE LAG LASTVAL LAST_VALUE LEAD
            LENGTHB MASTER_GTID_WAIT MBREQUAL MD5 MEDIAN NEXTVAL NTH_VALUE NTILE NVL NVL2 OVER
            PERCENTILE_CONT PERCENTILE_DISC PERCENT_RANK RANK RECURSIVE REGEXP_INSTR REGEXP_REPLACE
            REGEXP_SUBSTR RETURNING ROW_NUMBER SETVAL SHA SHA1 ST_ASGEOJSON ST_BOUNDARY ST_CONVEXHULL
            ST_GEOMFROMGEOJSON ST_ISRING ST_POINTONSURFACE ST_RELATE TRIM_ORACLE WINDOW
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
"""The names that MariaDB has as its own at least from this version on; not all servers have them."""
_SINCE_MYSQL = (
    (
        (5, 6, 24),
        frozenset(
            """
            COLUMNS GTID_SUBSET GTID_SUBTRACT POINT RANDOM_BYTES VALIDATE_PASSWORD_STRENGTH
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
            EXCEPT FORMAT_BYTES FORMAT_PICO_TIME INTERSECT JSON_OVERLAPS JSON_SCHEMA_VALID JSON_VALUE LATERAL
            MEMBER RETURNING ST_COLLECT ST_FRECHETDISTANCE ST_GEOMCOLLFROMTXT ST_HAUSDORFFDISTANCE ST_LATITUDE
            ST_LINEINTERPOLATEPOINT ST_LINEINTERPOLATEPOINTS ST_LONGITUDE ST_MLINEFROMTEXT ST_MLINEFROMWKB
            ST_MPOINTFROMTEXT ST_MPOINTFROMWKB ST_MPOLYFROMTEXT ST_MPOLYFROMWKB ST_MULTILINESTRINGFROMTEXT
            ST_MULTILINESTRINGFROMWKB ST_MULTIPOINTFROMTEXT ST_MULTIPOINTFROMWKB ST_MULTIPOLYGONFROMTEXT
            ST_MULTIPOLYGONFROMWKB ST_NUMINTERIORRING ST_POINTATDISTANCE ST_SWAPXY ST_TRANSFORM
            """.split()  # noqa: SIM905
        ),
    ),
    (
        (9, 7, 0),
        frozenset(
            """
            VECTOR
            """.split()  # noqa: SIM905
        ),
    ),
)
"""The names that MySQL has as its own at least from this version on."""
_BEFORE_MYSQL = (
    (
        (8, 0, 0),
        frozenset(
            """
            DECODE DES_DECRYPT DES_ENCRYPT ENCODE ENCRYPT MBREQUAL
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
"""The names that MySQL had as its own in versions before this one, at least from 5.6 on."""


def own_functions(dialect: Dialect) -> frozenset[str]:
    """Returns the names that are sure to be the server's own: a name that only others have may be a stored function."""
    return _own_functions(dialect.version, mariadb=dialect.mariadb)


@lru_cache(maxsize=8)
def _own_functions(version: tuple[int, int, int], *, mariadb: bool) -> frozenset[str]:
    since, before = (_SINCE_MARIADB, ()) if mariadb else (_SINCE_MYSQL, _BEFORE_MYSQL)
    return _OWN.union(
        *(names for first, names in since if version >= first), *(names for end, names in before if version < end)
    )


def calls(text: str, dialect: Dialect) -> tuple[str, ...]:
    """Returns the functions that the text calls and that may be stored functions, as they are written.

    A CREATE, ALTER or DROP calls functions only in its query: `KEY k (a)` is no call, and the servers do not allow
    stored functions in a table's definition.

    Raises NotUnderstoodError if the text cannot be split into tokens.
    """
    return tuple(dict.fromkeys(_calls(text, list(tokens(text, dialect)), own_functions(dialect))))


def _calls(text: str, found: list[Token], own: Collection[str]) -> Iterator[str]:
    is_start, defines = True, False
    for at, (token, follower) in enumerate(pairwise(found)):
        if is_start:
            defines = token.word in _DEFINING
        elif _begins_query(token, follower):
            defines = False
        is_start = _is(token, ";")
        if defines or not _is(follower, "(") or token.lexeme not in (Lexeme.WORD, Lexeme.NAME, Lexeme.TEXT):
            continue
        # Under ANSI_QUOTES, which the relay's index does not have, double quotes enclose a name.
        if token.lexeme is Lexeme.TEXT and (text[token.start] != '"' or found[at - 1].word == "BY"):
            continue
        is_qualified = at > 1 and _is(found[at - 1], ".")
        begin = at - 2 if is_qualified else at
        before = found[begin - 1].word if begin else ""
        if before in _NO_CALL_AFTER or (before == "HIGH_PRIORITY" and found[begin - 2].word == "INSERT"):
            continue  # `SELECT HIGH_PRIORITY f(1)` is a call
        if is_qualified:
            yield f"{found[begin].text}.{token.text}"
        elif token.lexeme is not Lexeme.WORD or not (
            token.word in own and (token.end == follower.start or token.word not in _WITHOUT_SPACE)
        ):
            yield token.text


def _begins_query(token: Token, follower: Token) -> bool:
    """Whether a query begins here, and not a partition's `VALUES IN` or `VALUES LESS THAN`."""
    return token.word == "SELECT" or (token.word == "VALUES" and follower.word not in ("IN", "LESS"))


def _is(token: Token, sign: str) -> bool:
    return token.lexeme is Lexeme.SIGN and token.text == sign
