"""Parses ALTER TABLE into actions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pidts.schema.actions as alter
import pidts.schema.statements as ddl
from pidts.model.table import TableName
from pidts.schema.defaults import parse_default
from pidts.schema.parse.column_clause import parse_column
from pidts.schema.parse.column_type import parse_charset_name, parse_collation_name
from pidts.schema.parse.create_table import parse_elements
from pidts.schema.parse.key_clause import PRIMARY, at_key, parse_key, parse_key_body
from pidts.schema.parse.lexer import Lexeme
from pidts.schema.parse.table_options import parse_option
from pidts.schema.parse.token_cursor import TokenCursor
from pidts.schema.periods import refuse_periods


def parse_alter_table(cursor: TokenCursor) -> ddl.AlterTable:
    """Parses everything after ALTER TABLE."""
    if_exists = cursor.if_exists()
    table = cursor.table_name()
    take_wait(cursor)
    actions: list[alter.Action] = []
    while not cursor.at_end():
        actions.extend(_actions(cursor))
        if not cursor.take_sign(",") and not cursor.at_end() and not _may_follow_without_comma(actions, cursor):
            raise cursor.surprise("a comma")
    if cursor.dialect.mariadb:
        actions = _defined_once(actions)
    session = cursor.dialect
    return ddl.AlterTable(
        table,
        tuple(actions),
        if_exists,
        session.mariadb,
        cuts_fractions=session.cuts_fractions,
        is_in_utc=session.is_in_utc,
        zeroes_unreal_days=session.zeroes_unreal_days,
    )


def _defined_once(actions: list[alter.Action]) -> list[alter.Action]:
    """Returns the clauses, with only one definition for each column that the statement adds and also redefines.

    In `ADD e int, MODIFY e bigint`, which only MariaDB accepts, the last definition takes effect, with its FIRST or
    AFTER. `ALTER e SET DEFAULT` changes the first definition, even if the clause comes later. If a column may have
    existed before the statement, its clauses stay unchanged.
    """
    gone = {item.name.lower() for item in actions if isinstance(item, alter.DropColumn)}
    added: dict[str, int] = {}
    found: list[alter.Action | None] = []
    for action in actions:
        found.append(action)
        name = _defined(action)
        if isinstance(action, alter.AddColumn) and not action.if_not_exists and name not in gone:
            default = next((one for one in actions if isinstance(one, alter.SetDefault) and _is_about(one, name)), None)
            if default is not None:
                found[-1] = replace(action, column=replace(action.column, default=default.default))
            added[name] = len(found) - 1
        elif isinstance(action, alter.ModifyColumn) and not action.if_exists and name in added:
            if action.column.generated or any(_after(one) == name for one in found):
                return actions
            found[added[name]] = None
            found[-1] = alter.AddColumn(action.column, action.after, action.first)
            added[name] = len(found) - 1
    return [
        one
        for one in found
        if one is not None and not (isinstance(one, alter.SetDefault) and any(_is_about(one, name) for name in added))
    ]


def _defined(action: alter.Action) -> str:
    return action.column.name.lower() if isinstance(action, alter.AddColumn | alter.ModifyColumn) else ""


def _after(action: alter.Action | None) -> str:
    if isinstance(action, alter.AddColumn | alter.ModifyColumn | alter.ChangeColumn):
        return (action.after or "").lower()
    return ""


def _is_about(action: alter.SetDefault, name: str) -> bool:
    return not action.if_exists and action.column.lower() == name


def take_wait(cursor: TokenCursor) -> None:
    """Skips MariaDB's WAIT n or NOWAIT."""
    if cursor.take("WAIT"):
        cursor.number()
    else:
        cursor.take("NOWAIT")


def _may_follow_without_comma(actions: list[alter.Action], cursor: TokenCursor) -> bool:
    """Whether the next clause needs no comma before it: table options and a final partitioning clause need none."""
    if cursor.peek().word in ("PARTITION", "REMOVE"):
        return True
    return not isinstance(actions[-1], alter.AddColumn | alter.ModifyColumn | alter.ChangeColumn | alter.DropColumn)


def _actions(cursor: TokenCursor) -> tuple[alter.Action, ...]:
    partition = _partition(cursor)
    if partition is not None:
        return (partition,)
    if cursor.take("ADD"):
        return _add(cursor)
    if cursor.take("DROP"):
        return (_drop(cursor),)
    if word := cursor.take_any("MODIFY", "CHANGE"):
        return _change(cursor, named_twice=word == "CHANGE")
    if cursor.take("ALTER"):
        return (_alter(cursor),)
    if cursor.take("RENAME"):
        return (_rename(cursor),)
    if cursor.take("CONVERT", "TO"):
        return (_convert(cursor),)
    if (option := parse_option(cursor) or _manner(cursor)) is not None:
        return (option,)
    raise cursor.surprise("an action")


