"""Reads a task file, DM's YAML with the block `pidts`, strictly into immutable values.

Each of the file's `mysql-instances` is a *part* of the task: a whole configuration with one source, its own rules and
its own settings. All records of a task, on the target and in the relay, are separate for each part.

Every key has an effect, or is refused with its line, or a note says that it has no effect (`TaskConfig.notes`).
`dm_keys` lists DM's keys that PiDTS does not use. Secrets come from `${NAME}` or a `password-file`, and are never part
of a message.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, get_args

from pidts.bounded_file import read_small
from pidts.model import ConfigError, OnDivergence, Where
from pidts.model.similar_names import suggestion
from pidts.model.type_map import TypeChoice, TypeMap
from pidts.plan import Limits
from pidts.rules import SYSTEM_SCHEMAS, AllowList, Rules
from pidts.schema.online.names import OnlineDdl
from pidts.task.config import dm_keys
from pidts.task.config.alerts import AlertReceiver, read_alerts
from pidts.task.config.channel import demand_channel
from pidts.task.config.current_server import with_current_server
from pidts.task.config.dm_units import read_copy_threads, read_syncing, read_validators
from pidts.task.config.duration import parse_duration, parse_go_duration
from pidts.task.config.mistakes import all_mistakes, mistake
from pidts.task.config.relay_origin import RelayOrigin, read_relay_origin
from pidts.task.config.rules import RuleName, read_online, read_rules
from pidts.task.config.section import LOCAL_URL, Document, Section, in_order
from pidts.task.config.servers import (
    META_SCHEMA,
    USUAL_META_SCHEMA,
    SourceSpec,
    TargetSpec,
    directory_name,
    read_source,
    read_target,
)
from pidts.task.config.yaml_lines import Item, read_yaml
from pidts.task.config.zone import ZoneSpec, demand_one_zone, read_zone
from pidts.task.config.zones_file import Direction, as_task, has_zones, read_directions, split_path

__all__ = [
    "Mode",
    "ShardMode",
    "SourceSpec",
    "TargetSpec",
    "TaskConfig",
    "load_directions",
    "load_part",
    "load_parts",
    "load_task",
]

Mode = Literal["full", "incremental", "all"]
ShardMode = Literal["", "pessimistic", "optimistic"]
"""How schema changes of merged tables are coordinated; empty if the file chooses no mode."""

_SHORTEST_HEARTBEAT, _LONGEST_HEARTBEAT = 0.1, 60.0

SPARK_MASTER = "local[*,4]"
"""The default of `pidts.spark.master`: Spark uses all cores, and tries each Spark task up to four times.

