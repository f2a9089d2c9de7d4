"""A task file is read strictly: each key is honoured, noted or refused with its line."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import pytest

from pidts.login import Mode, Tls
from pidts.model import ConfigError, OnDivergence, Position, TableName
from pidts.task.config.task_file import TaskConfig, load_task
from pidts.task.config.zone import ZoneSpec

TASK = """\
name: shop
task-mode: all
target-database: {type: postgresql, host: 127.0.0.1, port: 5433, user: app, password: "${PGPASSWORD}", database: shop}
mysql-instances:
  - source-id: shop-1
    from: {host: 127.0.0.1, port: 3307, user: repl, password: "${MYSQL_PWD}"}
    block-allow-list: shop
    syncer-config-name: global
block-allow-list: {shop: {do-dbs: ["~^shop_"]}}
syncers: {global: {worker-count: 4}}
"""
_SERVER = 'type: postgresql, host: 127.0.0.1, port: 5433, user: app, password: "${PGPASSWORD}", database: shop'
ICEBERG_TASK = TASK.replace(_SERVER, "type: iceberg, warehouse: /lake")
TO = '{host: db, port: 5444, user: w, password: "${PGPASSWORD}", database: lake}'
REST = "{type: rest, uri: https://h}"
METASTORE = "{type: hive, metastore: thrift://h:1}"
HIVE_TASK = ICEBERG_TASK.replace("iceberg", "hive")
ZONE_TASK = TASK.replace("type: postgresql", "type: mysql").replace(", database: shop", "")
OWNED = ZONE_TASK + (
    "pidts: {zone: a, target-zone: b, conflict: owner, owners: "
    "[{schema: shop, table: orders, where: id < 5, zone: a}, {schema: shop, table: orders, zone: b}]}\n"
)
SECRETS = {"PGPASSWORD": "pg-secret", "MYSQL_PWD": "my-secret"}

Load = Callable[..., TaskConfig]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    def from_text(text: str, **files: str) -> TaskConfig:
        for name, content in files.items():
            (tmp_path / name.replace("_", ".")).write_text(dedent(content))
        path = tmp_path / "task.yaml"
        path.write_text(text)
        return load_task(path, SECRETS)

    return from_text


def replaced(old: str, new: str) -> str:
    assert old in TASK
    return TASK.replace(old, new)


def refused(load: Load, text: str) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        load(text)
    assert caught.value.where.file.endswith("task.yaml")
    return caught.value


def test_a_task_with_a_shard_mode_may_lock_rows(load: Load) -> None:
    """Only merged tables without a version cannot be locked, which a check before the start finds."""
    for mode in ("pessimistic", "optimistic"):
        assert load(f"{TASK}shard-mode: {mode}\npidts: {{on-divergence: lock}}\n").on_divergence is OnDivergence.LOCK


def test_the_documented_example_is_understood(load: Load, tmp_path: Path) -> None:
    config = load(TASK)
    assert (config.name, config.mode, config.workers) == ("shop", "all", 4)
    source, target = config.source, config.target
    assert (source.source_id, source.server.host, source.server.port, source.server.user, source.server.password) == (
        "shop-1", "127.0.0.1", 3307, "repl", "my-secret",
    )  # fmt: skip
    assert (source.start, source.use_gtid, source.server.server_id) == (None, False, None)
    assert (target.type, target.host, target.port, target.user, target.password, target.database) == (
        "postgresql", "127.0.0.1", 5433, "app", "pg-secret", "shop",
    )  # fmt: skip
    assert config.allow(TableName("shop_1", "t"))
    assert not config.allow(TableName("other", "t"))
    assert (config.relay, config.path) == (tmp_path / "relay" / "shop", tmp_path / "task.yaml")
    assert (config.spark_master, config.spark_conf, config.direct_rows, config.limits.chunk_rows) == (
        "local[*,4]",
        {},
        100_000,
        20_000,
    )
    assert config.notes == ()


def test_passwords_are_in_no_representation(load: Load) -> None:
    assert "secret" not in repr(load(TASK))


def test_settings_that_may_be_secrets_are_not_shown_with_the_others(load: Load) -> None:
    conf, alerts = "spark: {conf: {spark.hadoop.fs.s3a.secret.key: hunter2}}", "alerts: {command: tell --key hunter2}"
    assert "hunter2" not in repr(load(f"{TASK}pidts: {{{conf}, {alerts}}}\n"))


def test_the_block_pidts_is_read(load: Load, tmp_path: Path) -> None:
    config = load(
        TASK
        + dedent("""\
        pidts:
          relay: ../r
          on-divergence: halt
          chunk-rows: 500
          spark: {master: "local[2,4]", direct-rows: 0, conf: {spark.driver.memory: 2g, spark.cores.max: 2}}
        """)
    )
    assert (config.relay, config.limits.chunk_rows) == (tmp_path.parent / "r", 500)
    assert (config.spark_master, config.direct_rows) == ("local[2,4]", 0)
    assert config.spark_conf == {"spark.driver.memory": "2g", "spark.cores.max": "2"}


@pytest.mark.parametrize(
    ("text", "line", "name", "hint"),
    [
        (TASK + "task_mode: all\n", 11, "task_mode", "task-mode"),
        (TASK + "block-alow-list: {}\n", 11, "block-alow-list", "block-allow-list"),
        (replaced("port: 5433", "prot: 5433"), 3, "prot", "port"),
        (
            replaced("    block-allow", "    block-allw-list: x\n    block-allow"),
            7,
            "block-allw-list",
            "block-allow-list",
        ),
        (replaced("worker-count", "worker-cont"), 10, "worker-cont", "worker-count"),
        (replaced("do-dbs", "do-db"), 9, "do-db", "do-dbs"),
        (TASK + "pidts:\n  realy: r\n", 12, "realy", "relay"),
        (TASK + "pidts:\n  spark: {direct_rows: 1}\n", 12, "direct_rows", "direct-rows"),
    ],
)
def test_an_unknown_key_is_named_with_its_line_and_a_suggestion(
    load: Load, text: str, line: int, name: str, hint: str
) -> None:
    error = refused(load, text)
    assert (error.code, error.where.line, error.todo) == ("unknown-key", line, f"Did you mean {hint!r}?")
    assert repr(name) in error.what


@pytest.mark.parametrize(
    ("text", "code", "line", "said"),
    [
        (replaced("name: shop\n", ""), "missing-key", 1, "name"),
        (replaced("name: shop\n", "name: ../shop\n"), "bad-value", 1, "letters, digits"),
        (replaced("task-mode: all", "task-mode: everything"), "bad-value", 2, "full, incremental, all"),
        (replaced("task-mode: all", "task-mode: dump"), "not-supported", 2, "dump"),
        (replaced("port: 5433", "port: many"), "wrong-type", 3, "a whole number, not text"),
        (replaced("port: 5433", "port: 70000"), "bad-value", 3, "at most 65535"),
        (replaced(", database: shop", ""), "missing-key", 3, "database"),
        (replaced("type: postgresql", "type: hive"), "missing-key", 3, "target-database.warehouse"),
        (replaced("type: postgresql", "type: oracle"), "bad-value", 3, "mysql, postgresql"),
        (replaced("type: postgresql, ", ""), "bad-value", 3, "keeps the names"),
        (replaced("host: 127.0.0.1, port: 5433, ", ""), "missing-key", 3, "target-database.host"),
        (replaced("${PGPASSWORD}", "${NOT_SET}"), "missing-variable", 3, "NOT_SET"),
        (replaced('password: "${PGPASSWORD}"', "password-file: absent.txt"), "unreadable-file", 3, "absent.txt"),
        (replaced("user: app", "user: app, password-file: x"), "duplicate-key", 3, "password is given too"),
        (replaced("user: app", "user: [app]"), "wrong-type", 3, "expected text, not a list"),
        (replaced("block-allow-list: shop", "block-allow-list: shopp"), "unknown-name", 7, "'shopp'"),
        (replaced("syncer-config-name: global", "syncer-config-name: globl"), "unknown-name", 8, "'globl'"),
        (replaced('["~^shop_"]', '["~("]'), "bad-pattern", 9, "is not understood"),
        (replaced('["~^shop_"]', "shop"), "wrong-type", 9, "a list, not text"),
        (replaced('["~^shop_"]', "[[a]]"), "wrong-type", 9, "expected text"),
        (replaced('{do-dbs: ["~^shop_"]}', "{do-tables: [{db-name: a}]}"), "missing-key", 9, "tbl-name"),
        (replaced("worker-count: 4", "worker-count: 0"), "bad-value", 10, "at least 1"),
        (replaced("worker-count: 4", "worker-count: true"), "wrong-type", 10, "true or false"),
        (replaced("worker-count: 4", "compact: 1"), "wrong-type", 10, "true or false, not a whole number"),
        (TASK + "name: again\n", "duplicate-key", 11, "line 1"),
        (TASK + "black-white-list: {shop: {do-dbs: [a]}}\n", "duplicate-key", 11, "block-allow-list"),
        (TASK + "pidts: [1]\n", "wrong-type", 11, "keys and values"),
        (TASK + "pidts: {relay: 's3://bucket/x'}\n", "not-supported", 11, "directory"),
        (TASK + "pidts: {version-column: [v]}\n", "wrong-type", 11, "text"),
        (TASK + "pidts: {split-transactions: 0}\n", "bad-value", 11, "at least 1"),
        (TASK + "pidts: {zone: {source: a}}\n", "wrong-type", 11, "text"),
        (TASK + "pidts: {zone: B}\n", "bad-value", 11, "lower-case"),
        (TASK + "pidts: {target-zone: b}\n", "bad-value", 11, "Add pidts.zone"),
        (TASK + "pidts: {zone: a, target-zone: a}\n", "bad-value", 11, "both the zone"),
        (TASK + "pidts: {zone: a, target-zone: b, forward: [c]}\n", "not-supported", 11, "whatever zone"),
        (ICEBERG_TASK + "pidts: {zone: a}\n", "not-supported", 11, "warehouse of Iceberg tables"),
        (ICEBERG_TASK + "pidts: {zone: a, target-zone: b}\n", "not-supported", 11, "warehouse of Iceberg tables"),
        (ICEBERG_TASK.replace("/lake", "/lake, files: 's3://B/x?y'"), "bad-value", 3, "s3://bucket/folder"),
        (
            HIVE_TASK.replace("/lake", "/lake, files: 's3://bucket/x'"),
            "not-supported",
            3,
            "the metastore in the warehouse cannot",
        ),
        (ICEBERG_TASK + "pidts: {hive: {refresh: 1m}}\n", "not-supported", 11, "type hive"),
        (HIVE_TASK.replace("/lake", f"/lake, publish-to: {TO}"), "not-supported", 3, "publishes to its own metastore"),
        (ICEBERG_TASK.replace("/lake", "/lake, publish-to: {host: h, user: u}"), "missing-key", 3, "database"),
        (ICEBERG_TASK.replace("/lake", f"/lake, publish-to: {TO[:-1]}, type: glue}}"), "bad-value", 3, "postgresql"),
        (ICEBERG_TASK.replace("/lake", f"/lake, publish-to: {REST[:-1]}, database: d}}"), "unknown-key", 3, "database"),
        (
            ICEBERG_TASK.replace("/lake", f"/lake, publish-to: {REST[:-1]}, user: u}}"),
            "missing-key",
            3,
            "password-file",
        ),
        (ICEBERG_TASK.replace("/lake", "/lake, publish-to: {type: rest, uri: h}"), "bad-value", 3, "https://"),
        (ICEBERG_TASK.replace("/lake", f"/lake, publish-to: {TO[:-1]}, type: hive}}"), "missing-key", 3, "metastore"),
        (ICEBERG_TASK.replace("/lake", f"/lake, publish-to: {METASTORE[:-3]}}}"), "bad-value", 3, "thrift://host:port"),
        (ICEBERG_TASK.replace("/lake", f"/lake, publish-to: {METASTORE[:-1]}, user: u}}"), "unknown-key", 3, "user"),
        (ICEBERG_TASK.replace("/lake", f"/lake, publish-to: {TO[:-1]}, meta: x}}"), "unknown-key", 3, "meta"),
        (HIVE_TASK + "pidts: {hive: {refresh: 1}}\n", "bad-value", 11, "length of time"),
        (HIVE_TASK + "pidts: {hive: {refresh: 100ms}}\n", "bad-value", 11, "once a second"),
        (HIVE_TASK + "pidts: {split-transactions: 1000}\n", "not-supported", 11, "part of a transaction"),
        (HIVE_TASK.replace("/lake", "/lake, metastore: 'thrift://h'"), "bad-value", 3, "thrift://host:port"),
        (ZONE_TASK + "pidts: {zone: a, forward: [c]}\n", "bad-value", 11, "Add pidts.target-zone"),
        (ZONE_TASK + "pidts: {zone: a, target-zone: b, forward: [b]}\n", "bad-value", 11, "zone of the target"),
        (ZONE_TASK + "pidts: {zone: a, target-zone: b, forward: [a]}\n", "bad-value", 11, "zone of the source"),
        (ZONE_TASK + "pidts: {zone: a, target-zone: b, forward: [C]}\n", "bad-value", 11, "lower-case"),
        (ZONE_TASK + "pidts: {zone: a, conflict: owner}\n", "bad-value", 11, "Add pidts.target-zone"),
        (ZONE_TASK + "pidts: {zone: a, target-zone: b, conflict: owner}\n", "missing-key", 11, "no zone owns"),
        (OWNED.replace("conflict: owner", "conflict: lock"), "bad-value", 11, "Write pidts.conflict: owner"),
        (OWNED.replace("owner,", "owner, version-column: v,"), "not-supported", 11, "or the row's version, not both"),
        (OWNED.replace("owner,", "owner, on-divergence: warn,"), "not-supported", 11, "is locked"),
        (OWNED.replace("zone: b}", "zone: B}"), "bad-value", 11, "lower-case"),
        (OWNED.replace("a}", "b}").replace(", where: id < 5", ""), "owners-overlap", 11, "owned twice"),
        (OWNED.replace("id < 5", "id < NOW()"), "bad-expression", 11, "depend on the time"),
        (ZONE_TASK + "pidts: {conflict: version}\n", "bad-value", 11, "Add pidts.zone"),
        (ZONE_TASK + "pidts: {zone: a, conflict: version}\n", "bad-value", 11, "Add pidts.target-zone"),
        (ZONE_TASK + "pidts: {zone: a, target-zone: b, conflict: version}\n", "bad-value", 11, "version-column"),
        (TASK + "pidts: {zone: a, conflict: version}\n", "not-supported", 11, "no program writes"),
        (TASK + "pidts: {zone: a, conflict: owner, version-column: v}\n", "not-supported", 11, "no program writes"),
        ("- a\n- b\n", "wrong-type", 1, "keys and values, not a list"),
        ("", "missing-key", 1, "name"),
    ],
)
def test_a_wrong_value_is_reported_with_its_line(load: Load, text: str, code: str, line: int, said: str) -> None:
    error = refused(load, text)
    assert (error.code, error.where.line) == (code, line)
    assert said in f"{error.what} {error.todo}"
    assert "secret" not in str(error)


@pytest.mark.parametrize(
    "line",
    [
        "remove-meta: true",
        "collation_compatible: strict",
    ],
)
def test_a_dm_key_that_would_change_the_rows_is_refused(load: Load, line: str) -> None:
    error = refused(load, TASK + line + "\n")
    assert (error.code, error.where.line, error.exit_code) == ("not-supported", 11, 2)
    assert error.what.startswith(f"{line.partition(':')[0]}: PiDTS does not support this value of the DM setting: ")


@pytest.mark.parametrize("where", ["host: 127.0.0.1, port: 5433", "host: 127.0.0.1, port: 3307"])
def test_the_block_for_tls_is_read_or_refused(load: Load, where: str, tmp_path: Path) -> None:
    (tmp_path / "ca.pem").touch()

    def with_block(block: str) -> str:
        return replaced(where, f"{where}, security: {block}")

    config = load(with_block("{ssl-ca: ca.pem}"))
    source = config.source.server
    found, other = (config.target, source) if "5433" in where else (source, config.target)
    assert found.tls == Tls(Mode.VERIFY_CA, str(tmp_path / "ca.pem"))
    assert other.tls == Tls(Mode.PREFERRED)
    assert load(with_block("{ssl-mode: VERIFY_IDENTITY}")).notes == ()
    assert load(with_block("{}")).source.server.tls == Tls()
    for block, code in (
        ("{ssl-ca: x.pem}", "tls-files"),
        ("{ssl-mode: maybe}", "bad-value"),
        ("{ssl-mode: required, ssl-ca: ca.pem}", "bad-value"),
        ("{ssl-key: ca.pem}", "bad-value"),
        ("{cert-allowed-cn: [a]}", "not-supported"),
        ("{ssl-ca-bytes: aGVsbG8=}", "not-supported"),
        ("{ssl-cipher: x}", "unknown-key"),
    ):
        assert refused(load, with_block(block)).code == code


def test_postgresql_has_no_way_to_trust_the_system_s_authorities_for_any_host(load: Load) -> None:
    error = refused(load, replaced("port: 5433", "port: 5433, security: {ssl-mode: verify_ca}"))
    assert (error.code, error.where.line) == ("missing-key", 3)


def test_dm_s_encrypted_passwords_are_refused_where_they_are_written(load: Load) -> None:
    encrypted = "MDEyMzQ1Njc4OWFiY2RlZkBzZWNyZXQ="
    for old, key in (('"${MYSQL_PWD}"', 7), ('"${PGPASSWORD}"', 3)):
        error = refused(load, replaced(old, encrypted))
        assert error.code == "encrypted-password"
        assert encrypted not in str(error)
        assert "password-file" in error.todo
        assert error.where.line in {key, 6}
    assert load(replaced('"${MYSQL_PWD}"', "aGVsbG8gd29ybGQgaGVsbG8gd29ybGQ=")).source.server.password


def test_a_password_file_that_others_can_read_is_noted(load: Load, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("pw\n")
    text = replaced('password: "${MYSQL_PWD}"', "password-file: secret")
    for mode, notes in ((0o600, 0), (0o644, 1), (0o640, 1)):
        secret.chmod(mode)
        config = load(text)
        assert (config.source.server.password, len(config.notes)) == ("pw", notes)
        assert all("chmod 600" in note for note in config.notes)


def test_values_that_ask_for_what_happens_anyway_pass_without_a_note(load: Load) -> None:
    config = load(
        TASK
        + dedent("""\
        is-sharding: false
        shard-mode: ""
        routes: {}
        filters:
        expression-filter: {}
        timezone: '+00:00'
        online-ddl: false
        remove-meta: false
        """)
    )
    assert config.notes == ()


def test_keys_without_an_effect_are_noted_with_their_line(load: Load) -> None:
    text = replaced(
        "{worker-count: 4}",
        "{worker-count: 4, batch: 100, queue-size: 1024, checkpoint-flush-interval: 30, compact: false, "
        "multiple-rows: false, safe-mode-duration: 60s, max-retry: 3}",
    )
    text += dedent("""\
    timezone: Asia/Shanghai
    meta-schema: dm_meta
    clean-dump-file: true
    """)
    noted = [re.match(r"task\.yaml:(\d+): ([\w.-]+): \S", note) for note in load(text).notes]
    assert [(match[1], match[2].rpartition(".")[2]) for match in noted if match] == [
        ("10", "compact"),
        ("10", "multiple-rows"),
        ("10", "checkpoint-flush-interval"),
        ("10", "safe-mode-duration"),
        ("10", "max-retry"),
        ("11", "timezone"),
        ("13", "clean-dump-file"),
    ]


def test_how_rows_are_written(load: Load) -> None:
    plain = load(TASK)
    assert (plain.safe_mode, plain.version_column, plain.split_transactions) == (False, "", None)
    text = replaced("worker-count: 4", "worker-count: 4, safe-mode: true")
    config = load(text + "pidts: {version-column: update_time, split-transactions: 5000}\n")
    assert (config.safe_mode, config.version_column, config.split_transactions) == (True, "update_time", 5000)


def test_rows_are_locked_besides_a_version_column_and_a_zone_without_a_log(load: Load) -> None:
    """The file of the fixed interface, whose target is a PostgreSQL, has all of these keys."""
    keys = "zone: 1, version-column: update_time, on-divergence: lock, conflict: version"
    config = load(TASK + f"pidts: {{{keys}}}\n")
    assert (config.zone, config.version_column, config.on_divergence) == ("1", "update_time", "lock")
    assert not config.zones.converges
    assert [note.split(": ")[1] for note in config.notes if "conflict" in note] == ["pidts.conflict"]


def test_a_path_may_be_a_url_of_this_machine(load: Load) -> None:
    config = load(ICEBERG_TASK.replace("/lake", "file:///srv/the%20lake") + "pidts: {relay: file:///srv/relay}\n")
    assert (config.target.warehouse, config.relay) == ("/srv/the lake", Path("/srv/relay"))
    assert refused(load, ICEBERG_TASK.replace("/lake", "s3://bucket/lake")).code == "not-supported"


def test_checks_may_be_ignored_by_name(load: Load) -> None:
    assert load(TASK + "ignore-checking-items: [foreign_key, table_schema]\n").ignored_checks == (
        "foreign_key",
        "table_schema",
    )
    error = refused(load, TASK + "ignore-checking-items:\n  - foreign_keys\n")
    assert (error.where.line, error.todo) == (12, "Did you mean 'foreign_key'?")


@pytest.mark.parametrize(
    "options", ["--statement-size=1000000", "-s 1000000 --consistency=auto", "-t8 -F 64MB", '--params "tidb=1"']
)
def test_options_that_say_how_a_dump_is_made_are_noted(load: Load, options: str) -> None:
    used = replaced("syncer-config-name: global", "syncer-config-name: global\n    mydumper-config-name: d")
    (note,) = load(used + f"mydumpers: {{d: {{extra-args: '{options}'}}}}\n").notes
    assert "mydumpers.d.extra-args: no effect" in note


@pytest.mark.parametrize("options", ["--where=id>5", "-f '*.t' -s 9", "--statement-size=1 --no-data", "-T a.b", "t"])
def test_options_that_may_choose_what_is_dumped_are_refused(load: Load, options: str) -> None:
    used = replaced("syncer-config-name: global", "syncer-config-name: global\n    mydumper-config-name: d")
    assert refused(load, used + f'mydumpers: {{d: {{extra-args: "{options}"}}}}\n').code == "not-supported"


def test_an_old_name_that_is_empty_says_nothing(load: Load) -> None:
    plain = load(TASK)
    for text in (
        TASK + "black-white-list: {}\n",
        replaced("    block-allow-list: shop", "    block-allow-list: shop\n    black-white-list: ''"),
        TASK.replace("block-allow-list", "black-white-list") + "block-allow-list: {}\n",
    ):
        assert load(text).allow == plain.allow, text


def test_a_filter_with_a_short_event_name_has_no_effect_as_in_dm(load: Load) -> None:
    used = replaced("    block-allow-list", "    filter-rules: [f]\n    block-allow-list")
    config = load(used + "filters: {f: {schema-pattern: a, events: [insert, truncate], action: Ignore}}\n")
    assert config.rules.events.rules == ()
    (note,) = config.notes
    assert "leaves out the whole rule" in note
    assert note.endswith("write 'truncate table'")
    assert (
        refused(load, used + "filters: {f: {schema-pattern: a, events: [truncat], action: Do}}\n").code == "bad-event"
    )


def test_settings_that_no_part_uses_are_refused_as_in_dm(load: Load) -> None:
    error = refused(load, replaced("{global:", "{spare: {worker-count: 2}, global:"))
    assert (error.code, error.where.line) == ("unused-name", 10)
    assert "syncers.spare" in error.what
    notes = load(replaced("{shop: {do", "{spare: {do-dbs: [x]}, shop: {do")).notes
    assert notes == ("task.yaml:9: block-allow-list.spare: no effect: no instance uses it",), "DM takes that"


def test_an_instances_own_values_go_before_the_named_ones(load: Load) -> None:
    own = replaced("    syncer-config-name: global", "    syncer-config-name: global\n    syncer: {worker-count: 2}")
    assert load(own).workers == 2
    assert (
        load(replaced("    syncer-config-name: global", "    syncer-config-name: global\n    syncer-thread: 8")).workers
        == 8
    )
    without = replaced("    syncer-config-name: global\n", "").replace("syncers:", "mydumpers: {}\nloaders: {} # ")
    assert load(without).workers == 1


def test_options_of_the_dump_that_may_choose_rows_are_refused(load: Load) -> None:
    used = replaced("    syncer-config-name", "    mydumper-config-name: d\n    syncer-config-name")
    assert load(used + "mydumpers: {d: {threads: 4, extra-args: '--consistency none'}}\n").notes == ()
    error = refused(load, used + "mydumpers:\n  d:\n    extra-args: '--where id>5'\n")
    assert (error.code, error.where.line) == ("not-supported", 14)


@pytest.mark.parametrize(
    ("instance", "blocks", "threads"),
    [
        ([], "", 4),
        (["mydumper-config-name: d"], "mydumpers: {d: {threads: 2}}", 2),
        (["loader: {pool-size: 16}"], "", 16),
        (["mydumper: {threads: 8}", "loader: {pool-size: 3}"], "", 3),
        (["mydumper: {threads: 8}", "mydumper-thread: 6"], "", 6),
    ],
)
def test_a_copy_has_the_fewer_of_the_dumps_and_the_loaders_threads(
    load: Load, instance: list[str], blocks: str, threads: int
) -> None:
    lines = "".join(f"    {line}\n" for line in instance)
    text = replaced("    syncer-config-name", f"{lines}    syncer-config-name") + blocks + "\n"
    assert load(text).limits.threads == threads


def test_a_copy_may_be_slowed_down(load: Load) -> None:
    assert load(TASK).limits.rate is None
    assert load(TASK + "pidts: {copy-rate: 5000}\n").limits.rate == 5000


def test_the_source_is_written_to_only_where_a_heartbeat_is_asked_for(load: Load) -> None:
    assert load(TASK).heartbeat == 0
    assert load(TASK + "pidts: {heartbeat: 250ms}\n").heartbeat == 0.25
    for wrong in ("often", "50ms", "2m", "-1s"):
        assert refused(load, TASK + f"pidts: {{heartbeat: {wrong}}}\n").code == "bad-value"


def test_a_validator_is_refused_unless_it_does_nothing(load: Load) -> None:
    used = replaced("    syncer-config-name", "    validator-config-name: v\n    syncer-config-name")
    assert load(used + "validators: {v: {mode: none}}\n").notes == ()
    assert refused(load, used + "validators: {v: {mode: full}}\n").code == "not-supported"


@pytest.mark.parametrize(
    ("meta", "start"),
    [
        ("{binlog-name: bin.000042, binlog-pos: 1337}", Position("bin.000042", 1337)),
        ("{binlog-name: bin.000042}", Position("bin.000042", 4)),
        ("{binlog-gtid: 0-1-42}", "0-1-42"),
        ("{binlog-name: bin.000042, binlog-pos: 4, binlog-gtid: 0-1-42}", Position("bin.000042", 4)),
        ("{}", None),
    ],
)
def test_meta_says_where_an_incremental_task_begins(load: Load, meta: str, start: Position | str | None) -> None:
    text = replaced("    block-allow-list: shop", f"    meta: {meta}\n    block-allow-list: shop")
    config = load(text.replace("task-mode: all", "task-mode: incremental"))
    assert (config.source.start, config.notes) == (start, ())


def test_meta_prefers_the_gtid_of_a_source_that_uses_them(load: Load) -> None:
    text = replaced(
        "    block-allow-list: shop", "    meta: {binlog-name: b.1, binlog-gtid: 0-1-42}\n    enable-gtid: true"
    )
    source = load(text.replace("task-mode: all", "task-mode: incremental")).source
    assert (source.start, source.use_gtid) == ("0-1-42", True)


@pytest.mark.parametrize("meta", ["{binlog-pos: 4}", "{binlog-name: bin}", "{binlog-gtid: x}", "{binlog-nam: x}"])
def test_meta_that_names_no_place_is_refused(load: Load, meta: str) -> None:
    assert refused(load, replaced("    block-allow-list: shop", f"    meta: {meta}")).where.line == 7


def test_meta_of_a_full_copy_is_noted(load: Load) -> None:
    notes = load(
        replaced("    block-allow-list: shop", "    meta: {binlog-name: bin.000042}\n    block-allow-list: shop")
    ).notes
    assert notes == (
        "task.yaml:7: mysql-instances[0].meta: no effect: with task-mode 'all' the log is read from where the copy begins",
    )


def test_a_password_may_be_in_a_file_or_look_like_a_number(load: Load) -> None:
    assert (
        load(replaced('password: "${PGPASSWORD}"', "password-file: pw.txt"), pw_txt="two words\n").target.password
        == "two words"
    )
    assert load(replaced('password: "${PGPASSWORD}"', "password: 0123")).target.password == "0123"
    assert load(replaced('password: "${PGPASSWORD}"', 'password: "a$${b}$c"')).target.password == "a${b}$c"


def test_a_port_may_come_from_the_environment(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SECRETS, "PORT", "5499")
    assert load(replaced("port: 5433", 'port: "${PORT}"')).target.port == 5499
    monkeypatch.setitem(SECRETS, "PORT", "x")
    assert refused(load, replaced("port: 5433", 'port: "${PORT}"')).code == "wrong-type"


BY_FILE = re.sub(r"    from: .*\n", "", TASK)
SOURCE_FILE = """\
    source-id: shop-1
    enable-gtid: true
    case-sensitive: true
    server-id: 4242
    from:
      host: db.example
      user: repl
      password: "${MYSQL_PWD}"
    """


def test_a_source_may_be_in_dms_source_file_beside_the_task(load: Load) -> None:
    config = load(BY_FILE, shop_yaml=SOURCE_FILE, other_yml="source-id: shop-2\n", broken_yaml="a: [")
    source = config.source
    assert (source.server.host, source.server.port, source.server.password) == ("db.example", 3306, "my-secret")
    assert (source.use_gtid, source.server.server_id, config.allow.case_sensitive) == (True, 4242, True)


def test_a_source_file_is_read_as_strictly(load: Load) -> None:
    for line, code in (
        ("enable-relay: false", None),
        ("filters: [x]", "wrong-type"),
        ("enable-gtdi: true", "unknown-key"),
    ):
        files = {"shop_yaml": dedent(SOURCE_FILE) + line}
        if code is None:
            assert load(BY_FILE, **files).notes[0].startswith("shop.yaml:9: source shop-1.enable-relay: no effect")
            continue
        with pytest.raises(ConfigError) as caught:
            load(BY_FILE, **files)
        assert (caught.value.code, caught.value.where.line) == (code, 9)
        assert caught.value.where.file.endswith("shop.yaml")


def test_a_source_that_no_file_describes_is_reported_with_the_way_out(load: Load) -> None:
    error = refused(load, BY_FILE)
    assert (error.code, error.where.line) == ("unknown-name", 5)
    assert "from:" in error.todo


def test_two_files_for_one_source_are_refused(load: Load) -> None:
    with pytest.raises(ConfigError, match="several files") as caught:
        load(BY_FILE, a_yaml=SOURCE_FILE, b_yaml=SOURCE_FILE)
    assert caught.value.code == "ambiguous-name"


def test_a_task_file_that_is_not_there_is_an_error_of_the_user(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load_task(tmp_path / "absent.yaml")
    assert (caught.value.code, caught.value.exit_code) == ("unreadable-file", 2)


def test_versions_decide_between_zones(load: Load) -> None:
    """Rows of tables without a version are locked, and the session locks the gaps between keys."""
    ours = "pidts: {zone: a, target-zone: b, version-column: v, conflict: version}\n"
    config = load(ZONE_TASK + ours)
    assert (config.zones.converges, config.returns_to, config.target.locks_gaps) == (True, "b", True)
    assert (config.version_column, config.on_divergence) == ("v", OnDivergence.LOCK)
    guarded = load(ZONE_TASK + ours.replace("version}", "lock}"))
    assert (guarded.returns_to, guarded.target.locks_gaps) == ("", False)
    assert guarded.on_divergence is OnDivergence.OVERWRITE
    filtered = ZONE_TASK.replace("    syncer", "    filter-rules: [f]\n    syncer")
    with pytest.raises(ConfigError, match="cannot become equal"):
        load(filtered + "filters: {f: {schema-pattern: s, events: [delete], action: Ignore}}\n" + ours)


def test_owners_decide_between_zones(load: Load) -> None:
    config = load(OWNED)
    assert config.on_divergence is OnDivergence.LOCK
    assert config.zones.owners.text() == "shop.orders where id < 5: a; shop.orders: b"
    filtered = OWNED.replace("    syncer", "    filter-rules: [f]\n    syncer")
    with pytest.raises(ConfigError, match="cannot become equal"):
        load(filtered + "filters: {f: {schema-pattern: s, events: [delete], action: Ignore}}\n")


def test_a_zone_is_that_of_the_source(load: Load) -> None:
    """No changes return from a PostgreSQL, so a task from a zone to it has no restrictions."""
    merged = TASK + "shard-mode: optimistic\npidts: {zone: 1}\n"
    assert load(merged).on_divergence is OnDivergence.OVERWRITE
    leaf = load(TASK + "pidts: {zone: 1}\n")
    assert (leaf.zone, leaf.is_between_zones, leaf.on_divergence) == ("1", False, OnDivergence.LOCK)
    to_mysql = merged.replace("type: postgresql", "type: mysql").replace(", database: shop", "")
    error = refused(load, to_mysql)
    assert (error.code, error.where.line) == ("not-supported", 11)
    assert "merged tables cannot be carried back" in str(error)
    between = load(to_mysql.replace("shard-mode: optimistic\n", ""))
    assert (between.is_between_zones, between.target.zone) == (True, "1")
    assert (between.zones, between.limits.one_origin) == (ZoneSpec("1"), False)


def test_a_task_says_whose_changes_it_carries_on(load: Load) -> None:
    config = load(ZONE_TASK + "pidts: {zone: 1, target-zone: 2, forward: [3, c, 3]}\n")
    assert config.zones == ZoneSpec("1", "2", ("3", "c"))
    assert (config.target.server.zone, config.target.server.forwards) == ("1", ("3", "c"))
    assert config.limits.one_origin
