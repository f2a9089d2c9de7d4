"""Chooses the tables that `--resync` copies again, and the state with which each table's copy begins."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from functools import cache

from pidts.model import ConfigError, Lsn, SourceTablesKey, Table, TableName
from pidts.plan import CopyMode, CopyState
from pidts.rules import AllowList
from pidts.source import Session, connect, read_structures
from pidts.source.structures import table_sizes
from pidts.task.config.task_file import TaskConfig

_MOST_NAMES = 20
"""An error's advice names at most this number of tables."""
Patterns = tuple[str, ...] | None
"""Patterns of tables to copy again; an empty tuple means all tables, None means no table."""


def is_selected(patterns: Patterns, name: TableName) -> bool:
    """Whether these patterns select a table to copy again."""
    return patterns is not None and (not patterns or AllowList.parse(",".join(patterns))(name))


def copy_states(
    source: Session, tables: Mapping[TableName, Table], modes: Mapping[TableName, CopyMode], since: Lsn | None = None
) -> dict[TableName, CopyState]:
    """Returns the copy state of each table of `modes`, with the source's estimate of its rows."""
    sizes = table_sizes(source, modes)
    return {
        name: CopyState(
            mode=mode,
            estimate=sizes[name].rows if name in sizes else 0,
            row_bytes=sizes[name].bytes // max(sizes[name].rows, 1) if name in sizes else 0,
            since=since,
            keyless=not tables[name].identity,
        )
        for name, mode in modes.items()
    }


def resync_of(parts: Sequence[TaskConfig], resync: Patterns) -> Mapping[str, Patterns]:
    """Returns the patterns of `--resync` for each source; None for a source that is not selected.

    A pattern selects matching tables of all sources. `source-id:PATTERN` selects those of one source, and `source-id:`
    all tables of that source. In a task with a single source, no server is queried: the start itself checks whether a
    table matches.
    """
    by_source = {part.source.source_id: part for part in parts}
    if not resync:
        return dict.fromkeys(by_source, resync)
    tables = cache(lambda source: _tables_of(by_source[source]))
    taken: dict[str, Patterns] = dict.fromkeys(by_source)
    for pattern in resync:
        source, colon, rest = pattern.partition(":")
        is_named = bool(colon) and source in by_source
        named, meant = ([source], rest) if is_named else (list(by_source), pattern)
        found = named
        if len(parts) > 1 and meant:
            fits = AllowList.parse(meant)
            found = [one for one in named if any(map(fits, tables(one)))]
        if not found:
            raise no_such_table(pattern, meant, [(part, tables(source)) for source, part in by_source.items()])
        for one in found:
            before = taken[one]
            taken[one] = () if before == () or not meant else (*(before or ()), meant)
    return taken


def no_such_table(written: str, pattern: str, tables: Sequence[tuple[TaskConfig, Iterable[TableName]]]) -> ConfigError:
    """Returns the error for a pattern of `--resync` that selects no table of the sources.

    If the pattern selects tables by their names on the target, the advice has their names on the sources. `written` is
    the pattern as the user has written it.
    """
    selects = AllowList.parse(pattern)
    meant = [
        f"{part.source.source_id}:{name}" if len(tables) > 1 else str(name)
        for part, names in tables
        for name in sorted(names)
        if selects(part.rules.target_name(name))
    ]
    what = f"--resync: no table of this task matches {written!r}"
    todo = f"pidts plan {tables[0][0].shell_path} lists its tables"
    if meant:
        what += ". This is the name of a table on the target, but --resync takes names on the source"
        most = ",".join(meant[:_MOST_NAMES])
        more = f" and {len(meant) - _MOST_NAMES:,} more" if len(meant) > _MOST_NAMES else ""
        todo = f"Give the names on the source: --resync {shlex.quote(most)}{more}"
    return ConfigError("unknown-name", what, todo=todo)


def _tables_of(part: TaskConfig) -> set[TableName]:
    """Returns the tables that the source has, and those that the target's records name for this source."""
    with closing(connect(part.source.server)) as source, closing(part.target.server.connect()) as target:
        known = (
            target.meta.structures.load(part.name, SourceTablesKey(part.source.source_id))
            if target.meta.checkpoints.read(part.name, part.source.source_id)
            else {}
        )
        return {*read_structures(source, part.allow), *known}