With `local[*]`, Spark would try each task once.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskConfig:
    """The configuration of a task with one source, or of one part of a task with several sources."""

    name: str
    mode: Mode
    shard_mode: ShardMode
    source: SourceSpec
    target: TargetSpec
    rules: Rules
    rule_names: tuple[RuleName, ...]
    """The names that the task file gives to the rules in use."""
    online: OnlineDdl | None
    """The rules for tables of gh-ost and pt-online-schema-change; None if the task treats them as ordinary tables."""
    workers: int
    """The number of connections that write in parallel. With one, each state of the target is one of the source."""
    limits: Limits
    """The limits of a batch, and of the rows that the copy reads for it."""
    safe_mode: bool
    """Whether safe mode is on: a written row replaces all rows that collide with it, even rows with another key."""
    safe_start: bool
    """Whether changes that the target may already have at the first start are written in safe mode in any case."""
    version_column: str
    """The column that shows whether an event is older than the target's row; empty if there is none."""
    on_divergence: OnDivergence
    """The action if a target row differs from the source's row before a change."""
    lock_limit: int
    """The largest number of locked rows of one table."""
    alerts: AlertReceiver | None
    """The program or address that gets alerts; None if there is none."""
    zones: ZoneSpec
    """The zones of source and target. Without zones, no task may carry changes in the opposite direction."""
    counters_ahead: bool
    """Whether a PostgreSQL target's sequences are kept above the rows' AUTO_INCREMENT values while the task runs."""
    split_transactions: int | None
    """A transaction with more changes than this is written in several commits; None: always in a single commit."""
    relay: Path
    """The relay's folder, as an absolute path."""
    relay_from: RelayOrigin | None
    """The relay server whose relay is copied into `relay`; None: a replicator receives the log here."""
    relay_keep: int
    """The relay keeps received log for this many seconds after the target has it."""
    hive_refresh: float
    """Seconds between two publications of a warehouse's tables to a Hive metastore."""
    hive_keep_changes: int
    """The age in seconds at which a day's partition of a change table is removed; 0: never."""
    heartbeat: float
    """The interval in seconds at which PiDTS writes a row to the source, to measure the lag; 0: never."""
    retention: int
    """The age in seconds at which a datacenter's records may be removed; 0: never."""
    spark_master: str
    spark_conf: Mapping[str, str] = field(repr=False)
    """Spark's settings, which may contain secrets."""
    direct_rows: int
    """The largest number of rows of a batch that the driver applies without a Spark job."""
    ignored_checks: tuple[str, ...]
    """The names of prechecks that may fail; `all` stands for all prechecks."""
    notes: tuple[str, ...]
    """Notes on keys that do not have the effect that they have in DM, each with its file and line."""
    path: Path

    @property
    def shell_path(self) -> str:
        """The path of the task file as one word of a shell, for the commands in messages."""
        return shlex.quote(str(self.path))

    def run_command(self, options: str = "") -> str:
        """Returns the command that runs the task, in both forms, with and without a service. Messages contain it."""
        return f"pidts run {self.shell_path}{options} (with a service: `pidts start`, not `pidts run`)"

    @property
    def allow(self) -> AllowList:
        """The list of the tables that the task takes."""
        return self.rules.allow

    @property
    def is_between_zones(self) -> bool:
        """Whether the target may also be a zone: a server from whose log changes can come back."""
        return bool(self.zones.name) and self.target.type == "mysql"

    @property
    def into_zone(self) -> str | None:
        """The zone of the target, as in `pidts.apply.apply_rules`; None: the target is not a zone."""
        return self.zones.target if self.is_between_zones else None

    @property
    def zone(self) -> str:
        """The zone of the source; empty if the file names none."""
        return self.zones.name

    @property
    def returns_to(self) -> str:
        """The target's zone if versions decide between zones, otherwise an empty text.

        If a DELETE from this zone removes a row in the source's zone, the task carries the removal back
        (`pidts.apply.rows.convergence`).
        """
        return self.zones.target if self.zones.converges else ""

    @property
    def reads_notes(self) -> bool:
        """Whether the task reads the notes of other tasks in its source's log (`pidts.apply.locks.zone_notes`)."""
        locks = self.on_divergence is OnDivergence.LOCK
        return locks and self.is_between_zones and not self.zones.forwards

    @property
    def heartbeat_schema(self) -> str:
        """The schema on the source with the heartbeat's table; no task carries this schema."""
        return USUAL_META_SCHEMA if self.target.is_datacenter else self.target.meta_schema

    @property
    def marks_in(self) -> str:
        """The meta schema whose tables mark zones' transactions in the source's log; empty if no marks are read."""
        return self.target.meta_schema if self.is_between_zones else ""


def load_parts(path: Path, environ: Mapping[str, str] | None = None) -> tuple[TaskConfig, ...]:
    """Reads a task file, with its source files and password files, and returns a part for each source.

    If the file has several directions between zones, the path names one of them.
    """
    return read_parts(path, os.environ if environ is None else environ)[0]


def load_task(path: Path, environ: Mapping[str, str] | None = None) -> TaskConfig:
    """Returns the only part of a task with one source."""
    parts = load_parts(path, environ)
    if len(parts) > 1:
        names = ", ".join(part.source.source_id for part in parts)
        what = f"the task has {len(parts)} sources ({names}), and this command is for one source"
        raise ConfigError(
            "several-sources",
            what,
            where=Where(file=str(path)),
            todo="Write a task file that has only the source that you mean",
        )
    return parts[0]


def load_part(path: Path, source_id: str) -> TaskConfig:
    """Returns the part of the task for this source."""
    parts = load_parts(path)
    for part in parts:
        if part.source.source_id == source_id:
            return part
    todo = suggestion(source_id, [part.source.source_id for part in parts])
    what = f"mysql-instances has no source-id {source_id!r}"
    raise ConfigError("unknown-name", what, where=Where(file=str(path)), todo=todo)


