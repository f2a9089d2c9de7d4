"""Reports routes and entries of block-allow-list that match no table of any source, mostly because of a misspelling.

This is no error: the tables may be created later. Filters are not checked, because they concern statements, too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from pidts.model import TableName
from pidts.rules.patterns import matches
from pidts.source.finding import Finding
from pidts.task.config.task_file import TaskConfig


def unused_rules(parts: Sequence[TaskConfig], tables: Mapping[str, Collection[TableName]]) -> list[str]:
    """Returns a text for each rule that matches none of these tables; none if a source's tables are not known."""
    fits: dict[str, bool] = {}
    for part in parts:
        names = tables.get(part.source.source_id)
        if not names:
            return []
        for rule, fit in _rules(part, names):
            fits[rule] = fits.get(rule, False) or fit
    return [f"{rule} matches no table of any source" for rule, fit in fits.items() if not fit]


def unused_rule_findings(parts: Sequence[TaskConfig], tables: Mapping[str, Collection[TableName]]) -> list[Finding]:
    """Returns the unused rules as findings."""
    return [Finding("rules", ok=True, message=note) for note in unused_rules(parts, tables)]


def _rules(part: TaskConfig, names: Collection[TableName]) -> Iterator[tuple[str, bool]]:
    allow = part.allow
    for rule in part.rule_names:
        if rule.map == "routes":
            fit = any(rule.fits(name, case_sensitive=allow.case_sensitive) for name in names)
            yield f"route {rule.name} ({rule.says})", fit

    def fits(pattern: str, name: str) -> bool:
        return matches(pattern, name, case_sensitive=allow.case_sensitive)

    for schema in allow.do_dbs:
        yield f"block-allow-list: {schema} of do-dbs", any(fits(schema, name.schema) for name in names)
    for schema, table in allow.do_tables:
        fit = any(fits(schema, name.schema) and fits(table, name.name) for name in names)
        yield f"block-allow-list: {schema}.{table} of do-tables", fit
