"""`pidts_meta` on PostgreSQL."""

from __future__ import annotations

STATEMENTS = (
    "CREATE SCHEMA IF NOT EXISTS pidts_meta",
    """CREATE TABLE IF NOT EXISTS pidts_meta.checkpoint (
  task varchar(190) NOT NULL, source varchar(190) NOT NULL, worker integer NOT NULL, batch bigint NOT NULL,
  lsn varchar(44) NOT NULL, gtid text NOT NULL, log_position text NOT NULL, epoch bigint NOT NULL,
  copy_progress text NOT NULL, updated_at timestamptz NOT NULL DEFAULT CURRENT_TIMESTAMP,
  PRIMARY KEY (task, source, worker))
  WITH (fillfactor = 50)""",
    "COMMENT ON TABLE pidts_meta.checkpoint IS 'How far each worker is; changes in the transaction of its rows'",
    "COMMENT ON COLUMN pidts_meta.checkpoint.epoch IS 'Counts take-overs; a run with an older number is refused'",
    """CREATE TABLE IF NOT EXISTS pidts_meta.structure (
  task varchar(190) NOT NULL, source varchar(190) NOT NULL, table_schema varchar(190) NOT NULL,
  table_name varchar(190) NOT NULL, lsn varchar(44) NOT NULL, structure text NOT NULL,
  PRIMARY KEY (task, source, table_schema, table_name))""",
    "COMMENT ON TABLE pidts_meta.structure IS 'Structures of the source''s tables as of the last schema change'",
    """CREATE TABLE IF NOT EXISTS pidts_meta.ddl_journal (
  task varchar(190) NOT NULL, source varchar(190) NOT NULL, lsn varchar(44) NOT NULL, statement text NOT NULL,
  rendered text NOT NULL, step integer NOT NULL, before_change text NOT NULL, state varchar(20) NOT NULL,
  epoch bigint NOT NULL, updated_at timestamptz NOT NULL DEFAULT CURRENT_TIMESTAMP, PRIMARY KEY (task, source, lsn))""",
    "COMMENT ON TABLE pidts_meta.ddl_journal IS 'Schema changes begun and done on this target'",
)
"""Safe to run again. `log_position`, not `position`, since that is a word of the language."""