@all_mistakes
def read_parts(path: Path, environ: Mapping[str, str]) -> tuple[tuple[TaskConfig, ...], Sequence[Section]]:
    """Returns all parts, and the outermost sections of the files that were read, beginning with the task file."""
    file, direction = split_path(path)
    notes: list[str] = []
    document = Document(file, environ, notes)
    root = _root(file)
    if direction or has_zones(root):
        root = as_task(root, document, direction)
    task = Section(root, document)
    task.document.roots.append(task)
    name = directory_name(task, "name")
    mode = task.choice("task-mode", get_args(Mode), later=("dump", "load", "load&sync"))
    target = read_target(task.required_section("target-database"), _meta_schema(task))
    shard_mode = _shard_mode(task)
    instances = _instances(task)
    parts: dict[str, TaskConfig] = {}
    for instance in instances:
        part = _part(task, instance, instances, name=name, mode=mode, target=target, shard_mode=shard_mode)
        if part.source.source_id in parts:
            what = f"{part.source.source_id!r} is the source of two instances"
            raise instance.error("source-id", "duplicate-key", what, "One instance can name all rules of its source.")
        parts[part.source.source_id] = part
    task.finish(dm_keys.TASK)
    # A note about a key of the whole task occurs once for each part. `in_order` drops the repetitions.
    ordered = in_order(notes)
    return tuple(replace(part, notes=ordered, path=path.absolute()) for part in parts.values()), task.document.roots


@all_mistakes
def load_directions(path: Path, environ: Mapping[str, str] | None = None) -> tuple[Direction, ...]:
    """Returns the directions of a file with several zones; none for another file, or for a path with a direction."""
    file, direction = split_path(path)
    root = _root(file)
    if direction or not has_zones(root):
        return ()
    return read_directions(Section(root, Document(file, os.environ if environ is None else environ, [])))


def _root(path: Path) -> Item:
    try:
        text = read_small(path)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ConfigError(
            "unreadable-file",
            f"the task file cannot be read: {reason}",
            where=Where(file=str(path)),
            todo="Check the path, and who may read the file",
        ) from None
    return read_yaml(text, path)


