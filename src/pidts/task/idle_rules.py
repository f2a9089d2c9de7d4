"""Routes and entries of a block-allow-list that fit no table of any source, mostly since they are misspelled.

Nothing of it is an error: the tables may be still to come. Filters are not looked at: they speak of statements, too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from pidts.model import TableName
from pidts.rules.patterns import matches
from pidts.source.finding import Finding
from pidts.task.config import TaskConfig


def idle_rules(parts: Sequence[TaskConfig], tables: Mapping[str, Collection[TableName]]) -> list[str]:
    """Of all that the task takes, by source. Nothing is said where one source is not known, or has nothing to take."""
    fits: dict[str, bool] = {}
    for part in parts:
        names = tables.get(part.source.source_id)
        if not names:
            return []
        for rule, fit in _rules(part, names):
            fits[rule] = fits.get(rule, False) or fit
    return [f"{rule} fits no table that there is" for rule, fit in fits.items() if not fit]


def idle_findings(parts: Sequence[TaskConfig], tables: Mapping[str, Collection[TableName]]) -> list[Finding]:
    """The same for `check`."""
    return [Finding("rules", ok=True, message=note) for note in idle_rules(parts, tables)]


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
