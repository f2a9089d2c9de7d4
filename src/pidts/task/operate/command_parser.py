"""Splits the text of a ddl command into statements, and statements into words.

A `;` inside quotes or a comment does not end a statement, and each target has its own rules for quotes and comments.
With wrong rules, `ALTER TABLE a ADD x INT COMMENT 'one; two'` would become two statements. On a target where DDL
commits by itself, the first half might run before the second half fails.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

_MYSQL = re.compile(
    r"""(?P<space>\s+|(?:\#|--(?=\s|\Z))[^\n]*|/\*.*?(?:\*/|\Z))
      | (?P<quoted>'(?:[^'\\]|\\.|'')*(?:'|\Z)|"(?:[^"\\]|\\.|"")*(?:"|\Z)|`[^`]*(?:`|\Z))
      | (?P<word>\w[\w$]*)
      | (?P<sign>.)""",
    re.VERBOSE | re.DOTALL,
)
_POSTGRES = re.compile(
    r"""(?P<space>\s+|--[^\n]*)
      | (?P<quoted>[eE]'(?:[^'\\]|\\.|'')*(?:'|\Z)|'[^']*(?:'|\Z)|"[^"]*(?:"|\Z)
          |(?P<tag>\$(?:[^\W\d]\w*)?\$).*?(?:(?P=tag)|\Z))
      | (?P<word>\w[\w$]*)
      | (?P<sign>.)""",
    re.VERBOSE | re.DOTALL,
)
_COMMENT_SIGNS = re.compile(r"/\*|\*/")
_WITH_BODY = frozenset({"TRIGGER", "PROCEDURE", "FUNCTION", "EVENT", "PACKAGE"})


@dataclass(slots=True)
class _Statement:
    words: list[str] = field(default_factory=list)
    is_empty: bool = True

    def has_body(self, *, postgres: bool) -> bool:
        """Whether the statement may contain `;`, like a procedure's body."""
        made = self.words[:1] == ["CREATE"] and not _WITH_BODY.isdisjoint(self.words)
        return made and "BEGIN" in self.words and (not postgres or "ATOMIC" in self.words)


def statements(texts: Iterable[str], *, postgres: bool) -> tuple[str, ...]:
    """Returns each statement without its final `;`. A comment alone is not a statement."""
    found = []
    for text in texts:
        begin, one = 0, _Statement()
        for kind, start, end in _tokens(text, postgres=postgres):
            if kind == "sign" and text[start] == ";" and not one.has_body(postgres=postgres):
                if not one.is_empty:
                    found.append(text[begin:start].strip())
                begin, one = end, _Statement()
                continue
            one.is_empty &= kind == "space"
            if kind == "word":
                one.words.append(text[start:end].upper())
        if not one.is_empty:
            found.append(text[begin:].strip())
    return tuple(found)


def words(sql: str, *, postgres: bool) -> tuple[str, ...]:
    """Returns the words outside of quotes and comments, in upper case."""
    return tuple(sql[start:end].upper() for kind, start, end in _tokens(sql, postgres=postgres) if kind == "word")


def _tokens(text: str, *, postgres: bool) -> Iterator[tuple[str, int, int]]:
    pattern, at = _POSTGRES if postgres else _MYSQL, 0
    while at < len(text):
        if postgres and text.startswith("/*", at):
            end = _comment_end(text, at)
            yield "space", at, end
        else:
            found = pattern.match(text, at)
            end = found.end() if found is not None else at + 1
            yield (found.lastgroup if found is not None else None) or "sign", at, end
        at = end


def _comment_end(text: str, begin: int) -> int:
    """Returns the end of a comment; PostgreSQL's comments may be nested."""
    depth = 0
    for sign in _COMMENT_SIGNS.finditer(text, begin):
        depth += 1 if sign[0] == "/*" else -1
        if not depth:
            return sign.end()
    return len(text)
