"""Parses a column's definition: name, type, attributes, and the keys in it."""

from __future__ import annotations

from dataclasses import dataclass

from pidts.model.table import Column, Key
from pidts.model.types import LOB_BYTES, ColumnType, Kind
from pidts.schema.actions import AddKey
from pidts.schema.computed import GeneratedExpression, parse_computed
from pidts.schema.defaults import ZERO, parse_default, parse_now, with_stored_digits
from pidts.schema.dialect import Dialect
from pidts.schema.parse.column_type import parse_charset, parse_type
from pidts.schema.parse.key_clause import PRIMARY, parse_check, parse_references
from pidts.schema.parse.lexer import Lexeme, NotUnderstoodError
from pidts.schema.parse.token_cursor import TokenCursor
from pidts.schema.periods import refuse_periods
from pidts.schema.stored_default import as_bytes, in_utc


@dataclass(frozen=True, slots=True)
class ColumnClause:
    """The content of a column's clause: the column, its keys, its place (`after`, `first`), and its expression."""

    column: Column
    keys: tuple[AddKey, ...]
    after: str | None
    first: bool
    computed: GeneratedExpression | None


@dataclass(slots=True)
class _Draft:
    """The part of a column's clause that is parsed so far."""

    name: str
    type: ColumnType
    nullable: bool | None = None
    default: str | None = None
    on_update: bool = False
    auto_increment: bool = False
    generated: bool = False
    computed: GeneratedExpression | None = None
    comment: str = ""
    primary: bool = False
    unique: bool = False
    references: tuple[AddKey, ...] = ()


def parse_column(cursor: TokenCursor, *, may_move: bool = False) -> ColumnClause:
    """Parses `name type attributes`, and FIRST or AFTER if the clause may have them."""
    if cursor.dialect.other_types:
        raise NotUnderstoodError("in SQL mode ORACLE or MAXDB, names of types stand for other types")
    name = cursor.column_name()
    if cursor.take("SERIAL"):
        draft = _Draft(
            name, ColumnType(Kind.BIGINT, unsigned=True, zerofill=False), nullable=False, auto_increment=True
        )
        draft.unique = True
    else:
        draft = _Draft(name, parse_type(cursor))
    while _attribute(cursor, draft):
        pass
    first = may_move and cursor.take("FIRST")
    after = cursor.column_name() if may_move and not first and cursor.take("AFTER") else None
    return ColumnClause(_column(cursor, draft), _keys(draft, cursor.dialect), after, first, draft.computed)


def _keys(draft: _Draft, dialect: Dialect) -> tuple[AddKey, ...]:
    """Returns a column's keys, the primary key first. On MariaDB, a PRIMARY KEY column ignores UNIQUE."""
    keys: tuple[AddKey, ...] = ()
    if draft.primary:
        keys += (AddKey(Key(PRIMARY, (draft.name,), unique=True, primary=True)),)
    if draft.unique and not (draft.primary and dialect.mariadb):
        keys += (AddKey(Key("", (draft.name,), unique=True)),)
    return keys + draft.references


def _column(cursor: TokenCursor, draft: _Draft) -> Column:
    nullable, default = draft.nullable, draft.default
    if draft.type.kind is Kind.TIMESTAMP and not cursor.dialect.explicit_timestamp:
        nullable = bool(nullable)
        if draft.on_update and not nullable:
            default = default or ZERO
    default = with_stored_digits(default, draft.type)
    if draft.type.kind is Kind.TIMESTAMP:
        default = in_utc(default, draft.type, cursor.dialect.time_zone)
    if draft.type.is_bytes and cursor.dialect.utf8_literals:
        default = as_bytes(default)
    return Column(
        draft.name,
        draft.type,
        nullable=nullable is not False,
        default=default,
        auto_increment=draft.auto_increment,
        generated=draft.generated,
        comment=draft.comment,
        computed=draft.computed.text if draft.computed is not None else "",
    )


def _attribute(cursor: TokenCursor, draft: _Draft) -> bool:
    return _value(cursor, draft) or _key(cursor, draft) or _text_attribute(cursor, draft) or _no_matter(cursor)


def _value(cursor: TokenCursor, draft: _Draft) -> bool:
    if cursor.take("NOT", "NULL"):
        draft.nullable = False
    elif cursor.take("NULL"):
        draft.nullable = True
    elif cursor.take("DEFAULT"):
        is_text = cursor.peek().lexeme is Lexeme.TEXT
        draft.default = parse_default(cursor)
        if is_text and draft.type.kind in LOB_BYTES and not cursor.dialect.mariadb:
            draft.default = None  # MySQL accepts an empty text as default here, and ignores it
    elif cursor.take("ON", "UPDATE"):
        parse_now(cursor)
        draft.on_update = True
    elif cursor.take("AUTO_INCREMENT"):
        draft.auto_increment = True
        draft.nullable = False
    elif cursor.take("SERIAL", "DEFAULT", "VALUE"):
        draft.auto_increment = True
        draft.nullable = False
        draft.unique = True
    elif cursor.take("GENERATED", "ALWAYS") or cursor.at_words("AS"):
        refuse_periods(cursor)
        cursor.expect("AS")
        draft.generated, draft.computed = True, parse_computed(cursor)
    else:
        return False
    return True


def _key(cursor: TokenCursor, draft: _Draft) -> bool:
    if cursor.take("UNIQUE"):
        cursor.take_any("KEY", "INDEX")
        draft.unique = True
    elif cursor.take("PRIMARY"):
        cursor.take("KEY")
        draft.primary = True
        draft.nullable = False
    elif cursor.take("KEY"):
        draft.primary = True
        draft.nullable = False
    elif cursor.at_words("REFERENCES"):
        rule = parse_references(cursor)
        if cursor.dialect.inline_references:
            draft.references += (AddKey(Key("", (draft.name,)), supports_foreign_key=True, rule=rule),)
    elif cursor.take("CONSTRAINT"):
        if not cursor.at_words("CHECK") and not cursor.at_words("REFERENCES"):
            cursor.name()
    elif cursor.at_words("CHECK"):
        parse_check(cursor)
    else:
        return False
    return True


def _text_attribute(cursor: TokenCursor, draft: _Draft) -> bool:
    if cursor.take("COMMENT"):
        draft.comment = cursor.text()
        return True
    if any(cursor.at_words(*words) for words in (("COLLATE",), ("CHARACTER", "SET"), ("CHARSET",))):
        # Servers also accept `int COLLATE …`, and ignore the collation.
        described = parse_charset(cursor, draft.type)
        draft.type = described if draft.type.is_text else draft.type
        return True
    return False


_VALUED = ("COLUMN_FORMAT", "STORAGE", "SRID", "ENGINE_ATTRIBUTE", "SECONDARY_ENGINE_ATTRIBUTE")


def _no_matter(cursor: TokenCursor) -> bool:
    """Consumes an attribute that affects neither values nor their form in the log; returns whether one came next."""
    if cursor.take_any("VISIBLE", "INVISIBLE", "VIRTUAL", "STORED", "PERSISTENT") or cursor.take("NOT", "SECONDARY"):
        return True
    refuse_periods(cursor)
    if cursor.take_any(*_VALUED):
        cursor.take_sign("=")
        cursor.next()
        return True
    follower = cursor.peek(1)
    if follower.lexeme is Lexeme.SIGN and follower.text == "=" and cursor.dialect.mariadb:
        cursor.name()  # an attribute for the storage engine: `compressed_with = 'x'`
        cursor.next()
        cursor.next()
        return True
    return False
