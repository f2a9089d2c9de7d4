"""A task's sources, its target and what is between them, as a comparison asks for them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field, replace

from pidts.apply import TargetSession
from pidts.model import TableName
from pidts.rules import AllowList
from pidts.source.connection import connect
from pidts.task.compare.catch_up import TaskCatchUp
from pidts.task.compare.source import OpenPart, SourceTable
from pidts.task.compare.table_pairs import TakesTable, label, landing_names, read_groups
from pidts.task.compare.target import target_rows
from pidts.task.config.task_file import TaskConfig
from pidts.verify import (
    EXACT,
    POSTGRES,
    Group,
    Memory,
    MergedFlight,
    MergedSource,
    Normals,
    Outside,
    Progress,
    Report,
    TableReport,
    compare,
)


def compare_task(
    *parts: TaskConfig,
    examples: int = 100,
    takes: TakesTable | None = None,
    memory: Memory | None = None,
    outside: Outside | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> Report:
    """Every table of all sources that `takes` lets pass."""
    outside = outside or Outside()
    with opened_comparison(parts, takes or (lambda _: True), stop=outside.stop, say=say) as comparison:
        return comparison.run(examples=examples, memory=memory, outside=outside)


@contextmanager
def opened_comparison(
    parts: Sequence[TaskConfig],
    takes: TakesTable,
    left: set[TableName] | None = None,
    *,
    stop: threading.Event | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> Iterator[Comparison]:
    """With connections to all servers; `left` is to get the tables that filters keep rows of, which are left out."""
    with ExitStack() as stack:
        target = stack.enter_context(closing(parts[0].target.server.connect()))
        opened = []
        for config in parts:
            source = stack.enter_context(closing(connect(config.source.server)))
            prefix = f"{config.source.source_id}: " if len(parts) > 1 else ""
            flight = TaskCatchUp(config, source, target, stop=stop, say=say, prefix=prefix)
            opened.append(OpenPart(config, source, flight))
        yield Comparison(tuple(opened), target, takes, left)


@dataclass(frozen=True, slots=True)
class Comparison:
    """One of a task's, of which connections are open."""

    parts: tuple[OpenPart, ...]
    target: TargetSession
    takes: TakesTable
    left: set[TableName] | None = None
    known: dict[TableName, Group] = field(default_factory=dict)
    """All that were compared, by the target's names, as they were read last."""

    def run(self, *, examples: int = 100, memory: Memory | None = None, outside: Outside | None = None) -> Report:
        """Go on from the memory. What is told has the source's name of a table that is alone, else the target's."""
        outside = outside or Outside()

        def read() -> dict[TableName, Group]:
            groups = self.groups()
            self.known.update(groups)
            return groups

        def tell(progress: Progress) -> None:
            outside.tell(replace(progress, table=display_name(self.known, progress.table)))

        source = MergedSource(read, self.members)
        report = compare(
            source,
            target_rows(self.target, lambda: source.groups),
            MergedFlight(lambda: source.groups),
            normals=normals_of(self.parts[0].config),
            examples=examples,
            memory=memory,
            outside=replace(outside, tell=tell),
        )
        return Report(
            tuple(self._told(one) for one in report.tables),
            tuple(replace(one, table=display_name(self.known, one.table)) for one in report.examples),
        )

    def groups(self) -> dict[TableName, Group]:
        """As the servers have them now."""
        found = read_groups(self.parts, self.target, self.takes)
        if self.left is not None:
            filtered = {name for name, group in found.items() if any(map(keeps_rows, members_of(group)))}
            self.left.update(display_name(found, name) for name in filtered)
            found = {name: group for name, group in found.items() if name not in filtered}
        return found

    def members(self, name: TableName) -> frozenset[str]:
        """The labels of all tables that land in one now."""
        return frozenset(label(self.parts, part, one) for part, one in landing_names(self.parts).get(name, ()))

    def _told(self, report: TableReport) -> TableReport:
        group = self.known.get(report.table)
        if group is None:
            return report
        members, source = members_of(group), ""
        if len(members) == 1 and len(self.parts) > 1:
            source = members[0].part.config.source.source_id
        return replace(
            report,
            table=display_name(self.known, report.table),
            filtered=any(map(keeps_rows, members)),
            source=source,
            members=tuple(one.label for one in members) if len(members) > 1 else (),
            note=group.note,
        )


def members_of(group: Group) -> tuple[SourceTable, ...]:
    """As this module has made them."""
    return tuple(one for one in group.members if isinstance(one, SourceTable))


def display_name(groups: Mapping[TableName, Group], name: TableName) -> TableName:
    """What people call a table of the target: by the source's name, where it is one."""
    group = groups.get(name)
    return group.members[0].name if group is not None and len(group.members) == 1 else name


def keeps_rows(member: SourceTable) -> bool:
    """Whether rows of this table may differ on purpose."""
    return member.rules.keeps_rows(member.name)


def normals_of(config: TaskConfig) -> Normals:
    """What the kind of target changes of values by agreement."""
    return POSTGRES if config.target.type == "postgresql" else EXACT


def chosen(tables: str) -> TakesTable:
    """`--tables a.b,c.*`; nothing chooses all."""
    return AllowList.parse(tables) if tables else lambda _: True
