"""Implements `ON UPDATE CURRENT_TIMESTAMP` for a column on PostgreSQL, by two triggers and a function.

The source gives the column the statement's time if an UPDATE changes the value of another column and does not set this
column. A trigger cannot see which columns an UPDATE sets, but PostgreSQL runs a trigger `UPDATE OF column` only if the
column is set. So the first trigger sets a flag for the second trigger, which runs directly after it for the same row.
Without the flag, `SET changed = changed` would set the time, while the source keeps the old value.

Values are compared by their bytes (`*<>`), as the source compares them: by `=`, 0 would equal -0. Generated columns
have no value yet when the trigger runs, so the trigger first gives them their old values.

Crash points: one statement creates the function and both triggers, so it has its whole effect or none.
"""

from __future__ import annotations

from pidts.model import OnUpdate, TableName
from pidts.target.postgres.dialect import MAX_NAME, identifier, literal, qualified
from pidts.target.postgres.firing import MADE_HERE
from pidts.target.postgres.session import PostgresSession

_TRIGGERS = (
    "SELECT f.nspname, p.proname, pg_catalog.obj_description(p.oid, 'pg_proc') "
    "FROM pg_catalog.pg_trigger t JOIN pg_catalog.pg_proc p ON p.oid = t.tgfoid "
    "JOIN pg_catalog.pg_namespace f ON f.oid = p.pronamespace "
    "JOIN pg_catalog.pg_class c ON c.oid = t.tgrelid JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace "
    "WHERE n.nspname = %s AND c.relname = %s AND NOT t.tgisinternal AND t.tgtype & 2 <> 0 AND t.tgtype & 16 <> 0"
)
"""Finds the functions of the triggers that run before an UPDATE of a table. In `tgtype`, 2 is BEFORE, 16 is UPDATE."""
_SAME_NAME = (
    "SELECT pg_catalog.obj_description(p.oid, 'pg_proc') FROM pg_catalog.pg_proc p "
    "JOIN pg_catalog.pg_namespace f ON f.oid = p.pronamespace "
    "WHERE f.nspname = %s AND p.proname = %s AND p.pronargs = 0"
)


def function_name(table: TableName, column: str) -> str:
    """Returns the name of the function that a column's triggers call. The name may be too long for PostgreSQL."""
    return f"{table.name}_{column}_on_update"


def fits(wanted: OnUpdate) -> bool:
    """Whether the name of the function is short enough for PostgreSQL."""
    return len(function_name(wanted.table, wanted.name).encode()) <= MAX_NAME


def is_taken(session: PostgresSession, wanted: OnUpdate) -> bool:
    """Whether a function that this module has not created already has the name."""
    found = session.rows(_SAME_NAME, (wanted.table.schema, function_name(wanted.table, wanted.name)))
    return any(comment != MADE_HERE + wanted.name for (comment,) in found)


def has_other_triggers(session: PostgresSession, table: TableName) -> bool:
    """Whether a trigger that PiDTS has not created may change a row before an UPDATE writes it."""
    found = session.rows(_TRIGGERS, (table.schema, table.name))
    return any(not str(comment or "").startswith(MADE_HERE) for _, _, comment in found)


def is_there(session: PostgresSession, table: TableName, column: str) -> bool:
    """Whether the table has the triggers of the column, created by this module."""
    ours = (table.schema, function_name(table, column), MADE_HERE + column)
    return ours in session.rows(_TRIGGERS, (table.schema, table.name))


def drop(table: TableName, column: str) -> str:
    """Returns the statement that removes the function and its triggers."""
    return f"DROP FUNCTION {_function(table, column)}() CASCADE"


def create(wanted: OnUpdate) -> str:
    """Returns the statement that creates the function and its triggers."""
    mark = f"COMMENT ON FUNCTION {_function(wanted.table, wanted.name)}() IS {literal(MADE_HERE + wanted.name)}"
    return f"DO $made$ BEGIN\n{text(wanted)};\n{mark};\nEND $made$"


def text(wanted: OnUpdate) -> str:
    """Returns the statements for the function and its triggers."""
    table, column, function = qualified(wanted.table), identifier(wanted.name), _function(wanted.table, wanted.name)
    mark = literal(wanted.name)
    unset = "".join(f"\n    NEW.{identifier(name)} := OLD.{identifier(name)};" for name in wanted.generated)
    # PostgreSQL runs triggers in the order of their names, so a column's second trigger directly follows its first.
    first, second = (identifier(f"on_update_{wanted.place:04}_{number}") for number in (1, 2))
    return f"""\
CREATE FUNCTION {function}() RETURNS trigger LANGUAGE plpgsql AS $on_update$
BEGIN
  IF TG_ARGV[0] = 'is set' THEN
    PERFORM pg_catalog.set_config('pidts.is_set', {mark}, true);
  ELSIF pg_catalog.current_setting('pidts.is_set', true) = {mark} THEN
    PERFORM pg_catalog.set_config('pidts.is_set', '', true);
  ELSE{unset}
    IF NEW OPERATOR(pg_catalog.*<>) OLD THEN
      NEW.{column} := {_now(wanted.digits)};
    END IF;
  END IF;
  RETURN NEW;
END $on_update$;
CREATE TRIGGER {first} BEFORE UPDATE OF {column} ON {table}
  FOR EACH ROW EXECUTE PROCEDURE {function}('is set');
CREATE TRIGGER {second} BEFORE UPDATE ON {table}
  FOR EACH ROW EXECUTE PROCEDURE {function}('')"""


def _function(table: TableName, column: str) -> str:
    return f"{identifier(table.schema)}.{identifier(function_name(table, column))}"


def _now(digits: int) -> str:
    """Returns the statement's time, cut to this many digits as MySQL cuts it; a cast would round."""
    if digits == 6:
        return "pg_catalog.statement_timestamp()"
    second = "pg_catalog.date_trunc('second', pg_catalog.statement_timestamp())"
    if digits == 0:
        return second
    unit = 10 ** (6 - digits)
    return (
        f"{second} + EXTRACT(microseconds FROM pg_catalog.statement_timestamp())::bigint % 1000000 / {unit} "
        f"* interval '{unit} microseconds'"
    )
