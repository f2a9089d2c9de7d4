"""Writes the task file of the way back: from the new server to the old one, from the moment of the switch on.

The new file exchanges source and target of the task's file, and writes them in the same form: variables stay variables,
and passwords stay where they were. The new file names each table, so that its task carries no other table.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from pidts.apply import TargetSession
from pidts.bounded_file import read_small
from pidts.durable_folder import replace_file
from pidts.model import ConfigError, Cutover, CutoverStage, Position, PrecheckFailed, TableName
from pidts.model.errors import utc_time
from pidts.task.config.task_file import TaskConfig
from pidts.task.draft.task_file import pattern

ENDING = "-back"
_SECRETS = ("password", "password-file")
_OF_BOTH_WAYS = ("on-divergence", "version-column", "alerts")
"""The keys of `pidts` that mean the same in both directions. Others depend on the servers, or on the machine."""
_OF_SOURCE = ("host", "port", "user", *_SECRETS, "security")


def recorded_switch(config: TaskConfig, target: TargetSession) -> Cutover | None:
    """Returns the record of the task's cutover; if the cutover was undone after the switch, the record of that switch.

    Raises if the task has run since the undo. Then the target's log has changes of the application and of the task, and
    the source already has those of the task.
    """
    cutovers = target.meta.cutovers
    record = cutovers.read(config.name) or cutovers.undone(config.name)
    if record is None or not record.undone_epoch:
        return record
    rows = target.meta.checkpoints.read(config.name, config.source.source_id)
    if any(row.epoch > record.undone_epoch for row in rows):
        what = (
            f"there is no way back by a task: the cutover of {utc_time(record.done_at)} was undone, and task "
            f"{config.name} has run since. After the switch ({record.position}), the target's log has changes of the "
            "application and of this task"
        )
        todo = f"To see which rows differ now, run: pidts verify {config.shell_path}"
        raise PrecheckFailed("not-reversible", what, todo=todo)
    return record


def reverse_task(parts: Sequence[TaskConfig], record: Cutover | None, tables: Sequence[TableName]) -> str:
    """Returns the text of the task file; `tables` are the task's tables, with their names on the source."""
    config = parts[0]
    if record is None or record.stage is not CutoverStage.DONE:
        todo = f"Cut over first: pidts cutover {config.shell_path} --yes"
        raise PrecheckFailed("not-cut-over", f"task {config.name} was not cut over", todo=todo)
    if (why := irreversible(parts, tables)) or not record.position:
        what = why or "the target writes no log of its own, or the account could not read where it ended"
        raise PrecheckFailed("not-reversible", f"there is no way back by a task: {what}", todo=_instead(config))
    place = Position.parse(record.position)
    given = yaml.safe_load(read_small(config.path))
    routes = {
        f"back-{number}": {
            "schema-pattern": target.schema,
            "table-pattern": target.name,
            "target-schema": source.schema,
            "target-table": source.name,
        }
        for number, source in enumerate(tables, 1)
        if (target := config.rules.target_name(source)) != source
    }
    meta: dict[str, Any] = {"binlog-name": place.file, "binlog-pos": place.offset}
    back: dict[str, Any] = {
        "name": f"{config.name}{ENDING}",
        "task-mode": "incremental",
        "target-database": {"type": "mysql"} | _some(_source_login(config, given), _OF_SOURCE),
        "mysql-instances": [
            {
                "source-id": "new-server",
                "from": _some(given["target-database"], _OF_SOURCE),
                "meta": meta,
                "block-allow-list": "all",
                **({"enable-gtid": True} if config.source.use_gtid and record.gtid else {}),
                **({"route-rules": list(routes)} if routes else {}),
            }
        ],
        "block-allow-list": {
            "all": {
                "do-tables": [
                    {"db-name": pattern(name.schema), "tbl-name": pattern(name.name)}
                    for name in map(config.rules.target_name, tables)
                ]
            }
        },
        **({"routes": routes} if routes else {}),
        **{key: given[key] for key in ("case-sensitive", "meta-schema") if key in given},
        **({"pidts": ours} if (ours := _some(given.get("pidts") or {}, _OF_BOTH_WAYS)) else {}),
    }
    head = (
        f"# The way back of task {config.name}: from the server that it was cut over to, back to the old one.\n"
        f"# It begins at the moment of the switch: {record.position}"
        + (f" ({record.gtid})" if record.gtid else "")
        + ".\n# Before it runs: the old server has to let its account write, and its triggers and events must be off.\n"
    )
    return head + yaml.safe_dump(back, sort_keys=False, allow_unicode=True)


