"""Selects the statements in a log that concern certain tables."""

from __future__ import annotations

from pidts.binlog.statements import Query
from pidts.model import Halted, Lsn, Where
from pidts.rules import AllowList
from pidts.schema import Dialect, DropDatabase, Statement, StatementDml, Unknown
from pidts.schema.affected_tables import understood


def concerning(text: str, schema: str, dialect: Dialect, tables: AllowList) -> list[Statement]:
    """Returns the statements of a text that concern one of the tables, or a schema that may have one of them."""
    found = understood(text, schema, dialect)
    return [statement for statement in found if _concerns(statement, schema, tables)]


def shown_statements(query: Query, lsn: Lsn, dialect: Dialect, tables: AllowList) -> list[Statement]:
    """Returns the schema changes in a QUERY event. A statement that changed rows is an error: the log lacks them."""
    found = concerning(query.sql, query.schema, dialect.under(query.sql_mode, query.time_zone), tables)
    for statement in found:
        if isinstance(statement, StatementDml):
            raise Halted(
                "statement-format",
                f"rows were changed by a statement in the log, so it is not known which rows: {query.sql[:200]}",
                where=Where(position=str(lsn), table=", ".join(map(str, statement.tables)) or query.schema),
                todo="Run SET GLOBAL binlog_format = 'ROW' on the source, and let its clients reconnect. To see later "
                f"changes, begin with --from {lsn} (in Spark: startingPosition), or leave the table out",
            )
    return found


def _concerns(statement: Statement, schema: str, tables: AllowList) -> bool:
    if statement.tables:
        return any(map(tables, statement.tables))
    if isinstance(statement, Unknown | StatementDml):
        return True
    if isinstance(statement, DropDatabase):
        schemas = AllowList(do_dbs=tuple(pattern for pattern, _ in tables.do_tables))
        return schemas.takes_schema(statement.name)
    return not tables.do_tables and (not schema or tables.takes_schema(schema))
