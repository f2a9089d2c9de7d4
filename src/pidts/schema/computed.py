"""The expression of a generated column, as tokens of the statement that creates the column.

Another session may read the statement's quotes and backslashes differently, so names and texts are quoted anew.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from pidts.model.table import Table
from pidts.schema.defaults import literal
from pidts.schema.dialect import MYSQL
from pidts.schema.parse.lexer import Lexeme, Token, tokens
from pidts.schema.parse.token_cursor import TokenCursor

_OF_SESSIONS = frozenset(
    {
        *("AES_DECRYPT", "AES_ENCRYPT", "CONVERT_TZ", "CURRENT_TIMESTAMP", "DATE_FORMAT", "DAYNAME", "FORMAT"),
        *("FROM_UNIXTIME", "LOCALTIME", "LOCALTIMESTAMP", "MONTHNAME", "NOW", "STR_TO_DATE", "TO_CHAR"),
        *("UNIX_TIMESTAMP", "WEEK"),
    }
)
"""Functions whose results depend on a setting of the session: the time zone, the language or the SQL mode."""


_NAMES = re.compile(r"`((?:[^`]|``)+)`|[\w$]+")


@dataclass(frozen=True, slots=True)
class GeneratedExpression:
    """The expression of a generated column, with its parentheses."""

    tokens: tuple[Token, ...]
    stored: bool

    @property
    def sql(self) -> str:
        """Returns the expression for a session with backslash escapes and without ANSI_QUOTES."""
        parts: list[str] = []
        end = self.tokens[0].start
        for token in self.tokens:
            parts += [" "] * (token.start > end) + [_written(token)]
            end = token.end
        return "".join(parts)

    @property
    def text(self) -> str:
        """Returns the expression in the form that structures have; empty if servers might write it differently."""
        sql = self.sql
        return f"{sql} {'STORED' if self.stored else 'VIRTUAL'}" if is_plain(sql) else ""

    @property
    def words(self) -> tuple[tuple[str, str], ...]:
        """Returns the words of the expression, for a comparison that ignores spaces and the case of letters."""
        return tuple(
            (token.lexeme.name, token.text) if token.lexeme in (Lexeme.TEXT, Lexeme.SIGN) else ("", token.text.lower())
            for token in self.tokens
        )

    @property
    def names(self) -> frozenset[str]:
        """Returns, in lower case, all words that may be the name of a column."""
        return frozenset(token.text.lower() for token in self.tokens if token.lexeme in (Lexeme.WORD, Lexeme.NAME))


def is_plain(sql: str) -> bool:
    """Whether every server and catalog writes the expression with the same characters, without escapes."""
    return sql.isascii() and "\\" not in sql


def mentions(computed: str, column: str) -> bool:
    """Whether an expression may read a column, because the column's name is one of its words."""
    found = _NAMES.finditer(computed.rpartition(" ")[0])
    return any(column.lower() == (one[1] or one[0]).replace("``", "`").lower() for one in found)


def of_the_counter(table: Table) -> frozenset[str]:
    """Returns the columns that are computed from the AUTO_INCREMENT column, directly or through other such columns.

    MariaDB allows such VIRTUAL columns, and MySQL refuses them. If MariaDB chooses the number of a new row, its log has
    a value that was computed before the choice: for `id + 1`, the row has 8, but the log has 1.
    """
    found = {column.name.lower() for column in table.columns if column.auto_increment}
    reads = {column.name: _names(column.computed) for column in table.columns if column.computed and found}
    computed: set[str] = set()
    while more := {name for name, names in reads.items() if name not in computed and names & found}:
        computed |= more
        found |= {name.lower() for name in more}
    return frozenset(computed)


def _names(computed: str) -> set[str]:
    """Returns, in lower case, all words of a stored expression that may be the name of a column."""
    return {token.text.lower() for token in tokens(computed, MYSQL) if token.lexeme in (Lexeme.WORD, Lexeme.NAME)}


def parse_computed(cursor: TokenCursor) -> GeneratedExpression | None:
    """Reads the expression, and VIRTUAL or STORED; None if the values depend on the session that computes them."""
    start = cursor.peek()
    cursor.skip_parentheses()
    tokens = cursor.taken(start)
    stored = cursor.take_any("VIRTUAL", "STORED", "PERSISTENT") in {"STORED", "PERSISTENT"}
    if cursor.dialect.other_values or any(token.word in _OF_SESSIONS for token in tokens):
        return None
    if not cursor.dialect.utf8_literals and any(_has_bytes(token) for token in tokens):
        return None
    return GeneratedExpression(tokens, stored)


def _has_bytes(token: Token) -> bool:
    """Whether the bytes of a text depend on the session's charset: in a latin1 session, `HEX('é')` is E9."""
    return token.lexeme is Lexeme.TEXT and not token.text.isascii()


def _written(token: Token) -> str:
    match token.lexeme:
        case Lexeme.NAME:
            return "`" + token.text.replace("`", "``") + "`"
        case Lexeme.TEXT:
            return literal(token.text)
        case _:
            return token.text
