"""The event filter: decides, as DM does, which kinds of changes of which tables a task takes.

All rules whose patterns match are applied: rules for whole schemas before rules for tables, and among these, rules with
general patterns before rules with specific ones. Each rule checks a change in two steps:

1. The kind of the change. If `events` names this kind, an `Ignore` rule drops the change, and an `Error` rule refuses
   it. A `Do` rule drops the change if `events` does not name its kind.
2. The text, if the change is a statement and the rule has a `sql-pattern`. The results are the same as in step 1, with
   `sql-pattern` instead of `events`.

The first rule that drops or refuses the change decides. If no rule drops or refuses it, the change is taken. So two
`Do` rules for one table take only the kinds that *both* list. A `Do` rule that lists only kinds of row changes drops
every DDL of its tables.

Some names mean several kinds, as in DM. `all ddl` is every DDL. `incompatible ddl changes` are DDLs that may lose data,
or that another database may not be able to follow. Entries after `none` have no effect. Entries after `none ddl` add no
DDL, and entries after `none dml` add no row changes.

If DM cannot use an entry (an unknown kind, a second entry for the same patterns), DM ignores the entry and only logs
this. PiDTS ignores only rules with short names (`truncate` for `truncate table`), and reports this in a note. With any
other unusable entry, the task does not start: without the entry, the task might replicate changes that the user wants
to drop.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache

from pidts.model import ConfigError, TableName
from pidts.model.similar_names import suggestion
from pidts.rules.patterns import check, expression, matches

DML = frozenset({"insert", "update", "delete"})
INCOMPATIBLE = frozenset(
    {
        "coalesce table partition",
        "drop column",
        "drop database",
        "drop index",
        "drop primary key",
        "drop table",
        "drop table partition",
        "drop unique key",
        "exchange table partition",
        "modify charset",
        "modify collation",
        "modify column",
        "modify columns order",
        "modify constraint",
        "modify default value",
        "modify storage engine",
        "precision decrease",
        "rebuild table partition",
        "remove auto increment",
        "rename column",
        "rename index",
        "rename table",
        "reorganize table partition",
        "split table partition",
        "truncate table",
        "truncate table partition",
        "value range decrease",
    }
)

DDL = INCOMPATIBLE | {
    "add column",
    "add foreign key",
    "add primary key",
    "add table partition",
    "alter database",
    "alter index visibility",
    "alter table",
    "alter table partitioning",
    "alter ttl info",
    "alter ttl remove",
    "create database",
    "create index",
    "create table",
    "create view",
    "drop foreign key",
    "drop view",
    "modify schema charset and collate",
    "modify table charset and collate",
    "modify table comment",
    "multi schema change",
    "rebase auto id",
    "recover table",
    "remove table partitioning",
    "set default value",
}
_ALIASES = {f"{verb} schema": f"{verb} database" for verb in ("create", "drop", "alter")}
_GROUPS = {
    "all": DML | DDL,
    "all dml": DML,
    "all ddl": DDL,
    "incompatible ddl changes": INCOMPATIBLE,
}
_ENDS = {"none": DML | DDL, "none dml": DML, "none ddl": DDL}
EVENTS = DML | DDL | set(_ALIASES) | set(_GROUPS) | set(_ENDS)
"""The names that `events` may contain."""

ACTIONS = ("Do", "Ignore", "Error")


class FilterDecision(Enum):
    """The decision of the event filter about a change."""

    TAKE = "take"
    SKIP = "skip"
    """The change is dropped. A dropped DDL still changes the recorded structures: later rows have the new structure."""
    REFUSE = "refuse"


def expand(name: str) -> frozenset[str]:
    """Returns the kinds that a name in `events` means. `none`, `none ddl` and `none dml` mean no kind."""
    key = name.lower()
    if key in _ENDS:
        return frozenset()
    if key not in EVENTS:
        usual = "Write DM's names: 'all dml', 'insert', 'all ddl', 'drop table', ..."
        todo = suggestion(key, sorted(EVENTS)) or usual
        raise ConfigError("bad-event", f"an event filter has the event {name!r}, which does not exist", todo=todo)
    return frozenset(_GROUPS.get(key, {_ALIASES.get(key, key)}))


def is_short(name: str) -> bool:
    """Whether a name lacks the word `table`. DM has no event with such a name, and ignores the whole rule."""
    key = name.lower()
    return key not in EVENTS and f"{key} table" in DDL


@lru_cache(maxsize=1024)
def _kinds(names: tuple[str, ...]) -> frozenset[str]:
    """Returns the kinds that a list names, without kinds that an earlier `none`, `none ddl` or `none dml` has ended."""
    named: frozenset[str] = frozenset()
    ended: frozenset[str] = frozenset()
    for name in names:
        named |= expand(name) - ended
        ended |= _ENDS.get(name.lower(), frozenset())
    return named


@dataclass(frozen=True, slots=True)
class FilterRule:
    """One entry of `filters`. Without a table pattern, it applies to a schema and all its tables."""

    schema_pattern: str
    table_pattern: str = ""
    events: tuple[str, ...] = ()
    sql_patterns: tuple[str, ...] = ()
    action: str = "Do"

    def __post_init__(self) -> None:
        for pattern in (self.schema_pattern, *filter(None, [self.table_pattern])):
            check(pattern)
        for pattern in self.sql_patterns:
            expression(pattern, case_sensitive=False)
        _kinds(self.events)
        if self.action not in ACTIONS:
            raise ConfigError(
                "bad-value",
                f"action {self.action!r} of an event filter is none of {', '.join(ACTIONS)}",
                todo="Write one of these names",
            )

    def applies_to(self, table: TableName, *, case_sensitive: bool) -> bool:
        """Whether the patterns match this table. Only `*` matches an empty name."""
        if not matches(self.schema_pattern, table.schema, case_sensitive=case_sensitive):
            return False
        return not self.table_pattern or matches(self.table_pattern, table.name, case_sensitive=case_sensitive)

    def __call__(self, events: Collection[str], sql: str) -> FilterDecision:
        """Returns this rule's verdict. After TAKE, the next rule is applied."""
        if events and (verdict := self._of(not _kinds(self.events).isdisjoint(events))):
            return verdict
        if sql and self.sql_patterns:
            found = any(expression(pattern, case_sensitive=False).search(sql) for pattern in self.sql_patterns)
            return self._of(found) or FilterDecision.TAKE
        return FilterDecision.TAKE

    def _of(self, is_match: bool) -> FilterDecision | None:  # noqa: FBT001 - the only argument
        if self.action == "Do":
            return None if is_match else FilterDecision.SKIP
        if not is_match:
            return None
        return FilterDecision.SKIP if self.action == "Ignore" else FilterDecision.REFUSE


