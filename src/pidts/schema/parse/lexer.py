"""Splits a statement into tokens as MySQL and MariaDB do.

A general SQL tokenizer does not work. The server's version decides whether text inside `/*! ... */` is part of the
statement. The SQL mode decides whether a double quote opens a name or a text, and whether a backslash begins an escape.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from pidts.schema.dialect import Dialect


class NotUnderstoodError(Exception):
    """Raised if a statement or an expression contains something that this parser does not know."""


class Lexeme(Enum):
    """The kind of a token."""

    WORD = "word"
    NAME = "quoted name"
    TEXT = "text"
    NUMBER = "number"
    BYTES = "hexadecimal or bit literal"
    SIGN = "sign"
    END = "end"


@dataclass(frozen=True, slots=True)
class Token:
    """A token; `start` and `end` are its place in the statement."""

    lexeme: Lexeme
    text: str
    """The content of a name or a text, without quotes and escapes; for any other token, its text as written."""
    start: int
    end: int

    @property
    def word(self) -> str:
        """Returns the token in upper case if it may be a keyword; an empty text for all other tokens."""
        return self.text.upper() if self.lexeme is Lexeme.WORD else ""


_SPACE = re.compile(r"\s+")
_LINE_COMMENT = re.compile(r"(?:#|--(?=\s|\Z))[^\n]*")
_CODE_COMMENT = re.compile(r"/\*(M?)!(\d{5,6})?")
_HEX_OR_BITS = re.compile(r"[xX]'[0-9a-fA-F]*'|[bB]'[01]*'|0x[0-9a-fA-F]+(?![\w$])|0b[01]+(?![\w$])")
# For servers, digits with letters after them are a name (`12a`, `2e`), but `2e5` is a number.
_NUMBER = re.compile(r"(?:\d+\.\d*|\.\d+)(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+|\d+(?![0-9A-Za-z_$\u0080-\U0010ffff])")
_WORD = re.compile(r"[0-9A-Za-z_$\u0080-\U0010ffff]+")
# The tokens that mean the same in every mode. A statement with a million characters consists mostly of them.
_PLAIN = re.compile(
    r"\s*+(?:([,();=@])|('[^'\\]*+')(?!')|"
    r"([A-Za-z_$\u0080-\U0010ffff][0-9A-Za-z_$\u0080-\U0010ffff]*+)(?!')|"
    r"(\d++(?:\.\d++)?+)(?![0-9A-Za-z_$.\u0080-\U0010ffff]))"
)
_PLAIN_TEXT, _PLAIN_WORD = 2, 3
_PLAIN_LEXEMES = (Lexeme.END, Lexeme.SIGN, Lexeme.TEXT, Lexeme.WORD, Lexeme.NUMBER)
"""The lexemes of the pattern's groups."""
_RUNS = {
    (quote, escapes): re.compile(f"[^{quote}\\\\]+" if escapes else f"[^{quote}]+")
    for quote in "`'\""
    for escapes in (False, True)
}
"""The patterns of text without quotes and escapes, by the quote and by whether a backslash begins an escape."""
_ESCAPES = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a", "%": "\\%", "_": "\\_"}


def tokens(sql: str, dialect: Dialect) -> Iterator[Token]:
    """Yields all tokens, and finally a token END."""
    at, code_depth, in_name = 0, 0, -1
    while at < len(sql):
        if (plain := _PLAIN.match(sql, at)) and plain.start(kind := plain.lastindex or 0) != in_name:
            begin, at = plain.span(kind)
            if kind == _PLAIN_TEXT:
                yield Token(Lexeme.TEXT, sql[begin + 1 : at - 1], begin, at)
            else:
                yield Token(_PLAIN_LEXEMES[kind], plain[kind], begin, at)
            if kind == _PLAIN_WORD:
                in_name = at
            continue
        if found := _SPACE.match(sql, at) or _LINE_COMMENT.match(sql, at):
            at = found.end()
            continue
        if code_depth and sql.startswith("*/", at):
            at, code_depth = at + 2, code_depth - 1
            continue
        if sql.startswith("/*", at):
            inside = _code_comment(sql, at, dialect)
            at, code_depth = (_comment_end(sql, at), code_depth) if inside is None else (inside, code_depth + 1)
            continue
        # `db.2e5` is one name: a number cannot begin directly after a name or its dot.
        token = _token(sql, at, dialect, in_name=in_name == at)
        yield token
        at = token.end
        is_dot = token.lexeme is Lexeme.SIGN and token.text == "."
        in_name = at if is_dot or token.lexeme in (Lexeme.WORD, Lexeme.NAME) else -1
    if code_depth:
        raise NotUnderstoodError("a comment with code in it does not end")
    yield Token(Lexeme.END, "", at, at)


