"""Reads the rules of a task file in DM's form: maps of named rules, and the names that an instance uses.

As in DM, it is an error if an instance names a rule twice, or if no instance names a rule. For example, if no instance
names a route, rows would go to a table that the author did not mean, and no message would say so. For an unused
block-allow-list there is only a note (`TaskConfig.notes`), since an instance can name only one list.

The event filters of a source's own file come after the task's event filters.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

from pidts.model import ConfigError, TableName
from pidts.model.similar_names import suggestion
from pidts.rules import AllowList, ColumnMapping, Rules
from pidts.rules.event_filter import EventFilter, FilterRule, is_short
from pidts.rules.expressions import ExpressionFilter, ExpressionRule
from pidts.rules.patterns import check, matches
from pidts.rules.routes import Extract, RouteRule, Routes
from pidts.schema.online.names import SHADOW, TRASH, OnlineDdl, checked
from pidts.task.config import dm_keys
from pidts.task.config.mistakes import mistake, recording_mistakes
from pidts.task.config.section import Section

_Rule = TypeVar("_Rule")

_OFFSET = re.compile(r"[+-](0\d|1[0-4]):[0-5]\d", re.ASCII)
_SHORT_OFFSET = re.compile(r"\A([+-])(\d:[0-5]\d)\Z", re.ASCII)
"""An offset whose hour has one digit, such as `-6:00`. MySQL's manual also uses this form."""
_ACTIONS = {"do": "Do", "ignore": "Ignore", "error": "Error"}
_EXTRACTED = (
    ("extract-table", "table-regexp"),
    ("extract-schema", "schema-regexp"),
    ("extract-source", "source-regexp"),
)
_EXPRESSIONS = (
    ("insert", "insert-value-expr"),
    ("update_old", "update-old-value-expr"),
    ("update_new", "update-new-value-expr"),
    ("delete", "delete-value-expr"),
)


@dataclass(frozen=True, slots=True)
class RuleName:
    """A rule's name in the task file. Messages use it to name the rules that fit a table."""

    map: str
    """The key of the task file that contains the rule."""
    name: str
    schema: str
    """The pattern for schemas; in an expression filter, a schema's name."""
    table: str
    """The pattern for tables; empty if the rule is for schemas."""
    says: str
    """The rule in a few words."""
    exact: bool = False

    def fits(self, table: TableName, *, case_sensitive: bool) -> bool:
        """Whether the rule fits this table."""
        if self.exact:
            return (self.schema.lower(), self.table.lower()) == (table.schema.lower(), table.name.lower())
        return matches(self.schema, table.schema, case_sensitive=case_sensitive) and (
            not self.table or matches(self.table, table.name, case_sensitive=case_sensitive)
        )


def read_rules(
    task: Section,
    instance: Section,
    source_filters: Sequence[Section],
    *,
    instances: Sequence[Section],
    source_id: str,
    case_sensitive: bool,
    online: OnlineDdl | None,
    own_schema: str,
    prints_moments: bool,
) -> tuple[Rules, tuple[RuleName, ...]]:
    """Reads all rules of one source, with their names.

    `instances` are all instances of the file, which share its rules. `prints_moments`: the target gets a TIMESTAMP as
    text, in the task's time zone.
    """
    routes = _selected(task, "routes", instance, instances, "route-rules", _route)
    named = _selected(task, "filters", instance, instances, "filter-rules", _filter)
    filters = [(name, rule) for name, rule in named if rule is not None]
    filters += _of_source(source_filters, [rule for _, rule in filters], case_sensitive=case_sensitive)
    with instance.with_place("filter-rules"):
        events = EventFilter(tuple(rule for _, rule in filters), case_sensitive=case_sensitive)
    expressions = _selected(task, "expression-filter", instance, instances, "expression-filters", _expression)
    mappings = _selected(
        task,
        "column-mappings",
        instance,
        instances,
        "column-mapping-rules",
        lambda section: _mapping(section, case_sensitive=case_sensitive),
    )
    allow = replace(_allow_list(task, instance, instances, case_sensitive=case_sensitive), own=own_schema)
    rules = Rules(
        allow=replace(allow, shadow=online.shadow, trash=online.trash) if online else allow,
        events=events,
        expressions=ExpressionFilter(
            tuple(rule for _, rule in expressions),
            time_zone=_time_zone(task, used=prints_moments or bool(expressions) or task.section("pidts").has("owners")),
        ),
        mappings=tuple(rule for _, rule in mappings),
        routes=Routes(tuple(rule for _, rule in routes), source_id=source_id, case_sensitive=case_sensitive),
        several=len(instances) > 1,
    )
    names = [
        *(RuleName("routes", name, one.schema_pattern, one.table_pattern, str(one)) for name, one in routes),
        *(RuleName("filters", name, one.schema_pattern, one.table_pattern, _filter_text(one)) for name, one in filters),
        *(
            RuleName("expression-filter", name, one.schema, one.table, _expression_text(one), exact=True)
            for name, one in expressions
        ),
        *(
            RuleName("column-mappings", name, one.schema_pattern, one.table_pattern, _mapping_text(one))
            for name, one in mappings
        ),
    ]
    return rules, tuple(names)


