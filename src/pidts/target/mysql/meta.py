"""`pidts_meta` on MySQL, MariaDB and TiDB."""

from __future__ import annotations

_NAME = "varchar(190) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL"
_TEXT = "longtext CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL"
_CODE = "CHARACTER SET ascii COLLATE ascii_bin NOT NULL"
_OBJECT = "varchar(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL"
_CLOCK = "timestamp(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6)"

STATEMENTS = (
    "CREATE DATABASE IF NOT EXISTS pidts_meta",
    f"""CREATE TABLE IF NOT EXISTS pidts_meta.checkpoint (
  task {_NAME}, source {_NAME}, worker int NOT NULL, batch bigint NOT NULL, lsn varchar(44) {_CODE}, gtid {_TEXT},
  log_position {_TEXT}, epoch bigint NOT NULL COMMENT 'Counts take-overs; a run with an older number is refused',
  copy_progress {_TEXT}, updated_at {_CLOCK}, PRIMARY KEY (task, source, worker)) ENGINE=InnoDB
  COMMENT='How far each worker of a task is; changes in the transaction of its rows'""",
    f"""CREATE TABLE IF NOT EXISTS pidts_meta.structure (
  task {_NAME}, source {_NAME}, table_schema varchar(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  table_name varchar(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL, lsn varchar(44) {_CODE}, structure {_TEXT},
  PRIMARY KEY (task, source, table_schema, table_name)) ENGINE=InnoDB
  COMMENT='Structures of the tables of the source as of the last schema change of the task'""",
    f"""CREATE TABLE IF NOT EXISTS pidts_meta.ddl_journal (
  task {_NAME}, source {_NAME}, lsn varchar(44) {_CODE}, statement {_TEXT}, rendered {_TEXT}, step int NOT NULL,
  before_change {_TEXT}, state varchar(20) {_CODE}, epoch bigint NOT NULL, updated_at {_CLOCK},
  PRIMARY KEY (task, source, lsn)) ENGINE=InnoDB COMMENT='Schema changes begun and done on this target'""",
    f"""CREATE TABLE IF NOT EXISTS pidts_meta.note (
  task {_NAME}, source {_NAME}, table_schema varchar(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  table_name varchar(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL, told {_TEXT},
  PRIMARY KEY (task, source, table_schema, table_name)) ENGINE=InnoDB
  COMMENT='Tables without a key, each with the last loading of all its rows'""",
    f"""CREATE TABLE IF NOT EXISTS pidts_meta.halt (
  task {_NAME}, source {_NAME}, place {_NAME}, about {_TEXT}, updated_at {_CLOCK}, PRIMARY KEY (task, source, place))
  ENGINE=InnoDB COMMENT='Tables that wait for an operator, and why'""",
    f"""CREATE TABLE IF NOT EXISTS pidts_meta.ddl_order (
  task {_NAME}, source {_NAME}, lsn varchar(44) {_CODE}, kind varchar(20) {_CODE}, statements {_TEXT},
  number int NOT NULL, taken int NOT NULL, updated_at {_CLOCK}, PRIMARY KEY (task, source, lsn)) ENGINE=InnoDB
  COMMENT='What an operator has ordered about schema changes of the log'""",
    f"""CREATE TABLE IF NOT EXISTS pidts_meta.shadow (
  task {_NAME}, source {_NAME}, table_schema varchar(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  table_name varchar(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL, about {_TEXT},
  PRIMARY KEY (task, source, table_schema, table_name)) ENGINE=InnoDB
  COMMENT='Online schema changes under way: what has altered the table that is to be swapped in'""",
    f"""CREATE TABLE IF NOT EXISTS pidts_meta.tombstone (
  table_schema varchar(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  table_name varchar(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL, row_key {_NAME},
  version_value varchar(90) CHARACTER SET ascii COLLATE ascii_bin, source {_NAME}, lsn varchar(44) {_CODE},
  buried_at bigint NOT NULL COMMENT 'Seconds since 1970', PRIMARY KEY (table_schema, table_name, row_key)) ENGINE=InnoDB
  COMMENT='Rows deleted under a version column, so that an older event does not bring them back'""",
    f"""CREATE TABLE IF NOT EXISTS pidts_meta.moved (
  task {_NAME}, source {_NAME}, table_schema {_OBJECT}, table_name {_OBJECT}, row_key varchar(80) {_CODE},
  member_schema {_OBJECT}, member_name {_OBJECT}, lsn varchar(44) {_CODE},
  PRIMARY KEY (task, source, table_schema, table_name, row_key, member_schema, member_name)) ENGINE=InnoDB
  COMMENT='Which shard has got which key while another one of its table waits'""",
    f"""CREATE TABLE IF NOT EXISTS pidts_meta.safe_range (
  task {_NAME}, source {_NAME}, lsn varchar(44) {_CODE}, PRIMARY KEY (task, source)) ENGINE=InnoDB
  COMMENT='Changes up to here may have been applied before the first start of the task'""",
)
"""Safe to run again. Names are short enough for the 767 bytes that old servers allow in a key's column."""
