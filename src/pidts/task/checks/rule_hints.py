"""Gives hints about rules whose effect may be unexpected. None of them is an error.

- If an expression names a column that the table lacks, the expression is false. As in DM, this is no error, because a
  column may be added after its rule, or be dropped before its rule. But the name may be misspelled.
- A `Do` rule that lists only kinds of row changes leaves out schema changes, so the target's table keeps its structure.
- A route extracts what the groups of its expression match, so an expression without a group extracts nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pidts.model import ConfigError, Table, TableName
from pidts.model.similar_names import suggestion
from pidts.rules import FilterDecision, Rules
from pidts.rules.expressions.rule import ExpressionRule, parsed
from pidts.rules.expressions.tree import columns_of
from pidts.source.finding import Finding

_FIX = "If this is not intended, correct the rule in the task file"


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
            "written after an ADD COLUMN halt the table. A Do rule takes only the events that it lists: for schema "
            "changes, add 'all ddl'"
        )


def _extracted(rules: Rules, name: TableName) -> Iterator[str]:
    try:
        extracted = rules.routes.destination(name).extracted
    except ConfigError:
        return  # another check of the table reports this error
    for column, value in extracted:
        if not value:
            yield f"its route extracts nothing for column {column}: write a group, (...), around the part to extract"
