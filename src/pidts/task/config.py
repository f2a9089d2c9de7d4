"""The task file: DM's YAML and our `pidts` block, read strictly into one immutable value.

Every key is honoured, noted as having no effect (`TaskConfig.notes`), or refused with its line; `config_dm` lists DM's
keys that nothing here reads. Secrets come from `${NAME}` or a `password-file` and are never part of a message.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, get_args

from pidts.model import ConfigError, Where
from pidts.rules import AllowList
from pidts.task import config_dm
from pidts.task.config_section import Document, Section, meant
from pidts.task.config_servers import SourceSpec, TargetSpec, directory_name, read_source, read_target
from pidts.task.duration import parse_duration
from pidts.task.yaml_lines import read_yaml

__all__ = ["Mode", "SourceSpec", "TargetSpec", "TaskConfig", "load_task"]

Mode = Literal["full", "incremental", "all"]

SPARK_MASTER = "local[*,4]"
"""All cores, and a failed Spark task gets four attempts (`local[*]` gives it one)."""


_COPY_THREADS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskConfig:
    """One configured sync."""

    name: str
    mode: Mode
    source: SourceSpec
    target: TargetSpec
    allow: AllowList
    workers: int
    """Target connections that apply in parallel; with one, every state of the target is one that the source had."""
    safe_mode: bool
    """Rows give way to what is written, also where they hold its unique values under another key."""
    version_column: str
    """Name of the column by which an older event is told from a newer row; empty where there is none."""
    split_transactions: int | None
    """Changes after which a large transaction is committed in parts; None: never."""
    zone: int
    relay: Path
    """Absolute."""
    relay_keep: int
    """Seconds that the relay keeps what it has received, though the target has it."""
    spark_master: str
    spark_conf: Mapping[str, str]
    direct_rows: int
    """Batches of at most so many rows are applied by the driver, without a Spark job."""
    chunk_rows: int
    """Rows of a full copy's first chunks; the others are as large as has shown to be right."""
    copy_threads: int
    """Chunks of a full copy that are read and loaded at the same time."""
    copy_rate: int
    """Rows a second that a full copy reads at most; 0: no limit."""
    ignored_checks: tuple[str, ...]
    """Prechecks that may fail; `all` stands for every one."""
    notes: tuple[str, ...]
    """Keys that were accepted without the effect that DM gives them, each with its file and line."""
    path: Path


