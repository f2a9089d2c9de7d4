"""Parses the clauses after a table's columns: engine, charset, statistics, partitions."""

from __future__ import annotations

from pidts.schema.actions import Action, AlterOption, SetCharset, SetComment
from pidts.schema.parse.column_type import parse_charset_name, parse_collation_name
from pidts.schema.parse.lexer import Lexeme, NotUnderstoodError
from pidts.schema.parse.token_cursor import TokenCursor
from pidts.schema.periods import refuse_periods

_ONE_VALUE = frozenset(
    {
        "ENGINE",
        "TYPE",
        "AUTO_INCREMENT",
        "AUTOEXTEND_SIZE",
        "AVG_ROW_LENGTH",
        "CHECKSUM",
        "TABLE_CHECKSUM",
        "PAGE_CHECKSUM",
        "COMPRESSION",
        "CONNECTION",
        "DELAY_KEY_WRITE",
        "ENCRYPTION",
        "ENCRYPTED",
        "ENGINE_ATTRIBUTE",
        "SECONDARY_ENGINE_ATTRIBUTE",
        "SECONDARY_ENGINE",
        "INSERT_METHOD",
        "KEY_BLOCK_SIZE",
        "MAX_ROWS",
        "MIN_ROWS",
        "PACK_KEYS",
        "PASSWORD",
        "ROW_FORMAT",
        "STATS_AUTO_RECALC",
        "STATS_PERSISTENT",
        "STATS_SAMPLE_PAGES",
        "TABLESPACE",
        "TRANSACTIONAL",
    }
)


def parse_option(cursor: TokenCursor) -> Action | None:
    """Parses one option; returns None if no option comes next."""
    start = cursor.peek()
    refuse_periods(cursor)
    if charset := parse_default_charset(cursor):
        return SetCharset(*charset)
    if cursor.take("COMMENT"):
        cursor.take_sign("=")
        return SetComment(cursor.text())
    if cursor.take_any("DATA", "INDEX"):
        cursor.expect("DIRECTORY")
        cursor.take_sign("=")
        cursor.text()
    elif cursor.take("UNION"):
        cursor.take_sign("=")
        cursor.skip_parentheses()
    elif cursor.take("STORAGE"):
        cursor.name()
    elif cursor.peek().word in _ONE_VALUE:
        cursor.next()
        cursor.take_sign("=")
        _value(cursor)
    elif cursor.dialect.mariadb and _is_engine_option(cursor):
        cursor.name()
        cursor.next()
        _value(cursor)
    else:
        return None
    return AlterOption(cursor.since(start), start.text.lower())


def parse_default_charset(cursor: TokenCursor) -> tuple[str | None, str | None] | None:
    """Parses `[DEFAULT] CHARACTER SET x` or `[DEFAULT] COLLATE x` into (charset, collation); one of them is None.

    Both are None for CHARACTER SET DEFAULT. Returns None if no such option comes next.
    """
    ahead = 1 if cursor.at_words("DEFAULT") else 0
    word, following = cursor.peek(ahead).word, cursor.peek(ahead + 1).word
    if word == "COLLATE":
        for _ in range(ahead + 1):
            cursor.next()
        cursor.take_sign("=")
        return None, parse_collation_name(cursor)
    if word == "CHARSET" or (word in ("CHARACTER", "CHAR") and following == "SET"):
        for _ in range(ahead + (1 if word == "CHARSET" else 2)):
            cursor.next()
        cursor.take_sign("=")
        return (None if cursor.take("DEFAULT") else parse_charset_name(cursor)), None
    return None


def _value(cursor: TokenCursor) -> None:
    if cursor.peek().lexeme in (Lexeme.SIGN, Lexeme.END):
        raise cursor.surprise("a value")
    cursor.next()


def _is_engine_option(cursor: TokenCursor) -> bool:
    """Whether an option for MariaDB's engines comes next.

    ALGORITHM and LOCK are no such options: they say how the server makes a change. SEQUENCE raises an error, since this
    option would make the table a sequence.
    """
    follower = cursor.peek(1)
    if follower.lexeme is not Lexeme.SIGN or follower.text != "=":
        return False
    if cursor.peek().word == "SEQUENCE":
        raise NotUnderstoodError("a sequence is not a table")
    return cursor.peek().word not in ("ALGORITHM", "LOCK")