def read_online(task: Section, *, case_sensitive: bool) -> OnlineDdl | None:
    """Reads the rules for tables of online schema change tools; None if the task treats them as ordinary tables."""
    enabled = task.flag("online-ddl", default=True)
    # The old key: any value switches the rules on, for both tools.
    enabled |= bool(task.choice("online-ddl-scheme", ("gh-ost", "pt", ""), ""))
    rules = []
    for key, usual in (("shadow-table-rules", SHADOW), ("trash-table-rules", TRASH)):
        for text, line in task.texts(key):
            with task.with_place(key, line):
                checked([text], key)
        rules.append(checked([text for text, _ in task.texts(key)], key) or usual)
        if not enabled and task.texts(key):
            task.note(key, "no effect: online-ddl is false")
    return OnlineDdl(rules[0], rules[1], case_sensitive) if enabled else None


def _time_zone(task: Section, *, used: bool) -> str:
    """Returns the time zone in which expressions see TIMESTAMP columns, and in which a datacenter gets them.

    If neither expressions nor a datacenter use the time zone (`used` is False), a note says so.
    """
    key, usual = "timezone", "+00:00"
    zone = _SHORT_OFFSET.sub(r"\g<1>0\2", task.text(key, "")) or usual
    try:
        if not _OFFSET.fullmatch(zone):
            ZoneInfo(zone)
    except (OSError, ValueError, ZoneInfoNotFoundError):
        todo = suggestion(zone, available_timezones())
        raise task.error(key, "bad-value", f"{zone!r} is not a time zone", todo) from None
    if zone not in (usual, "UTC") and not used:
        task.note(key, "no effect: each TIMESTAMP keeps its moment, and no expression filter needs the time zone")
    return zone


def current_key(section: Section, key: str, old: str) -> str:
    """Returns the key or its old name, whichever is given. DM's export has both, the old one with an empty value."""
    if section.is_empty(old):
        return key
    if not section.is_empty(key):
        raise section.error(
            old, "duplicate-key", f"this is the old name of {key}, which is given too", "Keep one of them."
        )
    return old


def _selected(
    task: Section,
    key: str,
    instance: Section,
    instances: Sequence[Section],
    names_key: str,
    read: Callable[[Section], _Rule],
) -> list[tuple[str, _Rule]]:
    """Returns the rules that the instance names, in the instance's order. Reads all rules, to find all mistakes."""
    named = task.section(key)
    rules: dict[str, _Rule] = {}
    for name in named.names:
        with recording_mistakes():
            rules[name] = read(named.section(name))
    taken: dict[str, _Rule] = {}
    has_unknown = False
    for name, line in instance.texts(names_key):
        if name not in named.names:
            what = f"{names_key}: there is no {name!r} in {key}"
            mistake(instance.document.error(line, "unknown-name", what, suggestion(name, named.names)))
            has_unknown = True
        elif name in taken:
            what = f"{names_key}: {name!r} is named twice"
            mistake(instance.document.error(line, "duplicate-key", what, "Name it once."))
        elif name in rules:
            taken[name] = rules[name]
    used = {name for one in instances for name, _ in one.texts(names_key)}
    for name in named.names:
        if name not in used and name in rules and not has_unknown:  # an unknown name may be meant for this rule
            todo = f"Name it in the instance's {names_key}, or remove it."
            mistake(named.error(name, "unused-name", "no instance uses it", todo))
    return list(taken.items())


def _route(section: Section) -> RouteRule:
    schema, table = _patterns_of(section)
    extracts = [_extract(section, key, expression) for key, expression in _EXTRACTED]
    target_schema, target_table = section.literal("target-schema", ""), section.literal("target-table", "")
    section.finish()
    with section.with_place("schema-pattern", section.line):
        return RouteRule(schema, table, target_schema, target_table, *extracts)


def _extract(section: Section, key: str, expression: str) -> Extract | None:
    if not section.has(key):
        return None
    found = section.section(key)
    with found.with_place(expression):
        extract = Extract(found.literal(expression), found.literal("target-column"))
    found.finish()
    return extract


def _filter(section: Section) -> FilterRule | None:
    """Reads an event filter; None for a rule that DM ignores."""
    schema, table = _patterns_of(section)
    short = next((text for text, _ in section.texts("events") if is_short(text)), "")
    if short:
        what = f"no effect: DM knows no event {short!r} and leaves out the whole rule, and so does this task; write"
        section.note("events", f"{what} '{short.lower()} table'")
    known = [(text, line) for text, line in section.texts("events") if not is_short(text)]
    events = [_checked_event(section, schema, text, line) for text, line in known]
    patterns = [_checked_sql(section, schema, text, line) for text, line in section.texts("sql-pattern")]
    action = section.text("action")
    if action.lower() not in _ACTIONS:
        what = f"expected one of {', '.join(_ACTIONS.values())}, not {action!r}"
        raise section.error("action", "bad-value", what, suggestion(action, _ACTIONS.values()))
    section.finish()
    with section.with_place("schema-pattern", section.line):
        rule = FilterRule(schema, table, tuple(events), tuple(patterns), _ACTIONS[action.lower()])
    return None if short else rule


