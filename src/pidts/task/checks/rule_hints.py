"""Hints about rules that match no table, or whose effect may be unexpected. None of them is an error.

- A misspelled column makes an expression false, without an error. DM does the same, because a column may be added after
  its rule, or be dropped before it.
- A `Do` rule that lists only kinds of row changes leaves out schema changes, so the table on the target keeps its
  structure.
- A route extracts what the groups of its expression match, so an expression without a group extracts nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from pidts.model import ConfigError, Table, TableName
from pidts.model.similar_names import suggestion
from pidts.rules import FilterDecision, Rules
from pidts.rules.expressions.rule import ExpressionRule, parsed
from pidts.rules.expressions.tree import columns_of
from pidts.rules.patterns import matches
from pidts.source.finding import Finding
from pidts.task.config.task_file import TaskConfig


def rule_hints(rules: Rules, table: Table) -> list[str]:
    """Returns the hints about one table of a source."""
    return [
        *_expressions(rules.expressions.rules, table),
        *_structure(rules, table.name),
        *_extracted(rules, table.name),
    ]


def rule_findings(rules: Rules, tables: Iterable[Table]) -> list[Finding]:
    """Returns the hints as findings; each occurs once and names one of its tables."""
    notes: dict[str, list[TableName]] = {}
    for table in tables:
        for note in rule_hints(rules, table):
            notes.setdefault(note, []).append(table.name)
    return [Finding("rules", ok=True, message=f"{_named(names)}: {note}") for note, names in notes.items()]


def _named(names: list[TableName]) -> str:
    return f"{names[0]} and {len(names) - 1} more tables" if len(names) > 1 else str(names[0])


def _expressions(rules: Iterable[ExpressionRule], table: Table) -> Iterator[str]:
    known = {column.name.lower(): column.name for column in table.columns}
    for rule in rules:
        if not rule.concerns(table.name):
            continue
        for text in filter(None, (rule.insert, rule.update_old, rule.update_new, rule.delete)):
            for name in dict.fromkeys(column.name for column in columns_of(parsed(text))):
                if name.lower() not in known:
                    did = suggestion(name, known.values())
                    what = f"the table has no column {name}, so the expression filter {text!r} drops nothing"
                    yield f"{what}. {did}" if did else what


def _structure(rules: Rules, name: TableName) -> Iterator[str]:
    if not rules.events.rules or rules.events(name, {"insert"}) is not FilterDecision.TAKE:
        return
    if rules.events(name, {"add column"}) is FilterDecision.SKIP:
        yield (
            "filters leave out its schema changes, so its structure on the target does not change, and rows that are "
            "written after an ADD COLUMN halt it. A Do rule takes only what it lists: for schema changes, add 'all ddl'"
        )


def _extracted(rules: Rules, name: TableName) -> Iterator[str]:
    try:
        extracted = rules.routes.destination(name).extracted
    except ConfigError:
        return  # another check of the table reports this error
    for column, value in extracted:
        if not value:
            yield f"its route extracts nothing for column {column}: write a group, (...), around the part to extract"


def unused_rules(parts: Sequence[TaskConfig], tables: Mapping[str, Collection[TableName]]) -> list[str]:
    """Returns a text for each rule that matches none of these tables; no texts if a source's tables are not known."""
    fits: dict[str, bool] = {}
    for part in parts:
        names = tables.get(part.source.source_id)
        if not names:
            return []
        for rule, fit in _rules_with_tables(part, names):
            fits[rule] = fits.get(rule, False) or fit
    return [f"{rule} matches no table of any source" for rule, fit in fits.items() if not fit]


def unused_rule_findings(parts: Sequence[TaskConfig], tables: Mapping[str, Collection[TableName]]) -> list[Finding]:
    """Returns the unused rules as findings."""
    return [Finding("rules", ok=True, message=note) for note in unused_rules(parts, tables)]


def _rules_with_tables(part: TaskConfig, names: Collection[TableName]) -> Iterator[tuple[str, bool]]:
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