@dataclass(frozen=True, slots=True)
class EventFilter:
    """The event filter rules of a source. Without rules, every change is taken."""

    rules: tuple[FilterRule, ...] = ()
    case_sensitive: bool = False
    _in_order: tuple[FilterRule, ...] = field(init=False, repr=False, compare=False, default=())

    def __post_init__(self) -> None:
        seen: dict[tuple[str, str], FilterRule] = {}
        for rule in self.rules:
            patterns = (rule.schema_pattern, rule.table_pattern)
            key = patterns if self.case_sensitive else (patterns[0].lower(), patterns[1].lower())
            if seen.setdefault(key, rule) != rule:
                raise ConfigError(
                    "duplicate-filter",
                    f"two event filters have the same patterns, {'.'.join(filter(None, patterns))}",
                    todo="Write one filter with the events of both.",
                )
        object.__setattr__(self, "_in_order", tuple(sorted(self.rules, key=_order)))

    def __call__(self, table: TableName, events: Collection[str], sql: str = "") -> FilterDecision:
        """Returns the verdict on a change: rows of one kind, or a statement of these kinds with its text.

        For a statement on a schema, `table.name` is "". For a statement that could not be parsed, both names are "",
        and `events` is empty. If `events` has several kinds, they are several names for the same change.
        """
        text = sql.strip()
        for rule in self._in_order:
            if rule.applies_to(table, case_sensitive=self.case_sensitive):
                verdict = rule(events, text)
                if verdict is not FilterDecision.TAKE:
                    return verdict
        return FilterDecision.TAKE


def _order(rule: FilterRule) -> tuple[bool, tuple[int, ...], tuple[int, ...]]:
    """Returns a sort key for DM's order. The order matters if one rule drops a change and another rule refuses it."""
    return bool(rule.table_pattern), _generality(rule.schema_pattern), _generality(rule.table_pattern)


def _generality(pattern: str) -> tuple[int, ...]:
    """Returns a sort key with a number for each symbol. In ascending order: `*`, `?`, the start of a set, a letter."""
    return tuple({"*": 0, "?": 1, "[": 2}.get(char, 3) for char in pattern)