def _of_source(
    sections: Sequence[Section], taken: Sequence[FilterRule], *, case_sensitive: bool
) -> list[tuple[str, FilterRule]]:
    """Returns the filters of the source's file. As in DM, a task's filter with the same patterns takes precedence."""

    def place(rule: FilterRule) -> tuple[str, ...]:
        patterns = (rule.schema_pattern, rule.table_pattern)
        return patterns if case_sensitive else tuple(map(str.lower, patterns))

    places = set(map(place, taken))
    found = []
    for section in sections:
        rule = _filter(section)
        if rule is None:
            continue
        if place(rule) in places:
            section.note("schema-pattern", "no effect: a filter of the task has the same patterns")
        else:
            found.append((section.path, rule))
    return found


def _checked_event(section: Section, schema: str, text: str, line: int) -> str:
    with section.with_place("events", line):
        FilterRule(schema, events=(text,))
    return text


def _checked_sql(section: Section, schema: str, text: str, line: int) -> str:
    with section.with_place("sql-pattern", line):
        FilterRule(schema, sql_patterns=(text,))
    return text


def _expression(section: Section) -> ExpressionRule:
    texts = {field: section.literal(key, "") for field, key in _EXPRESSIONS}
    schema, table = section.literal("schema"), section.literal("table")
    section.finish()
    file = str(section.document.file)
    return ExpressionRule(schema=schema, table=table, **texts, file=file, line=section.line)


def _mapping(section: Section, *, case_sensitive: bool) -> ColumnMapping:
    schema, table = _patterns_of(section)
    arguments = tuple(text for text, _ in section.texts("arguments"))
    column = section.literal("target-column")
    with section.with_place("expression"):
        mapping = ColumnMapping(
            schema,
            table,
            column,
            section.literal("expression"),
            arguments,
            section.literal("source-column", ""),
            case_sensitive=case_sensitive,
        )
    section.finish(dm_keys.COLUMN_MAPPING)
    return mapping


def _patterns_of(section: Section) -> tuple[str, str]:
    schema, table = section.literal("schema-pattern"), section.literal("table-pattern", "")
    for key, pattern in (("schema-pattern", schema), ("table-pattern", table)):
        if pattern or key == "schema-pattern":
            with section.with_place(key):
                check(pattern)
    return schema, table


def _allow_list(task: Section, instance: Section, instances: Sequence[Section], *, case_sensitive: bool) -> AllowList:
    keys = "block-allow-list", "black-white-list"
    lists, chosen = current_key(task, *keys), current_key(instance, *keys)
    name = instance.text(chosen, "")
    used = {one.text(current_key(one, *keys), "") for one in instances}
    named = task.section(lists)
    if name and not named.has(name):
        raise instance.error(chosen, "unknown-name", f"there is no {name!r} in {lists}", suggestion(name, named.names))
    allow = AllowList(case_sensitive=case_sensitive)
    for known in named.names:
        section = named.section(known)
        read = AllowList(
            do_dbs=_names(section, "do-dbs"),
            ignore_dbs=_names(section, "ignore-dbs"),
            do_tables=_table_names(section, "do-tables"),
            ignore_tables=_table_names(section, "ignore-tables"),
            case_sensitive=case_sensitive,
        )
        section.finish()
        if known == name:
            allow = read
        elif known not in used:
            named.note(known, "no effect: no instance uses it")
    return allow


def _names(section: Section, key: str) -> tuple[str, ...]:
    names = []
    for at, (text, line) in enumerate(section.texts(key)):
        with recording_mistakes():
            names.append(_name(section, f"{key}[{at}]", text, line))
    return tuple(names)


def _table_names(section: Section, key: str) -> tuple[tuple[str, str], ...]:
    pairs = []
    for entry in section.sections(key):
        with recording_mistakes():
            names = [_name(entry, name, entry.literal(name), entry.line_of(name)) for name in ("db-name", "tbl-name")]
            entry.finish()
            pairs.append((names[0], names[1]))
    return tuple(pairs)


def _name(section: Section, key: str, text: str, line: int) -> str:
    try:
        check(text)
    except ConfigError as error:
        raise section.document.error(line, error.code, f"{section.path}.{key}: {error.what}", error.todo) from None
    return text


def _mapping_text(rule: ColumnMapping) -> str:
    return f"{rule.expression} {list(rule.arguments)} on {rule.target_column}"


def _filter_text(rule: FilterRule) -> str:
    return f"{rule.action} {', '.join([*rule.events, *map(repr, rule.sql_patterns)])}"


def _expression_text(rule: ExpressionRule) -> str:
    conditions = (
        ("INSERT", rule.insert),
        ("UPDATE from", rule.update_old),
        ("UPDATE to", rule.update_new),
        ("DELETE", rule.delete),
    )
    return "drops " + " and ".join(f"{what} {text}" for what, text in conditions if text)
