"""Lists DM's keys that PiDTS does not use, each with the values that pass and the note or refusal of other values.

A value is refused if ignoring it would change which rows arrive, or how safely they arrive.
"""

from __future__ import annotations

from pidts.task.config.section import OtherKey

TOGETHER = (
    "no effect: rows and their checkpoint commit in one transaction, so a checkpoint is never older than its rows"
)
SAFE_RANGE = (
    "no effect: PiDTS does not limit the time of safe mode. Safe mode ends where the source's log ended at the first "
    "start: only changes before this position may already be on the target. Later starts need no safe mode"
)
_NO_DUMP = "no effect: there is no dump; rows are read in chunks along their keys while the log is read"
_GONE = "no effect, as in DM"
_HEARTBEAT = f"{_GONE}; pidts.heartbeat turns on the heartbeat of PiDTS"
_OFF: object = False
_ON: object = True


def _note(text: str, *as_is: object) -> OtherKey:
    return OtherKey(as_is=as_is, note=text)


def _refuse(text: str, *as_is: object) -> OtherKey:
    return OtherKey(as_is=as_is, refusal=text)


TASK = {
    "collation_compatible": _refuse("collations are always translated loosely", "loose"),
    "clean-dump-file": _note(_NO_DUMP),
    "remove-meta": _refuse("a task's checkpoint is never removed by a start", _OFF),
    "ansi-quotes": _note(_GONE),
    "enable-heartbeat": _note(_HEARTBEAT, _OFF),
    "heartbeat-update-interval": _note(_HEARTBEAT),
    "heartbeat-report-interval": _note(_GONE),
    "experimental": _note(TOGETHER),
}
"""Keys of the task file, besides those that `task_file` reads."""


COLUMN_MAPPING = {"create-table-query": _note(_GONE)}
"""Keys of an entry of `column-mappings`."""

SERVER = {
    "max-allowed-packet": _note("no effect: statements are kept below the server's own limit"),
    "session": _note("no effect: PiDTS sets the session's variables itself, so that values stay exact"),
}
"""Keys of `from` of a source, and of `target-database`."""

SECURITY = {
    "cert-allowed-cn": _refuse("the name in a certificate is compared with the host's, by ssl-mode: verify_identity"),
    **{
        f"ssl-{what}-{form}": _refuse(f"write the content to a file, and give its path in ssl-{what}")
        for what in ("ca", "cert", "key")
        for form in ("bytes", "base64")
    },
}
"""Keys of the block `security` for TLS."""

SYNCER = {
    "meta-file": _note("no effect: a task begins at its checkpoint on the target, or where meta says"),
    "enable-gtid": _note("no effect: enable-gtid in the source file decides whether GTIDs are used"),
    "max-retry": _note(_GONE),
    "disable-detect": _note(_GONE),
    "auto-fix-gtid": _note(_GONE),
    "enable-ansi-quotes": _note(_GONE),
}

DUMPER = {
    "mydumper-path": _note(_NO_DUMP),
    "chunk-filesize": _note(_NO_DUMP),
    "statement-size": _note(_NO_DUMP),
    "rows": _note(_NO_DUMP),
    "where": _refuse("a condition of the dump leaves out rows, and later changes of these rows would still arrive"),
    "skip-tz-utc": _note(_NO_DUMP),
}
"""Keys of an entry of `mydumpers`, or of an instance's own block."""

DUMP_OPTIONS = frozenset(
    {
        *("--consistency", "--transactional-consistency", "--no-locks", "-k"),
        *("--statement-size", "-s", "--filesize", "-F", "--chunk-filesize", "--rows", "-r", "--threads", "-t"),
        *("--complete-insert", "--escape-backslash", "--order-by-primary-key", "--compress", "-c", "--params"),
        *("--tidb-mem-quota-query", "--read-timeout", "--loglevel", "--logfile", "--logfmt", "--no-views", "-W"),
    }
)
"""Options in `extra-args` that only decide how the dump is written. Other options may decide which rows it has."""
NO_DUMP = _NO_DUMP

LOADER = {
    key: _note(_NO_DUMP)
    for key in (
        "dir",
        "sql-mode",
        "import-mode",
        "on-duplicate",
        "on-duplicate-logical",
        "on-duplicate-physical",
        "sorting-dir-physical",
        "disk-quota-physical",
        "checksum-physical",
        "analyze",
        "range-concurrency",
        "compress-kv-pairs",
        "pd-addr",
    )
}
"""Keys of an entry of `loaders`, or of an instance's own block."""

VALIDATOR = {
    "mode": _refuse("a running task does not compare by itself: `pidts verify` does", "none"),
    **{
        key: _note("no effect: `pidts verify` compares the rows, and does not read this key")
        for key in (
            "worker-count",
            "validate-interval",
            "check-interval",
            "row-error-delay",
            "meta-flush-interval",
            "batch-query-size",
            "max-pending-row-size",
            "max-pending-row-count",
            "start-time",
        )
    },
}
"""Keys of an entry of `validators`, or of an instance's own block."""

SOURCE = {
    "enable-relay": _note("no effect: the log always goes through the relay", _ON),
    "relay-dir": _note("no effect: the relay is where the task's pidts.relay says"),
    "relay-binlog-name": _refuse("the relay starts where the task starts"),
    "relay-binlog-gtid": _refuse("the relay starts where the task starts"),
    "purge": _note("no effect: the relay keeps what a target still needs, and longer with pidts.relay-keep"),
    "checker": _note("no effect: PiDTS always connects again after a lost connection"),
    "flavor": _note("no effect: PiDTS asks the server for its kind"),
    "enable": _refuse("it switches off the source", _ON),
    "auto-fix-gtid": _note(_GONE),
    "tracer": _note(_GONE),
    "meta-dir": _note(_GONE),
    "charset": _note(_GONE),
}
"""Keys of the top level of a source file."""

CHECKS = (
    "all",
    "downstream_mutex_features",
    "downstream_table_empty",
    "downstream_version",
    "empty_region",
    "free_space",
    "region_distribution",
    "auth_plugin",
    "auto_increment_ID",
    "binlog_db",
    "binlog_enable",
    "binlog_expiry",
    "binlog_format",
    "binlog_row_image",
    "circular_replication",
    "standby",
    "conn_number",
    "dump_privilege",
    "foreign_key",
    "gtid",
    "log_slave_updates",
    "meta_position",
    "online_ddl",
    "prepared_xa",
    "primary_key",
    "replication_privilege",
    "schema_of_shard_tables",
    "server_id",
    "table_list",
    "table_schema",
    "target_privilege",
    "target_tables",
    "tls",
    "version",
    "version_column",
)
"""The names that `ignore-checking-items` accepts: all checks of PiDTS, and all checks of DM, even if PiDTS lacks them.
"""
