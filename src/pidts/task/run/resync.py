"""Assigns the patterns of `--resync` to the sources of a task.

A pattern selects matching tables of all sources. With `source-id:` before it, it selects tables of this source only,
and `source-id:` alone selects all tables of the source.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from functools import cache

from pidts.model import ConfigError, OfSource, TableName
from pidts.rules import AllowList
from pidts.source import connect, read_structures
from pidts.task.config.task_file import TaskConfig
from pidts.task.tables.copy_start import Patterns


def resync_of(parts: Sequence[TaskConfig], resync: Patterns) -> Mapping[str, Patterns]:
    """Returns each source's patterns, None if it is not selected; servers are queried only if a task has several.

    With a single source, the start itself checks whether the source has such tables.
    """
    by_source = {part.source.source_id: part for part in parts}
    if not resync:
        return dict.fromkeys(by_source, resync)
    tables = cache(lambda source: _tables(by_source[source]))
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
            raise ConfigError("unknown-name", f"--resync: no table of this task matches {pattern!r}")
        for one in found:
            before = taken[one]
            taken[one] = () if before == () or not meant else (*(before or ()), meant)
    return taken


def _tables(part: TaskConfig) -> set[TableName]:
    """Returns the tables that the source has, and those that the target records of it."""
    with closing(connect(part.source.server)) as source, closing(part.target.server.connect()) as target:
        known = (
            target.meta.structures.load(part.name, OfSource(part.source.source_id))
            if target.meta.checkpoints.read(part.name, part.source.source_id)
            else {}
        )
        return {*read_structures(source, part.allow), *known}