def _part(
    task: Section,
    instance: Section,
    instances: Sequence[Section],
    *,
    name: str,
    mode: str,
    target: TargetSpec,
    shard_mode: ShardMode,
) -> TaskConfig:
    source, source_is_case_sensitive, filters = read_source(instance)
    if source.start is not None and mode != "incremental":
        instance.note("meta", f"no effect: with task-mode {mode!r} the log is read from where the copy begins")
    case_sensitive = task.flag("case-sensitive", default=False) or source_is_case_sensitive
    online = read_online(task, case_sensitive=case_sensitive)
    rules, rule_names = read_rules(
        task,
        instance,
        filters,
        instances=instances,
        source_id=source.source_id,
        case_sensitive=case_sensitive,
        online=online,
        own_schema="" if target.meta_schema == USUAL_META_SCHEMA else target.meta_schema,
        prints_moments=target.is_datacenter,
    )
    syncing = read_syncing(task, instance, instances)
    copy_threads = read_copy_threads(task, instance, instances)
    read_validators(task, instance, instances)
    instance.finish()
    ours = task.section("pidts")
    spark = ours.section("spark")
    relay = _relay(ours, name)
    zones = read_zone(ours, into_mysql=target.type == "mysql")
    if zones.name and target.warehouse:
        what = "no program writes to a warehouse of Iceberg tables, so it takes no part in zones"
        raise ours.error("zone", "not-supported", what, "Remove pidts.zone and pidts.target-zone.")
    zones = replace(zones, owners=replace(zones.owners, time_zone=rules.expressions.time_zone))
    if target.type == "mysql":
        target = replace(target, zone=zones.name, forwards=zones.forwards, locks_gaps=zones.converges)
    refresh, keep_changes, keeps_changes = _hive(ours, target)
    target = replace(target, types=_types(ours, target), keeps_changes=keeps_changes)
    config = TaskConfig(
        name=name,
        mode=mode,  # type: ignore[arg-type]  # `choice` lets only these pass
        shard_mode=shard_mode,
        source=with_current_server(source, relay),
        target=target,
        rules=rules,
        rule_names=rule_names,
        online=online,
        workers=_workers(ours, syncing.workers, zones),
        limits=Limits(
            row_events=syncing.batch_rows,
            bytes=syncing.batch_bytes,
            chunk_rows=ours.integer("chunk-rows", 20_000, minimum=1),
            threads=copy_threads,
            rate=ours.integer("copy-rate", 0) or None,
            one_origin=bool(zones.forwards),
        ),
        safe_mode=syncing.safe_mode,
        safe_start=syncing.safe_start,
        version_column=ours.text("version-column", ""),
        on_divergence=_on_divergence(ours, shard_mode, zones),
        lock_limit=ours.integer("lock-limit", 1000, minimum=1),
        alerts=read_alerts(ours.section("alerts")),
        zones=zones,
        counters_ahead=_counters_ahead(ours, target),
        split_transactions=_split_transactions(ours, target),
        relay=relay,
        relay_from=read_relay_origin(ours.section("relay-from")),
        relay_keep=_duration(ours, "relay-keep"),
        heartbeat=_heartbeat(ours),
        hive_refresh=refresh,
        hive_keep_changes=keep_changes,
        retention=_duration(ours, "retention"),
        spark_master=spark.text("master", SPARK_MASTER),
        spark_conf=_all_texts(spark.section("conf")),
        direct_rows=spark.integer("direct-rows", 100_000),
        ignored_checks=_ignored_checks(task),
        notes=(),
        path=task.document.file.absolute(),
    )
    if config.is_between_zones:
        demand_one_zone(task, instances, config)
    if target.is_datacenter:
        demand_channel(task, instances, config)
    elif config.retention:
        raise ours.error(
            "retention", "not-supported", "only a datacenter has records that may be removed", "Remove it."
        )
    spark.finish()
    ours.finish()
    return config


def _workers(ours: Section, asked: int, zones: ZoneSpec) -> int:
    """Returns the number of workers: one if versions decide between zones, otherwise `asked`.

    If versions decide, workers lock the gaps between keys. New rows of all workers go into the same gap, at the end of
    the table. So workers run into deadlocks, and repeat their transactions: two workers that add rows are slower than
    one, and eight are even slower.
    """
    if zones.converges and asked > 1:
        ours.note(
            "conflict", f"one worker writes, and not {asked}: several workers would wait for each other's new rows"
        )
        return 1
    return asked


def _on_divergence(ours: Section, shard_mode: ShardMode, zones: ZoneSpec) -> OnDivergence:
    """Reads `pidts.on-divergence`.

    Between zones, the default is `lock`. A row that differs was usually written in both zones, and without the lock one
    of the two writes would be overwritten. With a version column, only rows of tables without this column are locked
    (`ApplyRules.compares`). Rows of merged tables without this column cannot be locked (`pidts.task.checks.shards`).
    """
    has_versions = bool(ours.text("version-column", "")) and not zones.converges
    locks = zones.name and not has_versions and not shard_mode
    usual = OnDivergence.LOCK if locks else OnDivergence.OVERWRITE
    return OnDivergence(ours.choice("on-divergence", tuple(OnDivergence), usual))


def _instances(task: Section) -> Sequence[Section]:
    instances = task.sections("mysql-instances")
    if not instances:
        raise task.error("mysql-instances", "missing-key", "a task needs a source")
    return instances


def _shard_mode(task: Section) -> ShardMode:
    """Reads the shard mode. As in DM, `is-sharding` without `shard-mode` means the pessimistic mode."""
    mode = task.choice("shard-mode", get_args(ShardMode), "")
    if task.flag("is-sharding", default=False):
        mode = mode or "pessimistic"
    strict = "strict-optimistic-shard-mode"
    if task.flag(strict, default=False):
        if mode != "optimistic":
            raise task.error(strict, "bad-value", "it is only for shard-mode: optimistic", "Remove one of them.")
        task.note(strict, "no effect: a change that does not fit the structures of other tables always waits for them")
    return mode  # type: ignore[return-value]  # `choice` lets only these pass


