"""Finds rules that match no table of the task, and tables that they may mean. An unused rule is no error."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass

from pidts.model import TableName
from pidts.model.errors import listed
from pidts.model.similar_names import similar
from pidts.rules.patterns import matches
from pidts.source.connection import connect, server_info
from pidts.source.finding import Finding
from pidts.source.grants import sees_all_schemas
from pidts.source.structures import is_system, table_names
from pidts.task.config.task_file import TaskConfig

_KINDS = {
    "routes": "route",
    "filters": "filter",
    "expression-filter": "expression filter",
    "column-mappings": "column mapping",
}


@dataclass(frozen=True, slots=True)
class UnusedRule:
    """A rule, or an entry of the block-allow-list, that matches no table of the task."""

    says: str
    """The name of the rule in messages."""
    schema: str
    table: str
    """The pattern for tables; empty if the rule is for schemas."""
    case_sensitive: bool

    def __str__(self) -> str:
        return f"{self.says} matches no table of any source"

    def advice(self, present: Collection[TableName], *, sees_all: bool = True) -> str:
        """Returns what to do about the rule.

        `present` are all tables that the accounts see on the sources, even those not in the task. `sees_all` is False
        if an account sees only schemas on which it has a privilege.
        """
        in_schemas = [name for name in present if self._fits(self.schema, name.schema)]
        if left_out := [name for name in in_schemas if self.covers(name)]:
            return (
                f"block-allow-list leaves out {listed(sorted(left_out))}: allow these tables there, or remove the rule"
            )
        if in_schemas:
            tables = {name.name: str(name) for name in sorted(in_schemas, reverse=True)}
            meant = [tables[name] for name in similar(self.table, tables)]
        else:
            meant = similar(self.schema, sorted({name.schema for name in present}))
        said = f"Did you mean {' or '.join(meant)}?" if meant else "Check its spelling."
        if not sees_all and not in_schemas:
            said = (
                f"The account sees only schemas on which it has a privilege: GRANT SELECT on the rule's schemas. {said}"
            )
        return f"{said} If a table that the rule matches is created later, leave the rule as it is"

    def covers(self, name: TableName) -> bool:
        """Whether the rule's patterns match the table's name."""
        return self._fits(self.schema, name.schema) and (not self.table or self._fits(self.table, name.name))

    def _fits(self, pattern: str, name: str) -> bool:
        return matches(pattern, name, case_sensitive=self.case_sensitive)


def unused_rules(parts: Sequence[TaskConfig], tables: Mapping[str, Collection[TableName]]) -> list[UnusedRule]:
    """Returns the rules that match none of these tables; an empty list if a source's tables are not known."""
    fits: dict[UnusedRule, bool] = {}
    for part in parts:
        names = tables.get(part.source.source_id)
        if not names:
            return []
        for rule, fit in _rules_with_tables(part, names):
            fits[rule] = fits.get(rule, False) or fit
    return [rule for rule, fit in fits.items() if not fit]


def _rules_with_tables(part: TaskConfig, names: Collection[TableName]) -> Iterator[tuple[UnusedRule, bool]]:
    allow = part.allow
    for rule in part.rule_names:
        pattern = "" if rule.map == "routes" else f"{rule.schema}.{rule.table or '*'}: "
        says = f"{_KINDS[rule.map]} {rule.name} ({pattern}{rule.says})"
        fit = any(rule.fits(name, case_sensitive=allow.case_sensitive) for name in names)
        yield UnusedRule(says, rule.schema, rule.table, allow.case_sensitive and not rule.exact), fit
    listed_names = [(f"{schema} of do-dbs", schema, "") for schema in allow.do_dbs]
    listed_names += [(f"{schema}.{table} of do-tables", schema, table) for schema, table in allow.do_tables]
    for says, schema, table in listed_names:
        entry = UnusedRule(f"block-allow-list: {says}", schema, table, allow.case_sensitive)
        yield entry, any(map(entry.covers, names))


def unused_rule_findings(
    parts: Sequence[TaskConfig],
    tables: Mapping[str, Collection[TableName]],
    step: Callable[[str], None] = lambda _: None,
) -> list[Finding]:
    """Returns a passed finding for each unused rule, with advice; `tables` are those of the task, by source."""
    unused = unused_rules(parts, tables)
    if not unused:
        return []
    step("reading the names of all tables of the sources")
    visible = [_visible_tables(part) for part in parts]
    present = [name for names, _ in visible for name in names]
    sees_all = all(all_schemas for _, all_schemas in visible)
    return [
        Finding("rules", ok=True, message=str(rule), fix=rule.advice(present, sees_all=sees_all)) for rule in unused
    ]


def _visible_tables(part: TaskConfig) -> tuple[frozenset[TableName], bool]:
    """Returns the tables that the account sees, even those not in the task, and whether it sees all schemas."""

    def is_foreign(name: TableName) -> bool:
        return not is_system(name.schema) and name.schema != part.allow.own

    with closing(connect(part.source.server)) as session:
        return table_names(session, is_foreign), sees_all_schemas(session, server_info(session))