def reverse_path(config: TaskConfig) -> Path:
    """Returns the path of the file: beside the first task file, so that relative paths have the same meaning."""
    return config.path.with_name(f"{config.path.stem}{ENDING}{config.path.suffix}")


def write_reverse(config: TaskConfig, text: str) -> Path:
    """Writes the file of the way back and returns its path. Raises if the file exists.

    The file is written as a whole or not at all: a part of the text could be a valid file that names only some of the
    tables. An existing file may come from an earlier cutover that was undone. The existing file's task would carry the
    first task's own changes back.
    """
    path = reverse_path(config)
    if path.exists() or path.is_symlink():
        todo = "Remove the file, or use it as it is"
        what = f"{path} exists already"
        if _begin(path) != _begin_of(yaml.safe_load(text)):
            what += ", but its task does not begin at the switch of this cutover"
            todo = "Remove the file, then run this command again"
        raise ConfigError("file-exists", what, todo=todo)
    replace_file(path, text, durable=True)
    return path


def _begin(path: Path) -> object:
    """Returns the place at which the task of an existing file begins; None if the file does not name it."""
    try:
        return _begin_of(yaml.safe_load(read_small(path)))
    except (OSError, UnicodeDecodeError, yaml.YAMLError):
        return None


def _begin_of(task: Any) -> object:
    try:
        meta = task["mysql-instances"][0]["meta"]
        return meta["binlog-name"], meta["binlog-pos"]
    except (KeyError, IndexError, TypeError):
        return None


def irreversible(parts: Sequence[TaskConfig], tables: Sequence[TableName]) -> str:
    """Returns the reason why no task can carry rows back; empty if a task can."""
    config = parts[0]
    if config.target.type != "mysql":
        return f"{config.target.type} is not a source"
    if config.is_between_zones:
        return "the task is between zones, and another task carries the changes of the target's zone"
    if len(parts) > 1:
        return "the task has several sources"
    counts = Counter(map(config.rules.target_name, tables))
    if merged := [name for name, count in counts.items() if count > 1]:
        return f"{merged[0]} is merged from several tables"
    if config.rules.mappings:
        return "column-mappings change values"
    if any(config.rules.routes.destination(name).extracted for name in tables):
        return "routes add columns"
    return ""


def _instead(config: TaskConfig) -> str:
    if config.target.type != "mysql":
        return f"No task can do this: PiDTS reads no changes from {config.target.type}. Stay with the target"
    if config.is_between_zones:
        return "Let that task run: the zones are equal in both directions"
    return "Write a task file for the way back by hand, with a full copy"


def _source_login(config: TaskConfig, given: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns the login of the source's current server as the task file, or a source file beside it, writes it.

    After a failover, this server is one of the standbys. Keys that the standby lacks are taken from `from`.
    """
    described = _source_as_written(config, given)
    login: dict[str, Any] = dict(described["from"])
    source = config.source
    if source.server in source.servers[1:]:
        standby = described["standbys"][source.servers.index(source.server) - 1]
        if not standby.keys().isdisjoint(_SECRETS):
            login = {key: value for key, value in login.items() if key not in _SECRETS}
        login |= standby
    return login


def _source_as_written(config: TaskConfig, given: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns the mapping with the source's key `from`: the instance, or the source file."""
    instance: Mapping[str, Any] = given["mysql-instances"][0]
    if "from" in instance:
        return instance
    for path in sorted(config.path.parent.iterdir()):
        if path.suffix in {".yaml", ".yml"} and path != config.path and path.is_file():
            try:
                found = yaml.safe_load(read_small(path))
            except (OSError, UnicodeDecodeError, yaml.YAMLError):
                continue
            if isinstance(found, dict) and str(found.get("source-id")) == config.source.source_id and "from" in found:
                return found
    raise AssertionError(f"the task file was read, and the source {config.source.source_id} was not found in it")


def _some(login: Mapping[str, Any], keys: Sequence[str]) -> dict[str, Any]:
    return {key: login[key] for key in keys if key in login}
