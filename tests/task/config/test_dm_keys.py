"""Each of DM's keys is in one of these lists: honoured, mapped, noted or refused."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from pidts.model import ConfigError, Position
from pidts.task.config.json_schema import source_schema, task_schema
from pidts.task.config.task_file import TaskConfig, load_task

FILES = Path(__file__).with_name("dm")
PARSED = tuple(yaml.safe_load((FILES / name).read_text("utf-8")) for name in ("task.yaml", "crm-a.yaml"))

Load = Callable[[str, str], TaskConfig]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    def both(task: str, source: str) -> TaskConfig:
        (tmp_path / "crm-a.yaml").write_text(source)
        (tmp_path / "task.yaml").write_text(task)
        return load_task(tmp_path / "task.yaml", {})

    return both


EMPTY: tuple[str, ...] = ()

# A key, a value for it, and the result: an attribute of the task and its value, or a code and a part of the message.
# With "note" in place of a code, the file is accepted, and the message is a note.
CASES: list[tuple[str, object, str, object]] = [
    ("name", "x", "name", "x"),
    ("task-mode", "full", "mode", "full"),
    ("task-mode", "dump", "not-supported", "'dump' is not supported yet"),
    ("is-sharding", False, "notes?", EMPTY),
    ("is-sharding", True, "shard_mode", "pessimistic"),
    ("shard-mode", "optimistic", "shard_mode", "optimistic"),
    ("shard-mode", "strict", "bad-value", "pessimistic, optimistic"),
    ("strict-optimistic-shard-mode", True, "bad-value", "shard-mode: optimistic"),
    ("ignore-checking-items", ["version"], "ignored_checks", ("version",)),
    ("ignore-checking-items", ["free_space"], "ignored_checks", ("free_space",)),
    ("ignore-checking-items", ["versoin"], "unknown-name", "Did you mean 'version'?"),
    ("meta-schema", "other", "target.meta_schema", "other"),
    ("meta-schema", "", "target.meta_schema", "pidts_meta"),
    ("meta-schema", "mysql", "bad-value", "expected the name of a schema"),
    ("meta-schema", "a;b", "bad-value", "expected the name of a schema"),
    ("timezone", "Asia/Tokyo", "rules.expressions.time_zone", "Asia/Tokyo"),
    ("timezone", "+08:00", "rules.expressions.time_zone", "+08:00"),
    ("timezone", "-6:00", "rules.expressions.time_zone", "-06:00"),
    ("timezone", "Asia/Tokio", "bad-value", "Did you mean 'Asia/Tokyo'?"),
    ("case-sensitive", True, "allow.case_sensitive", True),
    ("collation_compatible", "strict", "not-supported", "translated loosely"),
    ("online-ddl", False, "online", None),
    ("online-ddl-scheme", "pt", "online.shadow", (r"^_(.+)_(?:new|gho)$",)),
    ("online-ddl-scheme", "other", "bad-value", "gh-ost"),
    ("shadow-table-rules", ["_(.+)_x"], "online.shadow", ("^_(.+)_x$",)),
    ("shadow-table-rules", ["_.+_x"], "bad-pattern", "0 groups"),
    ("trash-table-rules", ["^old_(.+)$"], "online.trash", ("^old_(.+)$",)),
    ("clean-dump-file", False, "note", "there is no dump"),
    ("remove-meta", False, "notes?", EMPTY),
    ("remove-meta", True, "not-supported", "never removed by a start"),
    ("ansi-quotes", True, "note", "no effect, as in DM"),
    ("enable-heartbeat", True, "note", "pidts.heartbeat turns on"),
    ("heartbeat-update-interval", 1, "note", "pidts.heartbeat turns on"),
    ("heartbeat-report-interval", 1, "note", "no effect, as in DM"),
    ("experimental", {"async-checkpoint-flush": True}, "note", "commit in one transaction"),
    ("target-database.host", "h", "target.host", "h"),
    ("target-database.port", 4001, "target.port", 4001),
    ("target-database.user", "u", "target.user", "u"),
    ("target-database.password", "p", "target.password", "p"),
    ("target-database.max-allowed-packet", 1 << 20, "target.max_packet", 1 << 20),
    ("target-database.max-allowed-packet", 10, "bad-value", "at least 65536"),
    ("target-database.session", {"sql_log_bin": 0}, "target.variables", (("sql_log_bin", "0"),)),
    ("target-database.session", {"sql_mode": "ANSI"}, "note", "as the source has them"),
    ("target-database.session", {"foreign_key_checks": 1}, "note", "the source has already checked them"),
    ("target-database.session", {"tidb_txn_mode": "optimistic"}, "note", "PiDTS chooses its settings"),
    ("target-database.session", {"tidb_x": 1}, "note", "only where the target is TiDB"),
    ("target-database.session", {"sql_select_limit": 9}, "not-supported", "would be cut off"),
    ("target-database.session", {"x = 1, y": 9}, "bad-value", "not the name of a variable"),
    ("target-database.security", {"ssl-mode": "required"}, "target.tls.mode.name", "REQUIRED"),
    ("target-database.security", {"ssl-ca": "absent.pem"}, "tls-files", "absent.pem"),
    ("target-database.security", {"ssl-cert": "absent.pem"}, "tls-files", "absent.pem"),
    ("target-database.security", {"ssl-key": "absent.pem"}, "bad-value", "security"),
    *(
        ("target-database.security", {f"ssl-{what}-{form}": "x"}, "not-supported", "write the content to a file")
        for what in ("ca", "cert", "key")
        for form in ("bytes", "base64")
    ),
    ("target-database.security", {"cert-allowed-cn": ["x"]}, "not-supported", "verify_identity"),
    ("instance.source-id", "nobody", "unknown-name", "no YAML file"),
    ("instance.meta", {"binlog-gtid": "0-1-5"}, "source.start", "0-1-5"),
    ("instance.meta", {"binlog-name": "bin.000002"}, "source.start", Position("bin.000002", 4)),
    ("instance.meta", {"binlog-pos": 5}, "missing-key", "needs binlog-name"),
    ("instance.route-rules", ["customers", "custmers"], "unknown-name", "Did you mean 'customers'?"),
    ("instance.route-rules", ["customers", "schema", "schema"], "duplicate-key", "'schema' is named twice"),
    ("instance.route-rules", ["customers"], "unused-name", "routes.schema: no instance uses it"),
    ("instance.filter-rules", ["no-truncate"], "unused-name", "filters.inserts-only"),
    ("instance.expression-filters", ["no-tests"], "unused-name", "expression-filter.not-closed"),
    ("instance.column-mapping-rules", ["id"], "unknown-name", "there is no 'id' in column-mappings"),
    ("instance.block-allow-list", "crn", "unknown-name", "Did you mean 'crm'?"),
    ("instance.black-white-list", "crm", "duplicate-key", "old name of block-allow-list"),
    ("instance.mydumper-thread", 2, "limits.threads", 2),
    ("instance.loader-thread", 5, "limits.threads", 5),
    ("instance.syncer-thread", 7, "workers", 7),
    ("instance.mydumper-config-name", "x", "unknown-name", "in mydumpers"),
    ("instance.loader-config-name", "x", "unknown-name", "in loaders"),
    ("instance.syncer-config-name", "x", "unknown-name", "in syncers"),
    ("instance.validator-config-name", "x", "unknown-name", "in validators"),
    ("instance.mydumper", {"threads": 3}, "limits.threads", 8),
    ("instance.loader", {"pool-size": 0}, "limits.threads", 8),
    ("instance.syncer", {"safe-mode": True}, "safe_mode", True),
    ("instance.validator", {"mode": "fast"}, "not-supported", "pidts verify"),
    ("routes.customers.schema-pattern", "a*b", "bad-pattern", "last character"),
    ("routes.customers.table-pattern", "~(", "bad-pattern", "not understood"),
    ("routes.customers.target-schema", "", "rules.routes.rules.0.target_schema", ""),
    ("routes.customers.target-table", "c", "rules.routes.rules.0.target_table", "c"),
    ("routes.customers.extract-table", {"table-regexp": "(", "target-column": "c"}, "bad-pattern", "table-regexp"),
    ("routes.customers.extract-table", {"table-regexp": "x"}, "missing-key", "target-column"),
    ("routes.customers.extract-schema", {"target-column": "c"}, "missing-key", "schema-regexp"),
    ("routes.customers.extract-schema", {"schema-regexp": ""}, "missing-key", "target-column"),
    ("routes.customers.extract-source", {"source-regexp": "(.)", "target-column": "c", "x": 1}, "unknown-key", "'x'"),
    ("filters.no-truncate.schema-pattern", "a", "rules.events.rules.0.schema_pattern", "a"),
    ("filters.no-truncate.table-pattern", "a", "rules.events.rules.0.table_pattern", "a"),
    ("filters.no-truncate.events", ["truncat table"], "bad-event", "Did you mean 'truncate table'?"),
    ("filters.no-truncate.sql-pattern", ["^drop", "("], "bad-pattern", "sql-pattern"),
    ("filters.no-truncate.action", "Ignor", "bad-value", "Did you mean 'Ignore'?"),
    ("filters.no-truncate.action", "Error", "rules.events.rules.0.action", "Error"),
    ("expression-filter.no-tests.schema", "s", "rules.expressions.rules.0.schema", "s"),
    ("expression-filter.no-tests.table", "s", "rules.expressions.rules.0.table", "s"),
    ("expression-filter.no-tests.insert-value-expr", "id = = 1", "bad-expression", "not understood"),
    ("expression-filter.no-tests.delete-value-expr", "id = 1", "bad-expression", "2 kinds of changes"),
    ("expression-filter.not-closed.update-old-value-expr", "a", "rules.expressions.rules.1.update_old", "a"),
    ("expression-filter.not-closed.update-new-value-expr", "a", "rules.expressions.rules.1.update_new", "a"),
    ("block-allow-list.crm.do-dbs", ["~("], "bad-pattern", "not understood"),
    ("block-allow-list.crm.ignore-dbs", ["a"], "allow.ignore_dbs", ("a",)),
    ("block-allow-list.crm.do-tables", [{"db-name": "a", "tbl-name": "b"}], "allow.do_tables", (("a", "b"),)),
    ("block-allow-list.crm.ignore-tables", [{"db-name": "a"}], "missing-key", "tbl-name"),
    ("mydumpers.all.threads", 2, "limits.threads", 8),
    ("mydumpers.all.where", "id > 5", "not-supported", "leaves out rows"),
    ("mydumpers.all.extra-args", "--where id>5", "not-supported", "may choose rows"),
    *(
        (f"mydumpers.all.{key}", 1, "note", "there is no dump")
        for key in ("mydumper-path", "chunk-filesize", "statement-size", "rows", "skip-tz-utc")
    ),
    ("loaders.all.pool-size", 1, "limits.threads", 8),
    *(
        (f"loaders.all.{key}", "x", "note", "there is no dump")
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
    ),
    ("syncers.all.worker-count", 0, "bad-value", "at least 1"),
    ("syncers.all.batch", 50, "limits.row_events", 40_000),
    ("syncers.all.batch", 100, "limits.row_events", 80_000),
    ("syncers.all.queue-size", 512, "limits.bytes", 28 << 20),
    ("syncers.all.queue-size", 0, "limits.bytes", 56 << 20),
    ("syncers.all.checkpoint-flush-interval", 5, "note", "commit in one transaction"),
    ("syncers.all.compact", False, "note", "always compacted"),
    ("syncers.all.multiple-rows", False, "note", "many rows are always written at once"),
    ("syncers.all.safe-mode", True, "safe_mode", True),
    ("syncers.all.safe-mode-duration", "0s", "safe_start", False),
    ("syncers.all.safe-mode-duration", "1m30s", "note", "ends where the source's log ended"),
    ("syncers.all.safe-mode-duration", "soon", "bad-value", "not a length of time"),
    *(
        (f"syncers.all.{key}", 1, "note", "no effect, as in DM")
        for key in ("max-retry", "disable-detect", "auto-fix-gtid", "enable-ansi-quotes")
    ),
    ("syncers.all.enable-gtid", True, "note", "source file"),
    ("syncers.all.meta-file", "x", "note", "where meta says"),
    ("validators.none.mode", "full", "not-supported", "pidts verify"),
    *(
        (f"validators.none.{key}", 1, "note", "does not read this key")
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
    ),
    ("source.source-id", "other", "unknown-name", "no YAML file"),
    ("source.enable", False, "not-supported", "switches off the source"),
    ("source.enable-gtid", True, "source.use_gtid", True),
    ("source.enable-relay", False, "note", "always goes through the relay"),
    ("source.relay-dir", "x", "note", "pidts.relay"),
    ("source.relay-binlog-name", "bin.000001", "not-supported", "starts where the task starts"),
    ("source.relay-binlog-gtid", "0-1-1", "not-supported", "starts where the task starts"),
    ("source.server-id", 5, "source.server.server_id", 5),
    ("source.case-sensitive", True, "rules.routes.case_sensitive", True),
    ("source.purge", {"expires": 1}, "note", "relay-keep"),
    ("source.checker", {"check-enable": False}, "note", "always connects again"),
    ("source.flavor", "mariadb", "note", "asks the server"),
    ("source.filters", [{"schema-pattern": "a", "events": ["x"], "action": "Do"}], "bad-event", "has the event 'x'"),
    ("source.filters", [{"schema-pattern": "CRM_*", "table-pattern": "*", "action": "Do"}], "note", "same patterns"),
    ("source.auto-fix-gtid", True, "note", "no effect, as in DM"),
    ("source.tracer", {"x": 1}, "note", "no effect, as in DM"),
    ("source.meta-dir", "x", "note", "no effect, as in DM"),
    ("source.charset", "utf8", "note", "no effect, as in DM"),
    ("source.from.host", "h", "source.server.host", "h"),
    ("source.from.port", 1, "source.server.port", 1),
    ("source.from.user", "u", "source.server.user", "u"),
    ("source.from.password", "p", "source.server.password", "p"),
    ("source.from.session", {"a": 1}, "note", "values stay exact"),
    ("source.from.max-allowed-packet", 1, "note", "server's own limit"),
    ("source.from.security", {"ssl-mode": "disabled"}, "source.server.tls.mode.name", "DISABLED"),
]


@pytest.mark.parametrize(("key", "value", "becomes", "expected"), CASES, ids=lambda part: str(part)[:30])
def test_each_key_of_dm_has_the_expected_result(
    load: Load, key: str, value: object, becomes: str, expected: object
) -> None:
    texts = with_value(key, value)
    last = key.rpartition(".")[2]
    if becomes == "notes?":
        assert not any(f"{last}: " in note for note in load(*texts).notes)
    elif becomes == "note":
        notes = [note for note in load(*texts).notes if str(expected) in note]
        assert notes, load(*texts).notes
        assert any(re.match(r"[\w-]+\.yaml:\d+: ", note) for note in notes)
    elif "-" in becomes:
        with pytest.raises(ConfigError) as caught:
            load(*texts)
        error = caught.value
        several = error.code == "several-mistakes"
        assert f"[{becomes}]" in error.what if several else error.code == becomes
        assert str(expected) in f"{error.what} {error.todo}"
        assert several or error.where.line > 0
    else:
        assert attribute(load(*texts), becomes) == expected


def with_value(key: str, value: object) -> tuple[str, str]:
    """Returns the task file and the source file, with one value added or changed."""
    task, source = copy.deepcopy(PARSED)
    *way, last = key.split(".")
    place = task
    if way[:1] == ["source"]:
        place, way = source, way[1:]
    elif way[:1] == ["instance"]:
        place, way = task["mysql-instances"][0], way[1:]
    for part in way:
        place = place[part]
    place[last] = value
    return json.dumps(task, indent=1), json.dumps(source, indent=1)  # JSON is valid YAML.


def attribute(config: TaskConfig, path: str) -> object:
    found: Any = config
    for part in path.split("."):
        found = found[int(part)] if part.isdigit() else getattr(found, part)
    return found


OURS = {
    "pidts",
    "target-database.type",
    "target-database.database",
    "target-database.catalog",
    "target-database.files",
    "target-database.metastore",
    "target-database.publish-to",
    "target-database.warehouse",
    "target-database.password-file",
    "source.from.password-file",
    "source.standbys",
    "source.failover-after",
}
"""Keys that DM does not have."""
IN_PLACE = {
    f"instance.{key}"
    for key in ("from", "standbys", "failover-after", "filters", "enable-gtid", "server-id", "case-sensitive")
}
"""The keys of a source file, in a source that is written into the task file."""
IN_FULL = {"black-white-list", "column-mappings"}
"""Other tests are about these keys."""


def test_a_case_exists_for_every_key() -> None:
    """The schemas for editors have all keys that the reader accepts, since they are made from these lists."""
    task, source = task_schema(), source_schema()
    known = {*keys(task), *(f"source.{key}" for key in keys(source))}
    decided = {normal(key) for key, *_ in CASES}
    decided |= {f"{normal(key)}.{part}" for key, value, *_ in CASES if isinstance(value, dict) for part in value}
    without = {
        key
        for key in known - decided
        if not any(key == given or key.startswith(f"{given}.") for given in OURS | IN_PLACE | IN_FULL)
    }
    assert without == {
        "block-allow-list.*.do-tables.db-name",
        "block-allow-list.*.do-tables.tbl-name",
        "block-allow-list.*.ignore-tables.db-name",
        "block-allow-list.*.ignore-tables.tbl-name",
        "source.filters.action",
        "source.filters.events",
        "source.filters.schema-pattern",
        "source.filters.sql-pattern",
        "source.filters.table-pattern",
        *(f"source.from.security.{key}" for key in SECURITY),
    }


FORMS = [f"ssl-{what}-{form}" for what in ("ca", "cert", "key") for form in ("base64", "bytes")]
SECURITY = ["cert-allowed-cn", "ssl-ca", "ssl-cert", "ssl-key", *FORMS]


def keys(schema: dict[str, Any], before: str = "") -> Iterator[str]:
    """Yields every key of the schema. For a key whose value has keys of its own, only these are yielded."""
    for name, one in schema.get("properties", {}).items():
        key = f"{before}{name}".replace("mysql-instances", "instance")
        if key in {f"instance.{unit}" for unit in ("mydumper", "loader", "syncer", "validator")}:
            yield key
            continue
        below = one["items"] if isinstance(one.get("items", {}).get("properties"), dict) else one
        more = below.get("additionalProperties")
        if isinstance(more, dict) and "properties" in more:
            yield from keys(more, f"{key}.*.")
        elif "properties" in below:
            yield from keys(below, f"{key}.")
        else:
            yield key


UNITS = ("mydumpers", "loaders", "syncers", "validators")


def normal(key: str) -> str:
    """Replaces the names that the user has chosen by stars."""
    parts = key.split(".")
    if parts[0] in {"routes", "filters", "expression-filter", "block-allow-list", *UNITS}:
        parts[1:2] = ["*"]
    return ".".join(parts)
