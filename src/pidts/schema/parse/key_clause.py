"""Parses keys and constraints in table definitions."""

from __future__ import annotations

from pidts.model.table import Key
from pidts.schema.actions import Action, AddKey, AlterOption
from pidts.schema.dialect import Dialect
from pidts.schema.parse.lexer import Lexeme
from pidts.schema.parse.token_cursor import TokenCursor
from pidts.schema.periods import refuse_periods

PRIMARY = "PRIMARY"
_STARTS = ("CONSTRAINT", "PRIMARY", "UNIQUE", "KEY", "INDEX", "FULLTEXT", "SPATIAL", "FOREIGN", "CHECK")


def at_key(cursor: TokenCursor) -> bool:
    """Whether a key or constraint begins here, not a column."""
    if cursor.peek().word in _STARTS:
        return True
    return cursor.at_words("VECTOR", "INDEX") or cursor.at_words("VECTOR", "KEY")


def parse_key(cursor: TokenCursor) -> Action:
    """Parses one key, foreign key or check."""
    start = cursor.peek()
    symbol, if_not_exists = "", False
    if cursor.take("CONSTRAINT"):
        if_not_exists = cursor.if_not_exists()
        if cursor.peek().word not in ("PRIMARY", "UNIQUE", "FOREIGN", "CHECK"):
            symbol = cursor.name()
    if cursor.at_words("CHECK"):
        parse_check(cursor)
        return AlterOption(cursor.since(start), "check")
    if cursor.take("PRIMARY", "KEY"):
        if_not_exists |= cursor.if_not_exists()
        _, using = _name(cursor)
        return parse_key_body(cursor, PRIMARY, unique=True, if_not_exists=if_not_exists, using=using)
    if cursor.take("FOREIGN", "KEY"):
        return _foreign_key(cursor, symbol, if_not_exists=if_not_exists)
    kind = cursor.take_any("UNIQUE", "FULLTEXT", "SPATIAL", "VECTOR")
    cursor.take_any("KEY", "INDEX")
    if_not_exists |= cursor.if_not_exists()
    name, using = _name(cursor)
    return parse_key_body(
        cursor,
        name or symbol,
        unique=kind == "UNIQUE",
        fulltext=kind == "FULLTEXT",
        if_not_exists=if_not_exists,
        using=using,
    )


def parse_key_body(
    cursor: TokenCursor, name: str, *, unique: bool, if_not_exists: bool, fulltext: bool = False, using: str
) -> AddKey | AlterOption:
    """Parses columns and options after a key's name. A key over an expression becomes an action without columns.

    `using` is the key's type, if the statement has it before the columns.
    """
    start = cursor.peek()
    columns, prefixes, descending = _parts(cursor)
    options = _options(cursor, using)
    if not all(columns):
        return AlterOption(cursor.since(start), "key over an expression")
    if fulltext or not (any(descending) and cursor.dialect.descending_keys):
        descending = ()
    key = Key(
        name, columns, unique=unique, primary=name == PRIMARY, fulltext=fulltext, descending=descending, options=options
    )
    return AddKey(key, if_not_exists, prefixes=prefixes if any(prefixes) else ())


def _foreign_key(cursor: TokenCursor, symbol: str, *, if_not_exists: bool) -> AddKey:
    if_not_exists |= cursor.if_not_exists()
    name = symbol or _name(cursor)[0]
    if symbol:
        _name(cursor)
    columns, _, _ = _parts(cursor)
    rule = parse_references(cursor)
    return AddKey(Key(name, columns), if_not_exists, supports_foreign_key=True, rule=rule)


def _name(cursor: TokenCursor) -> tuple[str, str]:
    """Returns a key's name and type; either is empty if the statement does not have it."""
    name = "" if cursor.at_sign("(") or cursor.at_words("USING") else cursor.name()
    return name, cursor.name() if cursor.take_any("USING", "TYPE") else ""


