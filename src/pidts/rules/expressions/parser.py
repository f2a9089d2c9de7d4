"""Parses an expression by MySQL's grammar.

The operators, in ascending order of precedence:

    OR ||  <  XOR  <  AND &&  <  NOT  <  IS  <  comparisons  <  BETWEEN IN LIKE  <  |  <  &  <  << >>  <  + -
    <  * / DIV % MOD  <  ^  <  unary - ~  <  !  <  BINARY COLLATE

Comparisons and IS associate to the left (`a = b = c` compares the truth of `a = b` with c). An operand of BETWEEN, IN
or LIKE cannot be a comparison, so `a = b IN (1)` is `a = (b IN (1))`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal

from pidts.rules.expressions.tree import BARE_CLOCK, CLOCK, ColumnRef, FunctionCall, Literal, Node, NotSupportedError
from pidts.schema.parse.lexer import Lexeme, NotUnderstoodError, quoted

_COMPARISONS = {"=", "<=>", "<", "<=", ">", ">=", "<>", "!="}
_BINARY = ({"|"}, {"&"}, {"<<", ">>"}, {"+", "-"}, {"*", "/", "DIV", "%", "MOD"}, {"^"})
"""Binary operators, in ascending order of precedence; all associate to the left."""

_SAME = {"!=": "<>", "%": "MOD"}
_SHIFTS = frozenset({"DATE_ADD", "DATE_SUB"})
_NOT_A_NAME = {
    "AND", "AS", "BETWEEN", "BY", "CASE", "COLLATE", "DISTINCT", "DIV", "ELSE", "ESCAPE", "EXISTS", "FROM", "IN",
    "INTERVAL", "IS", "LIKE", "MOD", "NOT", "NULL", "OR", "REGEXP", "RLIKE", "SELECT", "THEN", "WHEN", "XOR",
}  # fmt: skip
_SPACE = re.compile(r"(?:\s+|#[^\n]*|--(?=\s|\Z)[^\n]*|/\*(?![!M]).*?\*/)+", re.DOTALL)
_BYTES = re.compile(r"[xX]'(?:[0-9a-fA-F]{2})*'|[bB]'[01]*'|0x[0-9a-fA-F]+(?![\w$])|0b[01]+(?![\w$])")
_NUMBER = re.compile(r"(?:\d+\.\d*|\.\d+|\d+)(?:[eE][+-]?\d+)?(?![A-Za-z_$\u0080-\uffff])")
_WORD = re.compile(r"[0-9A-Za-z_$\u0080-\uffff]+")
_SIGN = re.compile(r"<=>|<=|>=|<>|!=|<<|>>|&&|\|\||->>|->|:=|[-+*/%^~!&|=<>(),.]")


@dataclass(frozen=True, slots=True)
class ExpressionToken:
    """A token. The token of a name or a text lacks the quotes and escapes; every other token is as written."""

    lexeme: Lexeme
    text: str
    at: int

    @property
    def word(self) -> str:
        """Returns the token in upper case if it may be a keyword or an operator; otherwise an empty text."""
        return self.text.upper() if self.lexeme in (Lexeme.WORD, Lexeme.SIGN) else ""


def words(text: str) -> Iterator[ExpressionToken]:
    """Yields all tokens as the servers read them under their default SQL mode, then one END token.

    A double quote opens a text, a backslash escapes, and `||` means OR. An operator of several characters is one token
    here, unlike in statements. An executable comment (`/*! … */`) is refused.
    """
    at, name_end = 0, -1
    while at < len(text):
        if found := _SPACE.match(text, at):
            at = found.end()
            continue
        token, at = _word(text, at, in_name=at == name_end)
        if token.lexeme in (Lexeme.WORD, Lexeme.NAME) or token.text == ".":
            name_end = at
        yield token
    yield ExpressionToken(Lexeme.END, "", at)


def _word(text: str, at: int, *, in_name: bool) -> tuple[ExpressionToken, int]:
    sign = text[at]
    if sign == "`":
        name, end = quoted(text, at, escapes=False)
        return ExpressionToken(Lexeme.NAME, name, at), end
    if sign in "'\"":
        value, end = quoted(text, at, escapes=True)
        return ExpressionToken(Lexeme.TEXT, value, at), end
    patterns = [(Lexeme.WORD, _WORD), (Lexeme.SIGN, _SIGN)]
    if not in_name:  # no number begins after a name or a name's dot: in `t.2e5`, 2e5 is a name
        patterns = [(Lexeme.BYTES, _BYTES), (Lexeme.NUMBER, _NUMBER), *patterns]
    for lexeme, pattern in patterns:
        if found := pattern.match(text, at):
            return ExpressionToken(lexeme, found.group(), at), found.end()
    raise NotUnderstoodError(f"{sign!r} at character {at + 1}")


def parse(text: str) -> Node:
    """Parses a text that is one expression."""
    reader = _Reader(text)
    node = reader.expression()
    if reader.now.lexeme is not Lexeme.END:
        raise NotUnderstoodError(f"{reader.now.text!r} at character {reader.now.at + 1}")
    return node


class _Reader:
    def __init__(self, text: str) -> None:
        self._words = list(words(text))
        self._at = 0

    @property
    def now(self) -> ExpressionToken:
        return self._words[self._at]

    def _next(self) -> ExpressionToken:
        token = self.now
        self._at += token.lexeme is not Lexeme.END
        return token

    def _take(self, *wanted: str) -> str:
        """Consumes and returns the next word, if it is among `wanted`."""
        return self._next().word if self.now.word in wanted else ""

    def _must(self, wanted: str) -> None:
        if not self._take(wanted):
            found = repr(self.now.text) if self.now.lexeme is not Lexeme.END else "the end"
            raise NotUnderstoodError(f"{found} at character {self.now.at + 1}, where {wanted} is expected")

    def expression(self) -> Node:
        return self._chain(0)

    def _chain(self, level: int) -> Node:
        names = ({"OR", "||"}, {"XOR"}, {"AND", "&&"})
        if level == len(names):
            return self._not()
        parts = [self._chain(level + 1)]
        while self._take(*names[level]):
            parts.append(self._chain(level + 1))
        if len(parts) == 1:
            return parts[0]
        return FunctionCall(("OR", "XOR", "AND")[level], tuple(parts))  # one call with all parts, not nested calls

    def _not(self) -> Node:
        if self._take("NOT"):
            return FunctionCall("NOT", (self._not(),))
        return self._comparison()

    def _comparison(self) -> Node:
        node = self._predicate()
        while sign := self._take("IS", *_COMPARISONS):
            if sign == "IS":
                negated = bool(self._take("NOT"))
                what = self._take("NULL", "TRUE", "FALSE", "UNKNOWN")
                if not what:
                    raise NotUnderstoodError(f"{self.now.text!r} at character {self.now.at + 1}, after IS")
                node = FunctionCall("IS " + ("NULL" if what == "UNKNOWN" else what), (node,))
                node = FunctionCall("NOT", (node,)) if negated else node
            else:
                if self.now.word in ("ALL", "ANY", "SOME"):
                    raise NotSupportedError("a subquery")
                node = FunctionCall(_SAME.get(sign, sign), (node, self._predicate()))
        return node

    def _predicate(self) -> Node:
        node = self._operators(0)
        at = self._at
        negated = bool(self._take("NOT"))
        found: Node | None = None
        if self._take("IN"):
            self._must("(")
            if self.now.word == "SELECT":
                raise NotSupportedError("a subquery")
            found = FunctionCall("IN", (node, *self._list()))
        elif self._take("BETWEEN"):
            low = self._operators(0)
            self._must("AND")
            found = FunctionCall("BETWEEN", (node, low, self._predicate()))
        elif self._take("LIKE"):
            pattern = self._unary()
            escape = self._unary() if self._take("ESCAPE") else Literal("\\")
            found = FunctionCall("LIKE", (node, pattern, escape))
        elif word := self._take("REGEXP", "RLIKE", "SOUNDS", "MEMBER"):
            raise NotSupportedError(f"{word}: the servers have different engines for it")
        if found is None:
            self._at = at
            return node
        return FunctionCall("NOT", (found,)) if negated else found

    def _operators(self, level: int) -> Node:
        if level == len(_BINARY):
            return self._unary()
        node = self._operators(level + 1)
        while sign := self._take(*_BINARY[level]):
            if self.now.word == "INTERVAL":
                node = self._shifted("DATE_SUB" if sign == "-" else "DATE_ADD" if sign == "+" else sign, node)
                continue
            node = FunctionCall(_SAME.get(sign, sign), (node, self._operators(level + 1)))
        return node

    def _unary(self) -> Node:
        if self._take("-"):
            node = self._unary()
            if isinstance(node, Literal) and isinstance(node.value, (int, float, Decimal)):
                return Literal(-node.value)
            return FunctionCall("NEGATE", (node,))
        if self._take("+"):
            return self._unary()
        if self._take("~"):
            return FunctionCall("~", (self._unary(),))
        if self._take("!"):
            return FunctionCall("NOT", (self._unary(),))
        if self._take("BINARY"):
            return FunctionCall("BINARY", (self._unary(),))
        node = self._primary()
        while self._take("COLLATE"):
            node = FunctionCall("COLLATE", (node, Literal(self._next().text.lower())))
        return node

    def _primary(self) -> Node:
        token = self._next()
        if token.lexeme is Lexeme.NUMBER:
            return Literal(_number(token.text))
        if token.lexeme is Lexeme.BYTES:
            return Literal(_bytes(token.text))
        if token.lexeme is Lexeme.TEXT:
            text = token.text
            while self.now.lexeme is Lexeme.TEXT:  # 'a' 'b' is 'ab'
                text += self._next().text
            return Literal(text)
        if token.word == "(":
            node = self.expression()
            if self.now.word == ",":
                raise NotSupportedError("a row of several values")
            self._must(")")
            return node
        if token.lexeme is Lexeme.NAME:
            return self._column(token)
        if token.lexeme is Lexeme.WORD:
            return self._named(token)
        found = repr(token.text) if token.lexeme is not Lexeme.END else "the end"
        raise NotUnderstoodError(f"{found} at character {token.at + 1}, where a value is expected")

    def _named(self, token: ExpressionToken) -> Node:
        word = token.word
        if word in ("TRUE", "FALSE"):
            return Literal(int(word == "TRUE"), is_truth=True)
        if word == "NULL":
            return Literal(None)
        if word == "CASE":
            return self._case()
        if word in ("DATE", "TIME", "TIMESTAMP") and self.now.lexeme is Lexeme.TEXT:
            return FunctionCall(f"{word} LITERAL", (Literal(self._next().text),))
        if word in ("SELECT", "EXISTS"):
            raise NotSupportedError("a subquery")
        if word.startswith("_") and self.now.lexeme in (Lexeme.TEXT, Lexeme.BYTES):
            raise NotSupportedError(f"a text with a charset of its own ({token.text})")
        if self.now.word == "(" and (word not in _NOT_A_NAME or word == "MOD"):
            return self._call(word)
        if word in BARE_CLOCK and self.now.word != ".":
            return FunctionCall(word, ())
        if word in _NOT_A_NAME:
            raise NotUnderstoodError(f"{token.text!r} at character {token.at + 1}, where a value is expected")
        return self._column(token)

    def _column(self, token: ExpressionToken) -> Node:
        """Parses a column, or a path in it: `a -> '$.b'` becomes `JSON_EXTRACT(a, '$.b')`."""
        column = self._column_alone(token)
        arrow = self._take("->", "->>")
        if not arrow:
            return column
        path = self._next()
        if path.lexeme is not Lexeme.TEXT:
            raise NotUnderstoodError(f"{path.text!r} at character {path.at + 1}, where a path is expected")
        found = FunctionCall("JSON_EXTRACT", (column, Literal(path.text)))
        return FunctionCall("JSON_UNQUOTE", (found,)) if arrow == "->>" else found

    def _column_alone(self, token: ExpressionToken) -> ColumnRef:
        parts = [token.text]
        while self._take("."):
            if self.now.lexeme not in (Lexeme.NAME, Lexeme.WORD):
                raise NotUnderstoodError(f"{self.now.text!r} at character {self.now.at + 1}, where a name is expected")
            parts.append(self._next().text)
        if len(parts) > 3:
            raise NotUnderstoodError(f"{'.'.join(parts)} is not the name of a column")
        return ColumnRef(parts[-1], tuple(parts[:-1]))

    def _call(self, name: str) -> Node:
        self._must("(")
        if name == "TRIM" and self.now.word in ("LEADING", "TRAILING", "BOTH"):
            raise NotSupportedError("TRIM of anything but spaces at both ends")
        if name in ("CAST", "CONVERT"):
            raise NotSupportedError(f"{name}")
        if self._take(")"):
            return FunctionCall(name, ())
        first = self.expression()
        if name in _SHIFTS:
            self._must(",")
            node = self._shifted(name, first)
            self._must(")")
            return node
        if self.now.word in ("FROM", "IN", "USING", "AS", "FOR"):
            raise NotSupportedError(f"{name}(… {self.now.word} …): write its arguments with commas")
        if name == "POSITION":
            raise NotSupportedError(name)
        if self._take(","):
            return FunctionCall(name, (first, *self._list()))
        self._must(")")
        return FunctionCall(name, (first,))

    def _shifted(self, name: str, node: Node) -> Node:
        """Parses `DATE_ADD(NOW(), INTERVAL 1 DAY)`, or `NOW() + INTERVAL 1 DAY`, from INTERVAL on."""
        if name not in _SHIFTS or not _is_of_clock(node):
            raise NotSupportedError("arithmetic with INTERVAL of anything but NOW() and similar functions")
        self._must("INTERVAL")
        amount = self.expression()
        return FunctionCall(name, (node, amount, Literal(self._next().word)))

    def _list(self) -> tuple[Node, ...]:
        """Parses values with commas between them, and the closing parenthesis."""
        nodes = [self.expression()]
        while self._take(","):
            nodes.append(self.expression())
        self._must(")")
        return tuple(nodes)

    def _case(self) -> Node:
        """Parses a CASE after its word. `CASE a WHEN b THEN c` becomes `CASE WHEN a = b THEN c`, as in servers."""
        subject = None if self.now.word == "WHEN" else self.expression()
        parts: list[Node] = []
        while self._take("WHEN"):
            when = self.expression()
            if subject is not None and any(
                isinstance(one, FunctionCall) and one.name == "JSON_EXTRACT" for one in (subject, when)
            ):
                raise NotSupportedError("CASE of a JSON value: write CASE WHEN and comparisons, or use ->>")
            self._must("THEN")
            parts += [when if subject is None else FunctionCall("=", (subject, when)), self.expression()]
        if not parts:
            raise NotUnderstoodError(f"{self.now.text!r} at character {self.now.at + 1}, where WHEN is expected")
        parts.append(self.expression() if self._take("ELSE") else Literal(None))
        self._must("END")
        return FunctionCall("CASE", tuple(parts))


def _is_of_clock(node: Node) -> bool:
    """Whether a node is the time of a change or its date, with or without an interval that is added or subtracted."""
    return isinstance(node, FunctionCall) and (
        node.name in CLOCK or (node.name in {"DATE", *_SHIFTS} and _is_of_clock(node.args[0]))
    )


def _number(text: str) -> int | Decimal | float:
    if "e" in text.lower():
        return float(text)
    return Decimal(text) if "." in text else int(text)


def _bytes(text: str) -> bytes:
    if text[0] in "xX":
        return bytes.fromhex(text[2:-1])
    if text.startswith("0x"):
        digits = text[2:]
        return bytes.fromhex(digits if len(digits) % 2 == 0 else "0" + digits)
    bits = text[2:-1] if text[0] in "bB" else text[2:]
    return int(bits or "0", 2).to_bytes((len(bits) + 7) // 8, "big")
