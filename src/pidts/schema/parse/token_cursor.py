"""A position in a statement's tokens, with the methods that parsers need."""

from __future__ import annotations

from itertools import islice

from pidts.model.table import TableName
from pidts.schema.dialect import Dialect
from pidts.schema.parse.lexer import Lexeme, NotUnderstoodError, Token, tokens


class TokenCursor:
    """Reads tokens forward. Every method either consumes the tokens that its caller asks for, or does not move."""

    def __init__(self, sql: str, dialect: Dialect, default_schema: str = "", *, is_lazy: bool = False) -> None:
        """Splits the text into tokens; with `is_lazy`, only as far as they are read.

        Raises NotUnderstoodError if the text cannot be split. With `is_lazy`, each method may raise this error.
        """
        self.sql, self.dialect, self.default_schema = sql, dialect, default_schema
        self._rest = tokens(sql, dialect)
        self._tokens: list[Token] = []
        self._at = 0
        if not is_lazy:
            self.read_rest()

    def read_rest(self) -> None:
        """Splits the whole text into tokens."""
        self._tokens += self._rest

    def peek(self, ahead: int = 0) -> Token:
        """Returns the next token, or the token that comes `ahead` tokens after it."""
        missing = self._at + ahead + 1 - len(self._tokens)
        if missing > 0:
            self._tokens += islice(self._rest, missing)
        return self._tokens[min(self._at + ahead, len(self._tokens) - 1)]

    def next(self) -> Token:
        """Returns the next token, and moves past it."""
        token = self.peek()
        self._at += token.lexeme is not Lexeme.END
        return token

    def at_words(self, *words: str) -> bool:
        """Whether these keywords come next."""
        return all(self.peek(ahead).word == word for ahead, word in enumerate(words))

    def take(self, *words: str) -> bool:
        """Consumes these keywords if all of them come next; returns whether they do."""
        if not self.at_words(*words):
            return False
        self._at += len(words)
        return True

    def take_any(self, *words: str) -> str:
        """Consumes one of these keywords, and returns it; empty if none of them comes next."""
        word = self.peek().word
        return self.next().word if word in words else ""

    def expect(self, *words: str) -> None:
        """Consumes these keywords; raises if they do not come next."""
        if not self.take(*words):
            raise self.surprise(" ".join(words))

    def at_sign(self, sign: str) -> bool:
        """Whether this sign comes next."""
        token = self.peek()
        return token.lexeme is Lexeme.SIGN and token.text == sign

    def take_sign(self, sign: str) -> bool:
        """Consumes this sign if it comes next; returns whether it does."""
        if not self.at_sign(sign):
            return False
        self.next()
        return True

    def expect_sign(self, sign: str) -> None:
        """Consumes this sign; raises if it does not come next."""
        if not self.take_sign(sign):
            raise self.surprise(sign)

    def at_end(self) -> bool:
        """Consumes semicolons; returns whether no other token is left."""
        while self.at_sign(";"):
            self.next()
        return self.peek().lexeme is Lexeme.END

    def expect_end(self) -> None:
        """Raises unless the statement is at its end."""
        if not self.at_end():
            raise self.surprise("the end")

    def surprise(self, wanted: str) -> NotUnderstoodError:
        """Returns the error for an unexpected token."""
        token = self.peek()
        found = "the end" if token.lexeme is Lexeme.END else repr(self.sql[token.start : token.end][:40])
        return NotUnderstoodError(f"expected {wanted}, found {found} at character {token.start + 1}")

    def name(self) -> str:
        """Returns an identifier, quoted or not."""
        token = self.peek()
        if token.lexeme is Lexeme.NAME or (token.lexeme is Lexeme.WORD and not token.text.isdecimal()):
            return self.next().text
        raise self.surprise("a name")

    def column_name(self) -> str:
        """Returns a column's name. The names of its table (`t.a`) and database (`d.t.a`, `.t.a`) may precede it."""
        self.take_sign(".")
        name = self.name()
        while self.take_sign("."):
            name = self._part()
        return name

    def word_or_text(self) -> str:
        """Returns a value that may be quoted: a charset, an engine."""
        token = self.peek()
        if token.lexeme in (Lexeme.WORD, Lexeme.NAME, Lexeme.TEXT):
            return self.next().text
        raise self.surprise("a word")

    def schema_name(self) -> str:
        """Returns a database's name."""
        name = self.name()
        return name.lower() if self.dialect.lower_case_names else name

    def table_name(self) -> TableName:
        """Parses `database.table`; `table` and `.table` are in the current database."""
        schema, name = self.table_name_parts()
        schema = schema or self.default_schema
        if not schema:
            raise NotUnderstoodError(f"no database is named for table {name}")
        if self.dialect.lower_case_names:
            return TableName(schema.lower(), name.lower())
        return TableName(schema, name)

    def table_name_parts(self) -> tuple[str, str]:
        """Returns the database (empty if the statement names none) and the table."""
        first = "" if self.at_sign(".") else self._part()
        return (first, self._part()) if self.take_sign(".") else ("", first)

    def _part(self) -> str:
        token = self.peek()
        if token.lexeme in (Lexeme.NAME, Lexeme.WORD):
            return self.next().text
        raise self.surprise("a name")

    def table_names(self) -> tuple[TableName, ...]:
        """Returns a list of tables, separated by commas."""
        names = [self.table_name()]
        while self.take_sign(","):
            names.append(self.table_name())
        return tuple(names)

    def number(self) -> int:
        """Returns a whole number."""
        token = self.peek()
        if token.lexeme is Lexeme.NUMBER and token.text.isdecimal():
            return int(self.next().text)
        raise self.surprise("a number")

    def length(self) -> int:
        """Returns a whole number as the size of a type; digits after a point are consumed and ignored."""
        token = self.peek()
        if token.lexeme is Lexeme.NUMBER and token.text[0] != "." and token.text.replace(".", "", 1).isdecimal():
            return int(self.next().text.partition(".")[0])
        raise self.surprise("a number")

    def text(self) -> str:
        """Returns a literal text; adjacent literals are one text."""
        if self.peek().lexeme is not Lexeme.TEXT:
            raise self.surprise("a text")
        parts = []
        while self.peek().lexeme is Lexeme.TEXT:
            parts.append(self.next().text)
        return "".join(parts)

    def skip_parentheses(self) -> str:
        """Consumes a balanced group; returns its text with the parentheses."""
        start, depth = self.peek().start, 0
        self.expect_sign("(")
        depth = 1
        while depth:
            token = self.next()
            if token.lexeme is Lexeme.END:
                raise NotUnderstoodError("a parenthesis is never closed")
            if token.lexeme is Lexeme.SIGN:
                depth += (token.text == "(") - (token.text == ")")
        return self.sql[start : self._tokens[self._at - 1].end]

    def taken(self, start: Token) -> tuple[Token, ...]:
        """Returns the tokens from `start` up to the last one that was consumed."""
        return tuple(token for token in self._tokens[: self._at] if token.start >= start.start)

    def since(self, start: Token) -> str:
        """Returns the statement's text from `start` up to the last token that was consumed."""
        return self.sql[start.start : self._tokens[self._at - 1].end]

    def skip_to_end(self) -> str:
        """Consumes the rest of the statement, and returns its text."""
        start = self.peek()
        while not self.at_end():
            self.next()
        return self.since(start) if start.lexeme is not Lexeme.END else ""

    def if_exists(self) -> bool:
        """Consumes IF EXISTS; returns whether it came next."""
        return self.take("IF", "EXISTS")

    def if_not_exists(self) -> bool:
        """Consumes IF NOT EXISTS; returns whether it came next."""
        return self.take("IF", "NOT", "EXISTS")
