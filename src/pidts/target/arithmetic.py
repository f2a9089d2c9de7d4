"""Expressions of generated columns that give the same value on every server: whole numbers, decimals and plain text.

This module understands columns, numbers, texts, `+`, `-`, `*`, parentheses, COALESCE, IFNULL, and CONCAT of texts.
Servers differ in how they compute everything else, for example a division, a comparison of texts, or a function of
dates.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from pidts.model import Column, Kind, Table
from pidts.schema import GeneratedExpression, Lexeme, Token

_TEXTS = frozenset({Kind.VARCHAR, Kind.TEXT, Kind.MEDIUMTEXT, Kind.LONGTEXT})
_MOST_DIGITS = 30
"""The largest number of digits after the point; MySQL cuts off all further digits."""


@dataclass(frozen=True, slots=True)
class Exact:
    """An expression: an operation (`kind`) on other expressions (`parts`), or a column, a number or a text."""

    kind: str
    """`column`, `number`, `text`, `+`, `-`, `*`, `negative`, `concat` or `first` (COALESCE, IFNULL)."""
    value: str = ""
    parts: tuple[Exact, ...] = ()
    is_text: bool = False
    scale: int = 0

    def columns(self) -> frozenset[str]:
        """Returns the names of all columns that the expression reads."""
        own = frozenset({self.value}) if self.kind == "column" else frozenset[str]()
        return own.union(*(part.columns() for part in self.parts))


def exact(computed: GeneratedExpression | None, column: Column, before: Table, after: Table) -> Exact | None:
    """Returns the expression of `column`, a generated column of `after`; None if servers may compute it differently.

    Returns None also if the expression reads a column that is not the same in `before`.
    """
    if computed is None:
        return None
    there = {one.name.lower(): one for one in before.columns}
    known = {one.name.lower(): one for one in after.columns if there.get(one.name.lower()) == one}
    try:
        found = _Reader(computed.tokens, known, column).whole()
    except _OtherError:
        return None
    return found if found.is_text == _is_text(column) and found.scale <= _MOST_DIGITS else None


def _is_text(column: Column) -> bool:
    if column.type.is_integer or column.type.kind is Kind.DECIMAL:
        return False
    if column.type.kind in _TEXTS:
        return True
    raise _OtherError


class _OtherError(Exception):
    """Raised if this module does not understand a part of the expression."""


class _Reader:
    """Reads one expression by recursive descent."""

    def __init__(self, tokens: Sequence[Token], known: dict[str, Column], wanted: Column) -> None:
        self._tokens, self._known, self._wanted, self._at = tokens, known, wanted, 0
        _is_text(wanted)
        if any(one.lexeme is Lexeme.TEXT and two.lexeme is Lexeme.TEXT for one, two in pairwise(tokens)):
            raise _OtherError

    def whole(self) -> Exact:
        """Parses the whole expression."""
        found = self._factor()
        if self._at != len(self._tokens):
            raise _OtherError
        return found

    def _sum(self) -> Exact:
        return self._chain(self._product, "+-", max)

    def _product(self) -> Exact:
        return self._chain(self._factor, "*", lambda one, other: one + other)

    def _chain(self, part: Callable[[], Exact], signs: str, scale: Callable[[int, int], int]) -> Exact:
        found = part()
        while (sign := self._sign(signs)) is not None:
            other = part()
            if found.is_text or other.is_text:
                raise _OtherError
            found = Exact(sign, parts=(found, other), scale=scale(found.scale, other.scale))
        return found

    def _factor(self) -> Exact:
        if self._sign("("):
            found = self._sum()
            self._expect(")")
            return found
        if self._sign("-"):
            found = self._factor()
            if found.is_text:
                raise _OtherError
            return Exact("negative", parts=(found,), scale=found.scale)
        token = self._next()
        if token.lexeme is Lexeme.NUMBER and "e" not in token.text.lower():
            return Exact("number", token.text, scale=len(token.text.partition(".")[2]))
        if token.lexeme is Lexeme.TEXT and token.text.isascii() and "\0" not in token.text:
            return Exact("text", token.text, is_text=True)
        if token.word in {"CONCAT", "COALESCE", "IFNULL"} and self._sign("("):
            return self._call(token.word)
        if token.lexeme not in (Lexeme.WORD, Lexeme.NAME) or token.text.lower() not in self._known:
            raise _OtherError
        return self._column(self._known[token.text.lower()])

    def _call(self, word: str) -> Exact:
        parts = [self._sum()]
        while self._sign(","):
            parts.append(self._sum())
        self._expect(")")
        if len({part.is_text for part in parts}) > 1 or (word == "CONCAT" and not parts[0].is_text):
            raise _OtherError
        scale = max(part.scale for part in parts)
        return Exact("concat" if word == "CONCAT" else "first", "", tuple(parts), parts[0].is_text, scale)

    def _column(self, column: Column) -> Exact:
        is_text = _is_text(column)
        if is_text and column.type.charset != self._wanted.type.charset:
            raise _OtherError
        return Exact("column", column.name, is_text=is_text, scale=0 if is_text else column.type.scale or 0)

    def _sign(self, signs: str) -> str | None:
        if self._at < len(self._tokens):
            token = self._tokens[self._at]
            if token.lexeme is Lexeme.SIGN and token.text in signs:
                self._at += 1
                return token.text
        return None

    def _expect(self, sign: str) -> None:
        if self._sign(sign) is None:
            raise _OtherError

    def _next(self) -> Token:
        if self._at == len(self._tokens):
            raise _OtherError
        self._at += 1
        return self._tokens[self._at - 1]