def _add(cursor: TokenCursor) -> tuple[alter.Action, ...]:
    refuse_periods(cursor)
    if at_key(cursor):
        return (parse_key(cursor),)
    cursor.take("COLUMN")
    if_not_exists = cursor.if_not_exists()
    if cursor.at_sign("("):
        elements = parse_elements(cursor)
        return tuple(
            replace(item, if_not_exists=if_not_exists) if isinstance(item, alter.AddColumn) else item
            for item in elements
        )
    clause = parse_column(cursor, may_move=True)
    keys = _conditional(clause.keys, condition=if_not_exists)
    return (alter.AddColumn(clause.column, clause.after, clause.first, if_not_exists, clause.computed), *keys)


def _conditional(keys: tuple[alter.AddKey, ...], *, condition: bool) -> Iterator[alter.AddKey]:
    """Yields the keys in a column's clause, whose IF EXISTS or IF NOT EXISTS (`condition`) also applies to the keys."""
    return (replace(key, if_not_exists=condition) for key in keys)


def _change(cursor: TokenCursor, *, named_twice: bool) -> tuple[alter.Action, ...]:
    cursor.take("COLUMN")
    if_exists = cursor.if_exists()
    old = cursor.column_name() if named_twice else ""
    clause = parse_column(cursor, may_move=True)
    keys = _conditional(clause.keys, condition=if_exists)
    if named_twice:
        return (alter.ChangeColumn(old, clause.column, clause.after, clause.first, if_exists), *keys)
    return (alter.ModifyColumn(clause.column, clause.after, clause.first, if_exists), *keys)


def _drop(cursor: TokenCursor) -> alter.Action:
    start = cursor.peek()
    if cursor.take("PRIMARY", "KEY"):
        return alter.DropKey(PRIMARY)
    if cursor.take_any("KEY", "INDEX"):
        if_exists = cursor.if_exists()
        return alter.DropKey(cursor.name(), if_exists)
    if cursor.take("FOREIGN", "KEY") or cursor.take("CHECK"):
        cursor.if_exists()
        cursor.name()
        return alter.AlterOption("DROP " + cursor.since(start), "drop constraint")
    if cursor.take("CONSTRAINT"):
        cursor.if_exists()
        return alter.DropConstraint(cursor.name())
    refuse_periods(cursor)
    cursor.take("COLUMN")
    if_exists = cursor.if_exists()
    name = cursor.column_name()
    cursor.take_any("RESTRICT", "CASCADE")
    return alter.DropColumn(name, if_exists)


def _alter(cursor: TokenCursor) -> alter.Action:
    start = cursor.peek()
    if cursor.take_any("INDEX", "KEY", "CHECK", "CONSTRAINT"):
        cursor.if_exists()
        cursor.name()
        if not cursor.take_any("VISIBLE", "INVISIBLE", "IGNORED", "ENFORCED"):
            cursor.expect("NOT")
            cursor.name()
        return alter.AlterOption("ALTER " + cursor.since(start), "alter index")
    cursor.take("COLUMN")
    if_exists = cursor.if_exists()
    name = cursor.column_name()
    if cursor.take("SET", "DEFAULT"):
        return alter.SetDefault(name, parse_default(cursor), if_exists)
    if cursor.take("SET"):
        if not cursor.take_any("VISIBLE", "INVISIBLE"):
            raise cursor.surprise("VISIBLE or INVISIBLE")
        return alter.AlterOption("ALTER " + cursor.since(start), "alter visibility")
    cursor.expect("DROP", "DEFAULT")
    return alter.SetDefault(name, None, if_exists)


def _rename(cursor: TokenCursor) -> alter.Action:
    if cursor.take("COLUMN"):
        if_exists = cursor.if_exists()
        return alter.RenameColumn(*_from_to(cursor), if_exists)
    if cursor.take_any("KEY", "INDEX"):
        if_exists = cursor.if_exists()
        return alter.RenameKey(*_from_to(cursor), if_exists)
    if not cursor.take_any("TO", "AS"):
        cursor.take_sign("=")
    return alter.RenameTo(cursor.table_name())


def _from_to(cursor: TokenCursor) -> tuple[str, str]:
    old = cursor.name()
    cursor.expect("TO")
    return old, cursor.name()


