"""Makes the text of a statement from the bytes that the client sent.

A statement is in the client's charset, but it may have bytes that are not text in this charset, for two reasons. First,
a literal may consist of arbitrary bytes: after an introducer (`_binary'...'`), or in a session with `SET NAMES binary`,
which tools for restoring dumps use. Second, old servers accepted any bytes. This module never raises an error, since
the statement may concern tables that the task does not carry. For example, mydumper uses `SET NAMES binary`, and MySQL
8 logs the session's charset even with the BEGIN of each of mydumper's transactions.

If the client's charset is `binary`, the server reads names and comments as UTF-8. The charset of the *connection*
decides what literals mean (seen on MySQL and MariaDB). If the connection's charset is `binary`, the server stores a
literal's bytes unchanged: `DEFAULT 'é'` of a column in latin1 becomes `Ã©`. So this literal is written as bytes,
`x'C3A9'`, which mean the same in every session. After `SET character_set_client = binary` alone, the literal is text in
the connection's charset, and is written as this text. Other bytes that are not text are written as escapes.
"""

from __future__ import annotations

import re
from functools import cache

from pidts.binlog.values import charsets

_ANSI_QUOTES = 0x4
_NO_BACKSLASH_ESCAPES = 0x100000

_SKIPPED = r"`(?:[^`]|``)*+`|/\*(?!M?!).*?\*/|--(?=\s)[^\n]*|#[^\n]*"
"""Matches text that has no literals: a quoted name, or a comment without code (`/*! ... */` has code)."""
_READ_AS_TEXT = r"\bCOMMENT\s*=?\s*|(?<![\w$])N"
"""Matches the word before a literal that is text in every session: COMMENT, or the prefix N of a UTF-8 literal."""
_INTRODUCER = re.compile(rb"(?<![\w$])_\w+\s*\Z")
"""Matches an introducer before a literal: the literal's bytes are text in the charset that the introducer names."""
_LONGEST_INTRODUCER = 64
_ESCAPED = {b"0": b"\0", b"b": b"\b", b"n": b"\n", b"r": b"\r", b"t": b"\t", b"Z": b"\x1a", b"%": b"\\%", b"_": b"\\_"}


def statement_text(sql: bytes, client: str | None, connection: str | None, sql_mode: int) -> str:
    """Returns the statement as text. `client`, `connection`: the session's charsets; None if the log lacks them."""
    charset = "utf8mb4" if client is None or client == "binary" else client
    in_literals = (connection or "binary") if client == "binary" or connection == "binary" else charset
    is_one = in_literals == charset or {in_literals, charset} <= charsets.UTF8
    if (is_one or sql.isascii()) and _is_text(sql, charset):
        return charsets.decoder(charset)(sql)
    if charset in charsets.UTF8 or charsets.width(charset) == 1:  # in other charsets, a quote may be half a character
        sql = _with_literals(sql, sql_mode, in_literals, is_one=is_one)
    return charsets.decoder(charset, "backslashreplace")(sql)


def _with_literals(sql: bytes, sql_mode: int, charset: str, *, is_one: bool) -> bytes:
    """Returns the statement with hexadecimal literals in place of literals that are not text in their charset.

    An ASCII literal stays as it is, since it means the same as text and as bytes. `is_one` says whether the whole
    statement is in this charset. If not, a literal that is text is written in UTF-8, as names are.
    """
    escapes = not sql_mode & _NO_BACKSLASH_ESCAPES

    def written(found: re.Match[bytes]) -> bytes:
        quoted, begin = found["literal"], found.start()
        if quoted is None or found["lead"] or quoted.isascii():
            return found[0]
        if is_one and _is_text(quoted, charset):
            return found[0]
        content = _content(quoted, escapes=escapes)
        is_introduced = _INTRODUCER.search(found.string, max(0, begin - _LONGEST_INTRODUCER), begin)
        if not is_one and charset != "binary" and not is_introduced and _is_text(content, charset):
            return _quoted(charsets.decoder(charset)(content), escapes=escapes)
        gap = b"" if found.string[begin - 1 : begin] in b" ,(=\n" else b" "
        return gap + b"x'" + content.hex().upper().encode() + b"'"

    return _literals(ansi_quotes=bool(sql_mode & _ANSI_QUOTES), escapes=escapes).sub(written, sql)


def _quoted(text: str, *, escapes: bool) -> bytes:
    return b"'" + (text.replace("\\", "\\\\") if escapes else text).replace("'", "''").encode() + b"'"


@cache
def _literals(*, ansi_quotes: bool, escapes: bool) -> re.Pattern[bytes]:
    """Returns a pattern that finds each literal; a match without a `literal` only skips names and comments.

    `ansi_quotes` and `escapes` say whether the SQL mode allows names in double quotes, and escapes by backslash.
    """
    inside = r"(?:[^{0}\\]|{0}{0}|\\.)*+" if escapes else "(?:[^{0}]|{0}{0})*+"
    single, double = (quote + inside.format(quote) + quote for quote in "'\"")
    skipped, literal = (rf'{_SKIPPED}|"(?:[^"]|"")*+"', single) if ansi_quotes else (_SKIPPED, f"{single}|{double}")
    pattern = rf"(?:{skipped})|(?P<lead>{_READ_AS_TEXT})?(?P<literal>{literal})"
    return re.compile(pattern.encode(), re.DOTALL | re.IGNORECASE)


def _content(quoted: bytes, *, escapes: bool) -> bytes:
    """Returns the bytes that a literal means; `escapes`: a backslash is an escape."""
    quote = quoted[:1]
    pattern = re.compile(quote * 2 + (rb"|\\(.)" if escapes else b"|(?!)(.)"), re.DOTALL)
    return pattern.sub(lambda hit: quote if hit[1] is None else _ESCAPED.get(hit[1], hit[1]), quoted[1:-1])


def _is_text(data: bytes, charset: str) -> bool:
    try:
        charsets.decoder(charset)(data)
    except UnicodeDecodeError:
        return False
    return True
