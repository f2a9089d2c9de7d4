"""The text of a column's default, one spelling for what servers accept in several."""

from __future__ import annotations

from pidts.schema.parse.lexer import Lexeme
from pidts.schema.parse.token_cursor import Cursor

_NOW = ("CURRENT_TIMESTAMP", "NOW", "LOCALTIME", "LOCALTIMESTAMP")
_WITHOUT_PARENTHESES = ("CURRENT_DATE", "CURRENT_TIME", "CURRENT_USER", "CURRENT_ROLE", "UTC_DATE", "UTC_TIMESTAMP")
_TYPED = ("DATE", "TIME", "TIMESTAMP")


def literal(text: str) -> str:
    """A text as SQL, for a session with backslash escapes."""
    return "'" + text.replace("\\", "\\\\").replace("'", "''") + "'"


def parse_default(cursor: Cursor) -> str | None:
    """Parses the value after DEFAULT; None for NULL."""
    start = cursor.peek()
    if cursor.take("NULL"):
        return None
    if word := cursor.take_any("TRUE", "FALSE"):
        return "1" if word == "TRUE" else "0"
    if start.word in _NOW:
        return parse_now(cursor)
    if start.lexeme is Lexeme.TEXT:
        return literal(cursor.text())
    if start.lexeme is Lexeme.BYTES:
        return cursor.next().text
    if start.lexeme is Lexeme.NUMBER or cursor.at_sign("-") or cursor.at_sign("+"):
        return _number(cursor)
    if cursor.at_sign("("):
        return _in_parentheses(cursor)
    return _expression(cursor)


def _in_parentheses(cursor: Cursor) -> str:
    """A literal comes out of its parentheses, which only some types on some servers need."""
    signs = 1 if cursor.peek(1).text == "-" and cursor.peek(2).lexeme is Lexeme.NUMBER else 0
    inner, following = cursor.peek(1 + signs), cursor.peek(2 + signs)
    text = cursor.skip_parentheses()
    if following.lexeme is not Lexeme.SIGN or following.text != ")":
        return text
    if inner.lexeme is Lexeme.TEXT:
        return literal(inner.text)
    return "-" * signs + inner.text if inner.lexeme in (Lexeme.NUMBER, Lexeme.BYTES) else text


def parse_now(cursor: Cursor) -> str:
    """`current_timestamp` with the digits it is asked for."""
    if not cursor.take_any(*_NOW):
        raise cursor.surprise("CURRENT_TIMESTAMP")
    digits = 0
    if cursor.take_sign("(") and not cursor.take_sign(")"):
        digits = cursor.number()
        cursor.expect_sign(")")
    return f"current_timestamp({digits})" if digits else "current_timestamp"


def _number(cursor: Cursor) -> str:
    negative = cursor.take_sign("-")
    if not negative:
        cursor.take_sign("+")
    if cursor.peek().lexeme is not Lexeme.NUMBER:
        raise cursor.surprise("a number")
    return ("-" if negative else "") + cursor.next().text


def _expression(cursor: Cursor) -> str:
    """Parses an expression that MariaDB takes without parentheses, or a text with a charset (`_latin1'x'`)."""
    start, following = cursor.peek(), cursor.peek(1)
    if cursor.take("NEXT", "VALUE", "FOR"):
        cursor.table_name()
        return cursor.since(start)
    if not start.word:
        raise cursor.surprise("a default")
    if following.lexeme is Lexeme.TEXT and (start.text.startswith("_") or start.word in _TYPED):
        cursor.next()
        cursor.text()
    elif following.lexeme is Lexeme.BYTES and start.text.startswith("_"):
        cursor.next()
        cursor.next()
    elif following.lexeme is Lexeme.SIGN and following.text == "(":
        cursor.next()
        cursor.skip_parentheses()
    elif start.word in _WITHOUT_PARENTHESES:
        cursor.next()
    else:
        raise cursor.surprise("a default")
    return cursor.since(start)