def _parts(cursor: TokenCursor) -> tuple[tuple[str, ...], tuple[int | None, ...], tuple[bool, ...]]:
    """Returns a key's columns (none for an expression), the prefix length of each, and whether it is descending."""
    columns: list[str] = []
    prefixes: list[int | None] = []
    descending: list[bool] = []
    cursor.expect_sign("(")
    while True:
        prefix = None
        if cursor.at_sign("("):
            cursor.skip_parentheses()
            columns.append("")
        else:
            columns.append(cursor.name())
            if cursor.take_sign("("):
                prefix = cursor.number()
                cursor.expect_sign(")")
        prefixes.append(prefix)
        descending.append(cursor.take_any("ASC", "DESC") == "DESC")
        refuse_periods(cursor)
        if not cursor.take_sign(","):
            break
    cursor.expect_sign(")")
    return tuple(columns), tuple(prefixes), tuple(descending)


_VALUED = ("ENGINE_ATTRIBUTE", "SECONDARY_ENGINE_ATTRIBUTE")


def _options(cursor: TokenCursor, using: str) -> str:
    """Parses a key's options; returns the result of `options_compared`."""
    comment = block_size = ""
    while True:
        if cursor.take_any("USING", "TYPE"):
            using = cursor.name()
        elif cursor.take("WITH", "PARSER"):
            cursor.name()
        elif word := cursor.take_any("COMMENT", "KEY_BLOCK_SIZE", *_VALUED):
            cursor.take_sign("=")
            value = cursor.next().text
            comment, block_size = (
                value if word == "COMMENT" else comment,
                value if word == "KEY_BLOCK_SIZE" else block_size,
            )
        elif not _visibility(cursor) and not _engine_option(cursor):
            return options_compared(cursor.dialect, comment, using, block_size)


def options_compared(dialect: Dialect, comment: str, using: str = "", block_size: str = "") -> str:
    """Returns the options by which servers compare a key with a key that the same statement drops (seen with InnoDB).

    MariaDB compares all options. MySQL does not compare block sizes. MySQL 8.0 and later compare comments, and treat
    the type HASH as if no type were given.
    """
    is_old = not dialect.mariadb and dialect.version < (8, 0, 0)
    using = using.upper()
    if not dialect.mariadb:
        block_size, using = "", "" if using == "HASH" and not is_old else using
    parts = (("USING", using), ("KEY_BLOCK_SIZE", block_size), ("COMMENT", "" if is_old else comment))
    return " ".join(f"{name} {value}" for name, value in parts if value)


def _visibility(cursor: TokenCursor) -> bool:
    return bool(cursor.take_any("VISIBLE", "INVISIBLE", "IGNORED")) or cursor.take("NOT", "IGNORED")


def _engine_option(cursor: TokenCursor) -> bool:
    """Consumes `word = value`, an option for MariaDB's storage engines; returns whether this option came next."""
    follower = cursor.peek(1)
    if not cursor.dialect.mariadb or follower.lexeme is not Lexeme.SIGN or follower.text != "=":
        return False
    if cursor.at_words("ALGORITHM") or cursor.at_words("LOCK"):
        return False
    cursor.name()
    cursor.next()
    cursor.next()
    return True


_CHANGING = (("CASCADE",), ("SET", "NULL"), ("SET", "DEFAULT"))
_RULES = (("RESTRICT",), ("NO", "ACTION"), *_CHANGING)


def parse_check(cursor: TokenCursor) -> None:
    """Parses `CHECK (expression)` with an optional `[NOT] ENFORCED`."""
    cursor.expect("CHECK")
    cursor.skip_parentheses()
    if not cursor.take("NOT", "ENFORCED"):
        cursor.take("ENFORCED")


def parse_references(cursor: TokenCursor) -> str:
    """Parses the table that a foreign key references, and the key's rules; returns the rules that change rows.

    In a session without a database, the referenced table's name may lack the database: the table is then in the altered
    table's database.
    """
    rules: list[str] = []
    cursor.expect("REFERENCES")
    cursor.table_name_parts()
    if cursor.at_sign("("):
        cursor.skip_parentheses()
    while True:
        if cursor.take("MATCH"):
            cursor.name()
        elif cursor.take("ON"):
            when = cursor.take_any("DELETE", "UPDATE")
            for words in _RULES:
                if when and cursor.take(*words):
                    rules += [f"ON {when} {' '.join(words)}"] if words in _CHANGING else []
                    break
            else:
                raise cursor.surprise("the foreign key's action")
        else:
            return " ".join(rules)
