"""Parses the text of DDL into schema changes, computes a table's structure after a change, and compares structures."""

from pidts.schema.actions import (
    Action,
    AddColumn,
    AddKey,
    AlterOption,
    ChangeColumn,
    ConvertCharset,
    DropColumn,
    DropConstraint,
    DropKey,
    ModifyColumn,
    PartitionRows,
    RenameColumn,
    RenameKey,
    RenameTo,
    SetCharset,
    SetComment,
    SetDefault,
)
from pidts.schema.compare import differences
from pidts.schema.computed import GeneratedExpression
from pidts.schema.dialect import MYSQL, Dialect, is_strict
from pidts.schema.evolve.apply_alter import keys_there
from pidts.schema.evolve.apply_statement import apply, apply_charset
from pidts.schema.parse.classify import classify
from pidts.schema.parse.column_type import column_type
from pidts.schema.parse.lexer import Lexeme, Token
from pidts.schema.render.definitions import type_text
from pidts.schema.render.statement import column_clause, create_table, quote, render_statement
from pidts.schema.statements import (
    AlterDatabase,
    AlterTable,
    CreateDatabase,
    CreateTable,
    CreateTableLike,
    DropDatabase,
    DropTable,
    IgnoredStatement,
    RenameTable,
    SequenceChange,
    Statement,
    StatementDml,
    TruncateTable,
    Unknown,
    retargeted,
)
