"""Renders the clauses of an ALTER TABLE for MySQL and MariaDB.

MySQL has no IF EXISTS and IF NOT EXISTS in clauses: if the structure before the statement is known, this module
evaluates these conditions. Older servers have no RENAME COLUMN: if the structure after the statement is known, this
module renders a CHANGE instead.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass

import pidts.schema.actions as alter
from pidts.model.table import Column, Key, Table, TableName
from pidts.schema.charsets import charset_of
from pidts.schema.defaults import literal
from pidts.schema.literals import parse_default
from pidts.schema.parse.key_clause import PRIMARY
from pidts.schema.render.definitions import (
    charset_clause,
    column_clause,
    computed_clause,
    default_sql,
    key_clause,
    quote,
    quote_table,
)


@dataclass(frozen=True, slots=True)
class AlterWriter:
    """Renders the clauses for one table."""

    table: TableName
    before: Table | None
    after: Table | None
    collations: Container[str] | None
    computed: Container[str]
    """The names, in lower case, of the columns that the target's server computes itself."""
    mariadb: bool

    def clause(self, action: alter.Action) -> str:
        """Returns an action as a clause; empty if the action would change nothing."""
        match action:
            case alter.AddColumn() | alter.ModifyColumn() | alter.ChangeColumn():
                return self._definition(action)
            case alter.DropColumn(name=name, if_exists=if_exists):
                condition = self._if_exists(name, asked=if_exists)
                return "" if condition is None else f"DROP COLUMN {condition}{quote(name)}"
            case alter.RenameColumn(if_exists=if_exists):
                return self._renamed_column(action)
            case alter.SetDefault(column=name, default=default, if_exists=if_exists):
                condition = self._if_exists(name, asked=if_exists)
                column = _column(self.after, name)
                if column is not None and parse_default(default) is not None:
                    default = column.default and default_sql(column.type, column.default)
                change = "DROP DEFAULT" if default is None else f"SET DEFAULT {default}"
                return "" if condition is None else f"ALTER COLUMN {condition}{quote(name)} {change}"
            case alter.AddKey() | alter.DropKey() | alter.RenameKey() | alter.DropConstraint():
                return self._key(action)
            case alter.SetComment(text=text):
                return f"COMMENT = {literal(text)}"
            case alter.RenameTo(name=name):
                return f"RENAME TO {quote_table(name)}"
            case alter.SetCharset() | alter.ConvertCharset():
                return self._charset(action)
            case alter.PartitionRows():
                raise action.refused(self.table)
            case alter.AlterOption():
                return ""

    def _definition(self, action: alter.AddColumn | alter.ModifyColumn | alter.ChangeColumn) -> str:
        column = _column(self.after, action.column.name) or action.column
        text = column_clause(column, self.collations)
        if isinstance(action, alter.AddColumn):
            if action.computed is not None and column.name.lower() in self.computed:
                text = computed_clause(column, action.computed, self.collations, mariadb=self.mariadb)
            condition = "IF NOT EXISTS " if action.if_not_exists else ""
            if condition and self.before is not None:
                if _column(self.before, action.column.name) is not None:
                    return ""
                condition = ""
            text = f"ADD COLUMN {condition}{text}"
        else:
            old = action.old if isinstance(action, alter.ChangeColumn) else action.column.name
            if (found := self._if_exists(old, asked=action.if_exists)) is None:
                return ""
            old_name = f"{quote(old)} " if isinstance(action, alter.ChangeColumn) else ""
            text = f"{'CHANGE' if old_name else 'MODIFY'} COLUMN {found}{old_name}{text}"
        if action.first:
            return text + " FIRST"
        return f"{text} AFTER {quote(action.after)}" if action.after else text

    def _renamed_column(self, action: alter.RenameColumn) -> str:
        condition = self._if_exists(action.old, asked=action.if_exists)
        if condition is None:
            return ""
        new = _column(self.after, action.new)
        if new is None or (new.generated and action.old.lower() in self.computed):
            return f"RENAME COLUMN {condition}{quote(action.old)} TO {quote(action.new)}"
        return f"CHANGE COLUMN {condition}{quote(action.old)} {column_clause(new, self.collations)}"

    def _if_exists(self, name: str, *, asked: bool) -> str | None:
        """Returns `IF EXISTS` if the structure is unknown and the source's statement has IF EXISTS (`asked`).

        Returns None if the statement has IF EXISTS and the column does not exist, and an empty text in all other cases.
        """
        if not asked or self.before is None:
            return "IF EXISTS " if asked else ""
        return None if _column(self.before, name) is None else ""

    def _charset(self, action: alter.SetCharset | alter.ConvertCharset) -> str:
        charset, collation = action.charset, action.collation
        if self.after is not None:
            charset, collation = self.after.charset, self.after.collation
        elif charset is None and collation is not None:
            charset = charset_of(collation)
        clause = charset_clause(charset, collation, self.collations)
        verb = "CONVERT TO" if isinstance(action, alter.ConvertCharset) else "DEFAULT"
        return verb + clause if clause else ""

    def _key(self, action: alter.AddKey | alter.DropKey | alter.RenameKey | alter.DropConstraint) -> str:
        match action:
            case alter.AddKey():
                return self._added_key(action)
            case alter.RenameKey(old=old, new=new):
                known = self.before is None or _key(self.before, old) is not None
                return f"RENAME KEY {quote(old)} TO {quote(new)}" if known else ""
            case alter.DropKey(name=name, if_exists=if_exists):
                if name.upper() == PRIMARY:
                    return "DROP PRIMARY KEY"
                if self.before is None:
                    return f"DROP KEY {'IF EXISTS ' if if_exists else ''}{quote(name)}"
                return f"DROP KEY {quote(name)}" if _key(self.before, name) is not None else ""
            case alter.DropConstraint(name=name):
                key = _key(self.before, name)
                return f"DROP KEY {quote(name)}" if key is not None and key.declared_unique else ""

    def _added_key(self, action: alter.AddKey) -> str:
        exists = _key(self.before, action.key.name) is not None
        if action.if_not_exists and exists:
            return ""
        if action.supports_foreign_key and self.after is not None and not self._appeared(action.key):
            return ""
        return "ADD " + text if (text := key_clause(action.key, self.after, action.prefixes)) else ""

    def _appeared(self, key: Key) -> bool:
        """Whether exactly this key is in the structure after the statement, but not in the structure before it."""
        old = {present.name for present in self.before.keys} if self.before is not None else set()
        new = self.after.keys if self.after is not None else ()
        return any(
            found.columns == key.columns and found.name not in old and found.name.startswith(key.name) for found in new
        )


def _column(table: Table | None, name: str) -> Column | None:
    columns = table.columns if table is not None else ()
    return next((column for column in columns if column.name.lower() == name.lower()), None)


def _key(table: Table | None, name: str) -> Key | None:
    keys = table.keys if table is not None else ()
    return next((key for key in keys if key.name.lower() == name.lower()), None)
