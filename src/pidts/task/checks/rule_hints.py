"""Gives hints about rules that match no table, or whose effect may be unexpected. None of them is an error.

- If an expression names a column that the table lacks, it is false. This is no error (as in DM), because a column may
  be added after its rule, or be dropped before it. But the name may be misspelled.
- A `Do` rule that lists only kinds of row changes leaves out schema changes, so the target's table keeps its structure.
- A route extracts what the groups of its expression match, so an expression without a group extracts nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from pidts.model import ConfigError, Table, TableName
from pidts.model.errors import listed
from pidts.model.similar_names import similar, suggestion
from pidts.rules import FilterDecision, Rules
from pidts.rules.expressions.rule import ExpressionRule, parsed
from pidts.rules.expressions.tree import columns_of
from pidts.rules.patterns import matches
from pidts.source.finding import Finding
from pidts.task.config.task_file import TaskConfig

_FIX = "If this is not intended, correct the rule in the task file"
_KINDS = {
    "routes": "route",
    "filters": "filter",
    "expression-filter": "expression filter",
    "column-mappings": "column mapping",
}


def rule_hints(rules: Rules, table: Table) -> list[str]:
    """Returns the hints about one table of a source."""
    return [
        *_expressions(rules.expressions.rules, table),
        *_structure(rules, table.name),
        *_extracted(rules, table.name),
    ]


def rule_findings(rules: Rules, tables: Iterable[Table]) -> list[Finding]:
    """Returns the hints as findings. A hint about several tables becomes one finding, which names one of them."""
    notes: dict[str, list[TableName]] = {}
    for table in tables:
        for note in rule_hints(rules, table):
            notes.setdefault(note, []).append(table.name)
    return [Finding("rules", ok=True, message=f"{_named(names)}: {note}", fix=_FIX) for note, names in notes.items()]


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

    def advice(self, present: Collection[TableName]) -> str:
        """Returns what to do about the rule. `present` are all tables of the sources, even those not in the task."""
        in_schemas = [name for name in present if self._fits(self.schema, name.schema)]
        if left_out := [name for name in in_schemas if self.covers(name)]:
            return f"block-allow-list leaves out {listed(sorted(left_out))}: take it into the list, or remove the rule"
        if in_schemas:
            tables = {name.name: str(name) for name in sorted(in_schemas, reverse=True)}
            meant = [tables[name] for name in similar(self.table, tables)]
        else:
            meant = similar(self.schema, sorted({name.schema for name in present}))
        said = f"Did you mean {' or '.join(meant)}?" if meant else "Check its spelling."
        return f"{said} If a table that it matches is created later, leave it as it is"

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
