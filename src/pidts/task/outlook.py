"""What a first run would do to the target, table by table; nothing is written by asking."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from pidts.apply import TargetSession
from pidts.model import ConfigError, PidtsError, Rendered, Table, TableName
from pidts.schema import type_text
from pidts.source.connection import connect
from pidts.source.sizes import Size, table_sizes
from pidts.source.structures import read_structures
from pidts.task.compose import source_config, target_of
from pidts.task.config import TaskConfig
from pidts.task.fit import Fit, fit_of
from pidts.task.rule_notes import rule_notes
from pidts.task.shards import Shard, own_shards, with_keys


class Way(StrEnum):
    """What becomes of a table."""

    CREATE = "create"
    USE = "use"
    """It is there and fits."""
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class ColumnOutlook:
    """A column on its way."""

    name: str
    source_type: str
    """Empty where the source has no such column."""
    target_type: str
    value: str | None = None
    """What a route puts into all rows of a column that it adds."""


@dataclass(frozen=True, slots=True)
class RuleOutlook:
    """A rule of the task file that speaks of a table."""

    map: str
    name: str
    says: str


@dataclass(frozen=True, slots=True)
class TableOutlook:
    """One table of the task."""

    source: TableName
    target: TableName
    rules: tuple[RuleOutlook, ...]
    way: Way
    key: tuple[str, ...]
    """The columns that rows are found by; empty where whole rows are compared."""
    columns: tuple[ColumnOutlook, ...]
    statements: tuple[str, ...]
    """Before its rows are copied."""
    finish: tuple[str, ...]
    """When they are."""
    notes: tuple[str, ...]
    """What the target cannot have as the source has it, and what rules do that may surprise."""
    problems: tuple[str, ...]
    """Why the table is refused."""
    size: Size | None
    """None where the source has no statistics."""
    merged: tuple[str, ...] = ()
    """Other tables of the task that land there, too."""

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "source": str(self.source),
            "target": str(self.target),
            "rules": [asdict(rule) for rule in self.rules],
            "way": self.way.value,
            "key": self.key,
            "columns": [asdict(column) for column in self.columns],
            "statements": self.statements,
            "finish": self.finish,
            "notes": self.notes,
            "problems": self.problems,
            "rows": self.size.rows if self.size else None,
            "bytes": self.size.bytes if self.size else None,
            "merged": self.merged,
        }


def outlook(parts: Sequence[TaskConfig]) -> dict[str, list[TableOutlook]]:
    """Every table that the task takes of each source, by name."""
    tables: dict[str, dict[TableName, Table]] = {}
    sizes: dict[str, Mapping[TableName, Size]] = {}
    for config in parts:
        source_id = config.source.source_id
        with closing(connect(source_config(config))) as source:
            tables[source_id] = read_structures(source, config.allow)
            sizes[source_id] = table_sizes(source, tables[source_id])
    found = {}
    with closing(target_of(parts[0]).connect()) as target:
        for config in parts:
            own = config.source.source_id
            others = [
                Shard(table, other.rules, other.source.source_id, begun=True)
                for other in parts
                if other is not config
                for table in tables[other.source.source_id].values()
            ]
            look = _Look(config, target, tables[own], others)
            found[own] = [look.of(table, sizes[own].get(name)) for name, table in sorted(tables[own].items())]
    return found


class _Look:
    """At one table after the other."""

    def __init__(
        self, config: TaskConfig, target: TargetSession, tables: Mapping[TableName, Table], others: Sequence[Shard]
    ) -> None:
        self._config, self._target = config, target
        own = own_shards(config.rules, tables.values(), begun=True)
        self._rules, self._beside = with_keys(target, config.rules, tables.values(), [*own, *others])
        self._lands: dict[TableName, TableName] = {}
        for name in tables:
            with suppress(ConfigError):  # told where the table itself is looked at
                self._lands[name] = config.rules.landed_name(name)

    def of(self, table: Table, size: Size | None) -> TableOutlook:
        """What becomes of it."""
        name = table.name
        columns: tuple[ColumnOutlook, ...] = ()
        rendered = Rendered(())
        finish: tuple[str, ...] = ()
        try:
            fit = fit_of(
                self._target,
                table,
                self._rules,
                copies=self._config.mode != "incremental",
                may_have_rows=True,
                beside=self._beside,
            )
            columns = self._columns(table, fit.landed)
            if fit.missing:
                rendered, finish = self._created(fit)
        except PidtsError as error:
            fit = Fit(name, table, problem=error.what)
        return TableOutlook(
            source=name,
            target=self._lands.get(name, name),
            rules=self._rules_of(name),
            way=Way.REFUSED if fit.problem else Way.CREATE if fit.missing else Way.USE,
            key=fit.landed.identity,
            columns=columns,
            statements=rendered.statements,
            finish=finish,
            notes=(*rendered.notes, *rule_notes(self._config.rules, table)),
            problems=tuple(filter(None, fit.problem.split("; "))),
            size=size,
            merged=self._merged(name),
        )

    def _merged(self, name: TableName) -> tuple[str, ...]:
        lands = self._lands.get(name)
        others = (one for one in self._beside if one.lands == lands and (one.source or one.table.name != name))
        return tuple(sorted(map(str, others))) if lands is not None else ()

    def _columns(self, table: Table, landed: Table) -> tuple[ColumnOutlook, ...]:
        before = {column.name: type_text(column.type) for column in table.columns}
        added = dict(self._config.rules.routes.landing(table.name).extracted)
        types = self._target.column_types(landed)
        return tuple(
            ColumnOutlook(column.name, before.get(column.name, ""), there, added.get(column.name))
            for column, there in zip(landed.columns, types, strict=True)
        )

    def _created(self, fit: Fit) -> tuple[Rendered, tuple[str, ...]]:
        """How it would be made, and what of that is left to the end of the copy."""
        made = fit.made or fit.landed
        whole = self._target.create_statements(made)
        before = whole if fit.is_shared else self._target.create_statements(made, before_copy=True)
        return before, tuple(statement for statement in whole.statements if statement not in before.statements)

    def _rules_of(self, name: TableName) -> tuple[RuleOutlook, ...]:
        """Of routes only the one that is in force: one for tables goes before one for schemas."""
        rules, sensitive = self._config.rules, self._config.allow.case_sensitive
        routed = str(rules.routes.landing(name).rule or "") if name in self._lands else None
        return tuple(
            RuleOutlook(rule.map, rule.name, rule.says)
            for rule in self._config.rule_names
            if rule.fits(name, case_sensitive=sensitive) and (rule.map != "routes" or routed in (None, rule.says))
        )
