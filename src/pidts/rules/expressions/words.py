"""The words of an expression, read as the servers read them under their default SQL mode.

A double quote opens a text, a backslash escapes, and `||` means OR. Unlike those of a statement, signs that belong
together are one word here, and a comment with code in it is not understood.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from pidts.schema.parse.lexer import Lexeme, NotUnderstoodError, quoted


@dataclass(frozen=True, slots=True)
class Token:
    """A word; names and texts without quotes and escapes, all else as written."""

    lexeme: Lexeme
    text: str
    at: int

    @property
    def word(self) -> str:
        """Returns the token in upper case if it may be a keyword or an operator, else nothing."""
        return self.text.upper() if self.lexeme in (Lexeme.WORD, Lexeme.SIGN) else ""


_SPACE = re.compile(r"(?:\s+|#[^\n]*|--(?=\s|\Z)[^\n]*|/\*(?![!M]).*?\*/)+", re.DOTALL)
_BYTES = re.compile(r"[xX]'(?:[0-9a-fA-F]{2})*'|[bB]'[01]*'|0x[0-9a-fA-F]+(?![\w$])|0b[01]+(?![\w$])")
_NUMBER = re.compile(r"(?:\d+\.\d*|\.\d+|\d+)(?:[eE][+-]?\d+)?(?![A-Za-z_$\u0080-\uffff])")
_WORD = re.compile(r"[0-9A-Za-z_$\u0080-\uffff]+")
_SIGN = re.compile(r"<=>|<=|>=|<>|!=|<<|>>|&&|\|\||->>|->|:=|[-+*/%^~!&|=<>(),.]")


def words(text: str) -> Iterator[Token]:
    """Yields all tokens, then one END."""
    at, name_end = 0, -1
    while at < len(text):
        if found := _SPACE.match(text, at):
            at = found.end()
            continue
        token, at = _word(text, at, in_name=at == name_end)
        if token.lexeme in (Lexeme.WORD, Lexeme.NAME) or token.text == ".":
            name_end = at
        yield token
    yield Token(Lexeme.END, "", at)


def _word(text: str, at: int, *, in_name: bool) -> tuple[Token, int]:
    sign = text[at]
    if sign == "`":
        name, end = quoted(text, at, escapes=False)
        return Token(Lexeme.NAME, name, at), end
    if sign in "'\"":
        value, end = quoted(text, at, escapes=True)
        return Token(Lexeme.TEXT, value, at), end
    patterns = [(Lexeme.WORD, _WORD), (Lexeme.SIGN, _SIGN)]
    if not in_name:  # where a name or its dot ends, as in `t.2e5`, no number begins
        patterns = [(Lexeme.BYTES, _BYTES), (Lexeme.NUMBER, _NUMBER), *patterns]
    for lexeme, pattern in patterns:
        if found := pattern.match(text, at):
            return Token(lexeme, found.group(), at), found.end()
    raise NotUnderstoodError(f"{sign!r} at character {at + 1}")
