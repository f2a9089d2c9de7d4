"""Finds the target table of a source's table with DM's `routes`.

A rule with a `table-pattern` applies to tables. A rule without a `table-pattern` applies to a schema, and to tables of
the schema that no rule with a `table-pattern` matches. So with

    {schema-pattern: "shop_*", target-schema: shop}                          crm_1.t    stays crm_1.t
    {schema-pattern: "shop_*", table-pattern: "t_*", target-schema: shop,    shop_1.t_1 becomes shop.t
     target-table: t}                                                        shop_1.x   becomes shop.x

If two rules of one kind match a name, this is an error: it is not clear which rule the user means. To a statement on a
schema, only rules without a `table-pattern` apply. So the first rule above turns `CREATE DATABASE shop_1` into `CREATE
DATABASE shop`.

**Extracted columns.** The table on the target may have additional columns. A rule defines the value of such a column: a
regular expression is matched with the name of the table, the schema or the source, and the matched groups are joined.
If the expression does not match the name, the value is the empty text, as in DM. Expressions are applied to names in
the source's own case.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from pidts.model import ConfigError, TableName
from pidts.rules.patterns import check, expression, is_wide, matches


@dataclass(frozen=True, slots=True)
class Extract:
    """An extracted column: the expression for its value, and its name."""

    regexp: str
    column: str

    def __post_init__(self) -> None:
        if not self.regexp or not self.column:
            raise ConfigError(
                "bad-route",
                "a rule that extracts a column must name an expression and a target-column",
                todo="Write both keys: the expression with one group in parentheses, and target-column",
            )
        expression(self.regexp, case_sensitive=True)

    def __call__(self, name: str) -> str:
        """Returns the column's value for all rows from this table, schema or source."""
        # In DM's expressions `\d` and `\w` are ASCII.
        found = expression(f"(?a){self.regexp}", case_sensitive=True).search(name)
        return "".join(group or "" for group in found.groups()) if found else ""


@dataclass(frozen=True, slots=True)
class RouteRule:
    """One entry of `routes`. An empty target name leaves the source's name unchanged."""

    schema_pattern: str
    table_pattern: str = ""
    target_schema: str = ""
    target_table: str = ""
    extract_table: Extract | None = None
    extract_schema: Extract | None = None
    extract_source: Extract | None = None

    def __post_init__(self) -> None:
        names = [extract.column for extract in self.extracts if extract]
        twice = {name for name in names if [other.lower() for other in names].count(name.lower()) > 1}
        if twice:
            raise ConfigError(
                "bad-route",
                f"the route of {self} extracts the column {min(twice)} twice",
                todo="Give each extracted column a target-column of its own",
            )

    def __str__(self) -> str:
        origin = f"{self.schema_pattern}.{self.table_pattern}" if self.table_pattern else self.schema_pattern
        return f"{origin} -> {self.target_schema or '(same)'}.{self.target_table or '(same)'}"

    @property
    def extracts(self) -> tuple[Extract | None, Extract | None, Extract | None]:
        """Returns the extracts of table, schema and source (None: there is none), in the order of their columns."""
        return self.extract_table, self.extract_schema, self.extract_source

    @property
    def may_merge(self) -> bool:
        """Whether the rule may map several tables, of one source or of several, to one table."""
        of_schemas = is_wide(self.schema_pattern) and bool(self.target_schema)
        of_tables = (not self.table_pattern or is_wide(self.table_pattern)) and bool(self.target_table)
        return of_schemas or of_tables or self.extract_source is not None


@dataclass(frozen=True, slots=True)
class Destination:
    """A table's name on the target, and the columns that are appended to each of its rows."""

    name: TableName
    extracted: tuple[tuple[str, str], ...] = ()
    """The extracted columns' names and values."""
    rule: RouteRule | None = None


@dataclass(frozen=True, slots=True)
class Routes:
    """The routes of a source. A name that no route matches does not change."""

    rules: tuple[RouteRule, ...] = ()
    source_id: str = ""
    case_sensitive: bool = False
    _found: dict[TableName, Destination] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        for rule in self.rules:
            for pattern in (rule.schema_pattern, *filter(None, [rule.table_pattern])):
                check(pattern)

    def destination(self, name: TableName) -> Destination:
        """Returns the table that gets the rows of a source's table."""
        if not self.rules:
            return Destination(name)
        found = self._found.get(name)
        if found is None:
            found = self._found[name] = self._destination(name)
        return found

    def may_merge(self, name: TableName) -> bool:
        """Whether other source tables may map to the same target table, now or later."""
        rule = self.destination(name).rule
        if rule is None:
            return False
        goal = (rule.target_schema, rule.target_table)
        return rule.may_merge or (
            all(goal) and sum((one.target_schema, one.target_table) == goal for one in self.rules) > 1
        )

    def may_leave_rows(self, name: TableName) -> bool:
        """Whether the target may keep a dropped table's rows: other source tables may share its target table."""
        return self.may_merge(name) or bool(self.destination(name).extracted)

    def schema(self, name: str) -> str:
        """Returns the name of a schema on the target, for statements on the schema itself."""
        rule = self._only(list(self._of_schema(name)), name)
        return (rule.target_schema if rule else "") or name

    def _destination(self, name: TableName) -> Destination:
        rule = self._only(list(self._of_table(name)), str(name))
        rule = rule or self._only(list(self._of_schema(name.schema)), str(name))
        if rule is None:
            return Destination(name)
        target = TableName(rule.target_schema or name.schema, rule.target_table or name.name)
        texts = zip(rule.extracts, (name.name, name.schema, self.source_id), strict=True)
        return Destination(target, tuple((extract.column, extract(text)) for extract, text in texts if extract), rule)

    def _of_table(self, name: TableName) -> Iterator[RouteRule]:
        return (
            rule
            for rule in self.rules
            if rule.table_pattern
            and matches(rule.table_pattern, name.name, case_sensitive=self.case_sensitive)
            and matches(rule.schema_pattern, name.schema, case_sensitive=self.case_sensitive)
        )

    def _of_schema(self, name: str) -> Iterator[RouteRule]:
        return (
            rule
            for rule in self.rules
            if not rule.table_pattern and matches(rule.schema_pattern, name, case_sensitive=self.case_sensitive)
        )

    @staticmethod
    def _only(found: list[RouteRule], name: str) -> RouteRule | None:
        if len(found) > 1:
            raise ConfigError(
                "ambiguous-route",
                f"{len(found)} routes fit {name}: {found[0]} and {found[1]}",
                todo="Narrow their patterns in the task file, so that only one of them fits.",
            )
        return found[0] if found else None
