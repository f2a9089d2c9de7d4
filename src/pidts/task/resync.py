"""Which tables of each source `--resync` means.

A pattern stands for tables of whatever source has such ones; with `source-id:` before it, for those of this source, and
the source alone (`source-id:`) for all of its tables.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from functools import cache

from pidts.model import ConfigError, TableName
from pidts.rules import AllowList
from pidts.source import connect, read_structures
from pidts.task.compose import source_config, target_of
from pidts.task.config import TaskConfig
from pidts.task.copying import Patterns


def resync_of(parts: Sequence[TaskConfig], resync: Patterns) -> Mapping[str, Patterns]:
    """Each source's own patterns, None where it is not meant; servers are asked only where that is in doubt.

    With a single source nothing is: whether it has such tables is looked at when it starts.
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
            raise ConfigError("unknown-name", f"--resync: no table of this task is meant by {pattern!r}")
        for one in found:
            before = taken[one]
            taken[one] = () if before == () or not meant else (*(before or ()), meant)
    return taken


def _tables(part: TaskConfig) -> set[TableName]:
    """Those that the source has, and those that the task has of it."""
    with closing(connect(source_config(part))) as source, closing(target_of(part).connect()) as target:
        known = (
            target.load_structures(part.name, part.source.source_id)
            if target.checkpoints(part.name, part.source.source_id)
            else {}
        )
        return {*read_structures(source, part.allow), *known}