def _convert(cursor: TokenCursor) -> alter.Action:
    if not cursor.take("CHARSET") and not cursor.take("CHARACTER", "SET"):
        cursor.expect("CHAR", "SET")
    charset = None if cursor.take("DEFAULT") else parse_charset_name(cursor)
    collation = None
    if cursor.take("COLLATE"):
        cursor.take_sign("=")
        collation = parse_collation_name(cursor)
    return alter.ConvertCharset(charset, collation)


def _manner(cursor: TokenCursor) -> alter.AlterOption | None:
    """Parses a clause that says how the server makes the change; None if no such clause comes next."""
    start = cursor.peek()
    if cursor.take_any("ALGORITHM", "LOCK"):
        cursor.take_sign("=")
        cursor.name()
    elif cursor.take("ORDER", "BY"):
        cursor.column_name()
        while cursor.take_any("ASC", "DESC") or (cursor.take_sign(",") and cursor.column_name()):
            pass
    elif cursor.take_any("ENABLE", "DISABLE"):
        cursor.expect("KEYS")
    elif cursor.take_any("WITH", "WITHOUT"):
        cursor.expect("VALIDATION")
    elif not cursor.take("FORCE") and not cursor.take_any("SECONDARY_LOAD", "SECONDARY_UNLOAD"):
        return None
    return alter.AlterOption(cursor.since(start), "manner")


_ROWS_GO = ("DROP", "TRUNCATE", "EXCHANGE", "DISCARD", "IMPORT", "CONVERT")
_ROWS_STAY = ("ADD", "REORGANIZE", "COALESCE", "REBUILD", "ANALYZE", "CHECK", "OPTIMIZE", "REPAIR")


def _partition(cursor: TokenCursor) -> alter.Action | None:
    """Parses a clause about partitions, which is always the last clause; None if another clause comes next."""
    word = cursor.peek().word
    if cursor.at_words("PARTITION", "BY") or cursor.at_words("REMOVE", "PARTITIONING"):
        return alter.AlterOption(cursor.skip_to_end(), "partition")
    if cursor.at_words("UPGRADE", "PARTITIONING"):
        return alter.AlterOption(cursor.skip_to_end(), "partition")
    if word in ("DISCARD", "IMPORT") and cursor.peek(1).word == "TABLESPACE":
        return alter.PartitionRows(cursor.skip_to_end(), f"{word.lower()} tablespace")
    if cursor.peek(1).word != "PARTITION" and not cursor.at_words("CONVERT", "TABLE"):
        return None
    if cursor.peek(2).lexeme is Lexeme.END:
        return None
    if word in _ROWS_STAY:
        return alter.AlterOption(cursor.skip_to_end(), f"{word.lower()} partition")
    if word in _ROWS_GO:
        start = cursor.peek()
        takes = cursor.at_words("CONVERT", "TABLE")
        other = _other_table(cursor)
        cursor.skip_to_end()
        makes = word == "CONVERT" and not takes
        return alter.PartitionRows(cursor.since(start), f"{word.lower()} partition", other, makes, takes)
    return None


def _other_table(cursor: TokenCursor) -> TableName | None:
    """Parses the table in EXCHANGE PARTITION … WITH TABLE and CONVERT … TO/FROM; None if the clause names no table."""
    while cursor.peek().lexeme is not Lexeme.END:
        if cursor.next().word == "TABLE":
            return cursor.table_name()
    return None


def parse_create_index(cursor: TokenCursor, *, or_replace: bool) -> ddl.AlterTable:
    """Parses the rest of CREATE INDEX, from UNIQUE on."""
    kind = cursor.take_any("UNIQUE", "FULLTEXT", "SPATIAL", "VECTOR")
    cursor.expect("INDEX")
    if_not_exists = cursor.if_not_exists()
    name = cursor.name()
    using = cursor.name() if cursor.take_any("USING", "TYPE") else ""
    cursor.expect("ON")
    table = cursor.table_name()
    take_wait(cursor)
    added = parse_key_body(
        cursor, name, unique=kind == "UNIQUE", fulltext=kind == "FULLTEXT", if_not_exists=if_not_exists, using=using
    )
    while _manner(cursor) is not None:
        cursor.take_sign(",")
    take_wait(cursor)
    cursor.expect_end()
    dropped = (alter.DropKey(name, if_exists=True),) if or_replace else ()
    return ddl.AlterTable(table, (*dropped, added))


def parse_drop_index(cursor: TokenCursor) -> ddl.AlterTable:
    """Parses everything after DROP INDEX."""
    if_exists = cursor.if_exists()
    name = cursor.name()
    cursor.expect("ON")
    table = cursor.table_name()
    take_wait(cursor)
    while _manner(cursor) is not None:
        cursor.take_sign(",")
    cursor.expect_end()
    return ddl.AlterTable(table, (alter.DropKey(name, if_exists),))