def _meta_schema(task: Section) -> str:
    """Reads the name of the target's schema that contains the task's own tables."""
    key = "meta-schema"
    name = task.text(key, "") or USUAL_META_SCHEMA
    if not META_SCHEMA.fullmatch(name) or name.lower() in SYSTEM_SCHEMAS - {USUAL_META_SCHEMA}:
        what = f"expected the name of a schema in letters, digits and '_', at most 63 of them, not {name!r}"
        raise task.error(key, "bad-value", what)
    return name


def _types(ours: Section, target: TargetSpec) -> TypeMap:
    section, key = ours.section("types"), "zero-dates"
    choices = []
    for name in section.names:
        with section.with_place(name):
            choices.append(TypeChoice.parse(name, section.text(name)))
    found = TypeMap(tuple(choices), ours.choice(key, ("null", "error"), "null") == "error")
    if found != TypeMap() and (choices or not target.warehouse) and target.type != "postgresql":
        used = "types" if choices else key
        what = "types can be chosen for a PostgreSQL target only: other targets have the source's types"
        mistake(ours.error(used, "not-supported", what, "Remove it."))
    return found


def _counters_ahead(ours: Section, target: TargetSpec) -> bool:
    key = "counters-ahead"
    is_asked = ours.flag(key, default=False)
    if is_asked and target.type != "postgresql":
        mistake(
            ours.error(
                key,
                "not-supported",
                "only PostgreSQL needs this key: MySQL and MariaDB raise AUTO_INCREMENT by themselves",
                "Remove it.",
            )
        )
    return is_asked


def _relay(ours: Section, name: str) -> Path:
    relay = ours.text("relay", f"relay/{name}")
    if "://" in relay and not relay.startswith(LOCAL_URL):
        raise ours.error("relay", "not-supported", "only a directory of this machine is supported yet", "Write a path.")
    return Path(os.path.normpath(ours.file("relay", f"relay/{name}")))


def _duration(section: Section, key: str) -> int:
    try:
        return parse_duration(section.text(key, "0"))
    except ValueError as error:
        raise section.error(key, "bad-value", str(error)) from None


def _split_transactions(ours: Section, target: TargetSpec) -> int | None:
    key = "split-transactions"
    if not ours.has(key):
        return None
    if target.type == "hive":
        mistake(ours.error(key, "not-supported", "a published table would show a part of a transaction", "Remove it."))
    return ours.integer(key, 0, minimum=1)


def _hive(ours: Section, target: TargetSpec) -> tuple[float, int, bool]:
    hive = ours.section("hive")
    try:
        found = parse_go_duration(hive.text("refresh", "10m"))
    except ValueError as error:
        raise hive.error("refresh", "bad-value", str(error)) from None
    if found < 1:
        raise hive.error("refresh", "bad-value", "tables are published at most once a second", "Write 10m.")
    changes, keep = hive.flag("changes", default=False), _duration(hive, "keep-changes")
    hive.finish()
    if ours.has("hive") and target.type != "hive":
        mistake(ours.error("hive", "not-supported", "only a target of type hive publishes tables", "Remove it."))
    return found, keep, changes


def _heartbeat(ours: Section) -> float:
    key = "heartbeat"
    try:
        found = parse_go_duration(ours.text(key, "0"))
    except ValueError as error:
        raise ours.error(key, "bad-value", str(error)) from None
    if found and not _SHORTEST_HEARTBEAT <= found <= _LONGEST_HEARTBEAT:
        raise ours.error(key, "bad-value", "expected an interval between 100ms and 60s", "Write 1s, or 0 for none.")
    return found


def _all_texts(section: Section) -> dict[str, str]:
    return {key: section.text(key) for key in section.names}


def _ignored_checks(task: Section) -> tuple[str, ...]:
    key = "ignore-checking-items"
    for name, line in task.texts(key):
        if name not in dm_keys.CHECKS:
            todo = suggestion(name, dm_keys.CHECKS)
            raise task.document.error(line, "unknown-name", f"{key}: there is no check {name!r}", todo)
    return tuple(name for name, _ in task.texts(key))