def load_task(path: Path, environ: Mapping[str, str] | None = None) -> TaskConfig:
    """Read a task file, and the source file and password files that it refers to."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ConfigError(
            "unreadable-file", f"the task file cannot be read: {reason}", where=Where(file=str(path))
        ) from None
    notes: list[str] = []
    task = Section(read_yaml(text, path), Document(path, os.environ if environ is None else environ, notes))
    name = directory_name(task, "name")
    mode = task.choice("task-mode", get_args(Mode), later=("dump", "load", "load&sync"))
    target = read_target(task.required_section("target-database"))
    instance = _only_instance(task)
    source, source_is_case_sensitive = read_source(instance)
    if source.start is not None and mode != "incremental":
        instance.note("meta", f"no effect: with task-mode {mode!r} the log is read from where the copy begins")
    case_sensitive = task.flag("case-sensitive", default=False) or source_is_case_sensitive
    allow = _allow_list(task, instance, case_sensitive=case_sensitive)
    workers, safe_mode = _syncer(task, instance)
    copy_threads = _copy_threads(task, instance)
    for section in _blocks(task, instance, "validator"):
        section.finish(config_dm.VALIDATOR)
    instance.finish(config_dm.INSTANCE)
    ours = task.section("pidts")
    spark = ours.section("spark")
    config = TaskConfig(
        name=name,
        mode=mode,  # type: ignore[arg-type]  # `choice` lets only these pass
        source=source,
        target=target,
        allow=allow,
        workers=workers,
        safe_mode=safe_mode,
        version_column=ours.text("version-column", ""),
        split_transactions=ours.integer("split-transactions", 0, minimum=1) if ours.has("split-transactions") else None,
        zone=ours.integer("zone", 1, maximum=2**31 - 1),
        relay=_relay(ours, path.absolute().parent, name),
        relay_keep=_duration(ours, "relay-keep"),
        spark_master=spark.text("master", SPARK_MASTER),
        spark_conf=_all_texts(spark.section("conf")),
        direct_rows=spark.integer("direct-rows", 100_000),
        chunk_rows=ours.integer("chunk-rows", 20_000, minimum=1),
        copy_threads=copy_threads,
        copy_rate=ours.integer("copy-rate", 0),
        ignored_checks=_ignored_checks(task),
        notes=(),
        path=path.absolute(),
    )
    ours.choice("on-divergence", ("overwrite",), "overwrite", later=("lock", "warn", "halt"))
    spark.finish()
    ours.finish()
    task.finish(config_dm.TASK)
    return replace(config, notes=tuple(notes))


def _only_instance(task: Section) -> Section:
    instances = task.sections("mysql-instances")
    if not instances:
        raise task.error("mysql-instances", "missing-key", "a task needs a source")
    if len(instances) > 1:
        raise instances[1].document.error(
            instances[1].line,
            "not-supported",
            f"mysql-instances names {len(instances)} sources, but merging several is not built yet",
            "Write one task for each source.",
        )
    return instances[0]


def _allow_list(task: Section, instance: Section, *, case_sensitive: bool) -> AllowList:
    lists = _either(task, "block-allow-list", "black-white-list")
    chosen = _either(instance, "block-allow-list", "black-white-list")
    name = instance.text(chosen, "")
    named = task.section(lists)
    if name and not named.has(name):
        raise instance.error(chosen, "unknown-name", f"there is no {name!r} in {lists}", meant(name, named.names))
    allow = AllowList(case_sensitive=case_sensitive)
    for known in named.names:
        section = named.section(known)
        read = AllowList(
            do_dbs=_patterns(section, "do-dbs"),
            ignore_dbs=_patterns(section, "ignore-dbs"),
            do_tables=_table_patterns(section, "do-tables"),
            ignore_tables=_table_patterns(section, "ignore-tables"),
            case_sensitive=case_sensitive,
        )
        section.finish()
        if known == name:
            allow = read
        else:
            named.note(known, "no effect: no instance uses it")
    return allow


def _either(section: Section, key: str, old: str) -> str:
    """Of a key with an old name, the one that is given."""
    if not section.has(old):
        return key
    if section.has(key):
        raise section.error(
            old, "duplicate-key", f"this is the old name of {key}, which is given too", "Keep one of them."
        )
    return old


def _patterns(section: Section, key: str) -> tuple[str, ...]:
    return tuple(_pattern(section, text, line) for text, line in section.texts(key))


def _table_patterns(section: Section, key: str) -> tuple[tuple[str, str], ...]:
    pairs = []
    for entry in section.sections(key):
        names = [_pattern(entry, entry.literal(name), entry.line_of(name)) for name in ("db-name", "tbl-name")]
        entry.finish()
        pairs.append((names[0], names[1]))
    return tuple(pairs)


def _pattern(section: Section, text: str, line: int) -> str:
    try:
        AllowList(do_dbs=(text,))
    except ConfigError as error:
        raise section.document.error(line, error.code, f"{section.path}: {error.what}", error.todo) from None
    return text


def _syncer(task: Section, instance: Section) -> tuple[int, bool]:
    """How many workers there are, and whether they write in safe mode."""
    workers, safe_mode = 1, False
    for section in _blocks(task, instance, "syncer"):
        workers = section.integer("worker-count", workers, minimum=1, maximum=256)
        for key in ("compact", "multiple-rows"):
            if not section.flag(key, default=True):
                section.note(key, "no effect: changes of a row are always compacted, and rows written many at a time")
        safe_mode = section.flag("safe-mode", default=safe_mode)
        section.finish(config_dm.SYNCER)
    return instance.integer("syncer-thread", 0, maximum=256) or workers, safe_mode


def _copy_threads(task: Section, instance: Section) -> int:
    """One task reads a chunk and loads it: of the dump's threads and the loader's, the fewer that are given."""
    given: list[int] = []
    for block, key, own, keys in (
        ("mydumper", "threads", "mydumper-thread", config_dm.DUMPER),
        ("loader", "pool-size", "loader-thread", config_dm.LOADER),
    ):
        threads = 0
        for section in _blocks(task, instance, block):
            threads = section.integer(key, threads, minimum=1, maximum=256)
            section.finish(keys)
        given.append(instance.integer(own, 0, maximum=256) or threads)
    return min(filter(None, given), default=_COPY_THREADS)


def _blocks(task: Section, instance: Section, block: str) -> Iterator[Section]:
    """An instance's settings of one of DM's units: those it names in the file's map, and those written in place."""
    named = task.section(f"{block}s")
    key = f"{block}-config-name"
    name = instance.text(key, "")
    if name and not named.has(name):
        raise instance.error(key, "unknown-name", f"there is no {name!r} in {block}s", meant(name, named.names))
    for known in named.names:
        if known == name:
            yield named.section(known)
        else:
            named.note(known, "no effect: no instance uses it")
    if instance.has(block):
        yield instance.section(block)


def _relay(ours: Section, directory: Path, name: str) -> Path:
    relay = ours.text("relay", f"relay/{name}")
    if "://" in relay:
        raise ours.error("relay", "not-supported", "only a directory of this machine is supported yet", "Write a path.")
    return Path(os.path.normpath(directory / Path(relay).expanduser()))


def _duration(section: Section, key: str) -> int:
    try:
        return parse_duration(section.text(key, "0"))
    except ValueError as error:
        raise section.error(key, "bad-value", str(error)) from None


def _all_texts(section: Section) -> dict[str, str]:
    return {key: section.text(key) for key in section.names}


def _ignored_checks(task: Section) -> tuple[str, ...]:
    key = "ignore-checking-items"
    for name, line in task.texts(key):
        if name not in config_dm.CHECKS:
            todo = meant(name, config_dm.CHECKS)
            raise task.document.error(line, "unknown-name", f"{key}: there is no check {name!r}", todo)
    return tuple(name for name, _ in task.texts(key))