def split(text: str, dialect: Dialect) -> list[str]:
    """Returns a script's statements. The script is cut at each `;` that is not in a name, a text or a comment."""
    parts, start, last = [], None, 0
    for token in tokens(text, dialect):
        ends = token.lexeme is Lexeme.END or (token.lexeme is Lexeme.SIGN and token.text == ";")
        if ends and start is not None:
            # The delimiters of a comment with code, `/*!40101 ... */`, are not tokens. So a statement is cut out of the
            # text, and not joined from its tokens.
            parts.append(text[start : token.start])
        if ends:
            start, last = None, token.end
        elif start is None:
            start = last
    return parts


def _token(sql: str, at: int, dialect: Dialect, *, in_name: bool) -> Token:
    sign = sql[at]
    if sign == "`" or (sign == '"' and dialect.ansi_quotes):
        text, end = quoted(sql, at, escapes=False)
        return Token(Lexeme.NAME, text, at, end)
    if sign in "'\"":
        text, end = quoted(sql, at, escapes=not dialect.no_backslash_escapes)
        return Token(Lexeme.TEXT, text, at, end)
    if sign in "nN" and sql.startswith("'", at + 1):
        text, end = quoted(sql, at + 1, escapes=not dialect.no_backslash_escapes)
        return Token(Lexeme.TEXT, text, at, end)
    if not in_name:
        if found := _HEX_OR_BITS.match(sql, at):
            return Token(Lexeme.BYTES, found.group(), at, found.end())
        if found := _NUMBER.match(sql, at):
            return Token(Lexeme.NUMBER, found.group(), at, found.end())
    if found := _WORD.match(sql, at):
        return Token(Lexeme.WORD, found.group(), at, found.end())
    return Token(Lexeme.SIGN, sign, at, at + 1)


def quoted(sql: str, at: int, *, escapes: bool) -> tuple[str, int]:
    """Returns the quoted text at `at`, and the place after it. With `escapes`, a backslash begins an escape."""
    parts: list[str] = []
    quote, begin, at = sql[at], at, at + 1
    run = _RUNS[quote, escapes]
    while at < len(sql):
        if found := run.match(sql, at):
            parts.append(found.group())
            at = found.end()
            continue
        sign = sql[at]
        if sign == quote:
            if not sql.startswith(quote, at + 1):
                return "".join(parts), at + 1
            at += 1
        elif sign == "\\" and escapes and at + 1 < len(sql):
            at += 1
            sign = _ESCAPES.get(sql[at], sql[at])
        parts.append(sign)
        at += 1
    raise NotUnderstoodError(f"the {quote} at character {begin + 1} is never closed")


def _code_comment(sql: str, at: int, dialect: Dialect) -> int | None:
    """Returns where the code in a comment begins; None for a comment that this server skips."""
    found = _CODE_COMMENT.match(sql, at)
    if found is None:
        return None
    if dialect.runs_comment(int(found.group(2) or 0), mariadb_only=bool(found.group(1))):
        return found.end()
    return None


def _comment_end(sql: str, at: int) -> int:
    end = sql.find("*/", at + 2)
    if end < 0:
        raise NotUnderstoodError("a comment does not end")
    inner = sql.find("/*", at + 2, end)
    if inner >= 0 and sql.startswith(("/*!", "/*M!"), at):
        return _comment_end(sql, _comment_end(sql, inner) - 2)  # a skipped code comment may contain a plain comment
    return end + 2
