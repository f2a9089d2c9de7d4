"""Parses CREATE TABLE into the structure of the new table."""

from __future__ import annotations

import re
from collections.abc import Iterable

from pidts.model.table import Table
from pidts.schema.actions import Action, AddColumn, AddKey, AlterOption
from pidts.schema.evolve.apply_alter import altered
from pidts.schema.parse.column_clause import parse_column
from pidts.schema.parse.key_clause import at_key, parse_key
from pidts.schema.parse.lexer import NotUnderstoodError
from pidts.schema.parse.table_options import parse_option
from pidts.schema.parse.token_cursor import TokenCursor
from pidts.schema.periods import refuse_periods
from pidts.schema.statements import CreateTable, CreateTableLike


def parse_create_table(cursor: TokenCursor, *, or_replace: bool) -> CreateTable | CreateTableLike:
    """Parses everything after CREATE TABLE."""
    if_not_exists = cursor.if_not_exists()
    name = cursor.table_name()
    in_parentheses = cursor.at_sign("(") and cursor.peek(1).word == "LIKE"
    if in_parentheses:
        cursor.expect_sign("(")
    if cursor.take("LIKE"):
        like = cursor.table_name()
        if in_parentheses:
            cursor.expect_sign(")")
        cursor.expect_end()
        return CreateTableLike(name, like, if_not_exists, or_replace)
    actions = parse_elements(cursor) if cursor.at_sign("(") else []
    actions += _options(cursor)
    cursor.expect_end()
    if not actions:
        raise NotUnderstoodError("the table has no columns")
    structure = altered(Table(name, ()), actions, cursor.dialect)
    constraints = tuple(filter(_is_constraint, actions))
    return CreateTable(name, structure, if_not_exists, or_replace, constraints, _first_number(actions))


def _first_number(actions: Iterable[Action]) -> int:
    texts = [one.text for one in actions if isinstance(one, AlterOption) and one.what == "auto_increment"]
    digits = re.search(r"\d+", texts[-1]) if texts else None
    return max(1, int(digits[0])) if digits else 1


def _is_constraint(action: Action) -> bool:
    if isinstance(action, AddKey):
        return action.supports_foreign_key
    return isinstance(action, AlterOption) and action.what == "check"


def parse_elements(cursor: TokenCursor) -> list[Action]:
    """Parses columns, keys and constraints in parentheses."""
    elements: list[Action] = []
    cursor.expect_sign("(")
    while True:
        refuse_periods(cursor)
        if at_key(cursor):
            elements.append(parse_key(cursor))
        else:
            clause = parse_column(cursor)
            elements += [AddColumn(clause.column, computed=clause.computed), *clause.keys]
        if not cursor.take_sign(","):
            break
    cursor.expect_sign(")")
    return elements


def _options(cursor: TokenCursor) -> list[Action]:
    options: list[Action] = []
    while not cursor.at_end():
        if cursor.at_words("PARTITION", "BY"):
            _partitions(cursor)
        elif cursor.take("START", "TRANSACTION"):
            continue  # MySQL's CREATE TABLE … SELECT: the log contains the rows as row events after this statement
        elif (option := parse_option(cursor)) is not None:
            options.append(option)
            cursor.take_sign(",")
        elif cursor.peek().word in _QUERY or cursor.at_sign("("):
            raise NotUnderstoodError(FROM_QUERY)
        else:
            raise cursor.surprise("a table option")
    return options


FROM_QUERY = "columns that come from a query are not known"
_QUERY = frozenset({"SELECT", "AS", "WITH", "IGNORE", "REPLACE", "TABLE", "VALUES"})


def _partitions(cursor: TokenCursor) -> None:
    """Skips PARTITION BY up to the statement's end; raises if a query follows, since it would add columns."""
    while not cursor.at_end():
        if cursor.at_sign("("):
            cursor.skip_parentheses()
        elif cursor.peek().word in _QUERY:
            raise NotUnderstoodError(FROM_QUERY)
        else:
            cursor.next()
