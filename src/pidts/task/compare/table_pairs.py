"""Decides which tables are compared: the tables of all sources of a task, grouped by their target tables.

The shards of a merged table may have different columns during a schema change, and if the task lets them differ
(`shard-mode: optimistic`). Then only the columns that all shards have are compared.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from pidts.apply import TargetSession
from pidts.apply.merge.discriminating_keys import keyed_targets
from pidts.login.privileges import Privilege, grant_statements, privileges_of
from pidts.model import Column, ColumnType, ConfigError, Halted, Key, SourceTablesKey, Table, TableName
from pidts.model.errors import listed, named
from pidts.rules import Rules, mapping_of
from pidts.source.connection import server_info
from pidts.source.grants import account, current_grants
from pidts.source.structures import read_structures, table_names
from pidts.task.compare.source import OpenPart, SourceTable
from pidts.verify import MergedTable

TakesTable = Callable[[TableName], bool]


@dataclass(frozen=True, slots=True)
class _Member:
    part: OpenPart
    rules: Rules
    table: Table
    label: str

    @property
    def target_table(self) -> Table:
        """The structure of the table's rows on the target; the source's structure if the rules refuse the table."""
        return (
            self.table.renamed(self.rules.target_name(self.table.name))
            if self.odd
            else self.rules.target_table(self.table)
        )

    @property
    def odd(self) -> str:
        """The reason why the rules refuse the table; empty if they do not."""
        try:
            self.rules.target_table(self.table)
        except (Halted, ConfigError) as error:
            return f"{self.label}: {error.what}"
        return ""


def target_names(parts: Sequence[OpenPart]) -> dict[TableName, list[tuple[OpenPart, TableName]]]:
    """Returns the tables of all sources, by the names of their target tables. Reads no structures."""
    found: dict[TableName, list[tuple[OpenPart, TableName]]] = {}
    for part in parts:
        for name in sorted(table_names(part.session, part.config.allow)):
            found.setdefault(part.config.rules.target_name(name), []).append((part, name))
    return found


def label(parts: Sequence[OpenPart], part: OpenPart, name: TableName) -> str:
    """Returns the name that messages give to a source's table."""
    return f"{part.config.source.source_id}: {name}" if len(parts) > 1 else str(name)


def read_merged_tables(
    parts: Sequence[OpenPart], target: TargetSession, takes: TakesTable
) -> dict[TableName, MergedTable]:
    """Returns the merged tables that `takes` selects, by the target table or by any of the source tables.

    A table that the account may not read is invisible on the source. If the task carries such a table, its merged table
    is returned with a problem, and so is not compared.
    """
    wanted = {
        target_table: members
        for target_table, members in target_names(parts).items()
        if takes(target_table) or any(takes(name) for _, name in members)
    }
    found: dict[TableName, list[_Member]] = {}
    hidden: dict[TableName, list[str]] = {}
    followed: list[list[TableName]] = []
    for part in parts:
        own = {name for members in wanted.values() for other, name in members if other is part}
        tables = read_structures(part.session, own.__contains__) if own else {}
        rules = part.config.rules
        rules = replace(rules, keyed=keyed_targets(target, rules, tables.values()))
        for name, table in tables.items():
            one = _Member(part, rules, table, label(parts, part, name))
            found.setdefault(rules.target_name(name), []).append(one)
        followed.append(_followed(part, target))
        for name in followed[-1]:
            if name not in own and rules.target_name(name) in wanted:
                hidden.setdefault(rules.target_name(name), []).append(label(parts, part, name))
    merged = {name: _merged(name, members, hidden.get(name, ())) for name, members in found.items()}
    return {**merged, **_unreadable_tables(parts, followed, target, takes, merged)}


def _unreadable_tables(
    parts: Sequence[OpenPart],
    followed: Sequence[Sequence[TableName]],
    target: TargetSession,
    takes: TakesTable,
    known: Collection[TableName],
) -> dict[TableName, MergedTable]:
    """Returns the merged tables without any visible source table. Their problems name the GRANT statements that help.

    `followed` are the tables that each part carries. If the account may read a table that is invisible, the table was
    dropped, and the log contains the DROP. So it is left out.
    """
    found: dict[TableName, list[_Member]] = {}
    grants: dict[TableName, list[str]] = {}
    for part, names in zip(parts, followed, strict=True):
        rules = part.config.rules
        unseen = [name for name in names if rules.target_name(name) not in known]
        unseen = [name for name in unseen if takes(name) or takes(rules.target_name(name))]
        if not unseen:
            continue
        has = privileges_of(current_grants(part.session, server_info(part.session)))
        key = SourceTablesKey(part.config.source.source_id)
        tables = target.meta.structures.load(part.config.name, key)
        for name in unseen:
            wanted = Privilege("SELECT", name.schema, name.name)
            if name in tables and not has.has(wanted):
                one = _Member(part, rules, tables[name], label(parts, part, name))
                found.setdefault(rules.target_name(name), []).append(one)
                grants.setdefault(rules.target_name(name), []).extend(grant_statements([wanted], account(part.session)))
    return {
        name: replace(
            _merged(name, members),
            problem=f"the account may not read {listed(one.label for one in members)}. On the source: "
            f"{' '.join(grants[name])}",
        )
        for name, members in found.items()
    }


def _followed(part: OpenPart, target: TargetSession) -> list[TableName]:
    """Returns the tables that the task carries, even those that the account may not read."""
    config = part.config
    mine = (config.name, SourceTablesKey(config.source.source_id))
    return sorted(
        name for task, key, name in target.meta.structures.tables() if (task, key) == mine and config.allow(name)
    )


def _merged(name: TableName, members: Sequence[_Member], hidden: Sequence[str] = ()) -> MergedTable:
    tables = [one.target_table for one in members]
    shared, alone = _columns(tables)
    identity = tables[0].identity
    problem = _problem(members, tables, shared)
    if hidden:
        problem = (
            f"{listed(hidden)}: the task carries this table, and the source does not show it. The account may not "
            "SELECT from it (see: pidts grants TASK), or it was dropped a moment ago"
        )
    table, most = tables[0], None
    if len(members) > 1:
        keys = (Key("PRIMARY", identity, unique=True, primary=True),) if identity and not problem else ()
        table = Table(name, tuple(shared.values()), keys)
        most = replace(table, columns=(*table.columns, *alone.values()))
    sources = tuple(
        SourceTable(one.part, one.rules, one.table, one.table if len(members) == 1 else _reduced(one, table), one.label)
        for one in members
    )
    own = tuple(column for column in identity if column not in sources[0].extracted)
    cut = table if own == identity or problem else _keyed_by(table, own)
    return MergedTable(table, cut, sources, problem=problem, most=most, note=_note(members, tables, alone))


def _columns(tables: Sequence[Table]) -> tuple[dict[str, Column], dict[str, Column]]:
    """Returns the columns that all tables have, in the first table's order, and all other columns."""
    shared: dict[str, Column] = {}
    alone: dict[str, Column] = {}
    for table in tables:
        for column in table.columns:
            if column.name in shared or column.name in alone:
                continue
            kind = _common([column.type, *_types(tables, column.name)])
            is_shared = kind is not None and len(_types(tables, column.name)) == len(tables)
            (shared if is_shared else alone)[column.name] = replace(column, type=kind or column.type)
    return shared, alone


def _types(tables: Iterable[Table], name: str) -> list[ColumnType]:
    return [column.type for table in tables for column in table.columns if column.name == name]


def _common(kinds: Sequence[ColumnType]) -> ColumnType | None:
    """Returns the type among these that can have the values of all of them unchanged; None if there is none."""
    first = kinds[0]
    if all(kind.is_integer and kind.unsigned == first.unsigned for kind in kinds):
        return max(kinds, key=lambda kind: int(kind.arrow.bit_width))
    if any((kind.kind, kind.arrow, kind.fsp) != (first.kind, first.arrow, first.fsp) for kind in kinds):
        return None
    return max(kinds, key=lambda kind: (len(kind.labels), kind.length or 0))


def _problem(members: Sequence[_Member], tables: Sequence[Table], shared: Mapping[str, Column]) -> str:
    odd_one = next(filter(None, (one.odd for one in members)), "")
    if odd_one:
        return odd_one
    identity = tables[0].identity
    for one, table in zip(members, tables, strict=True):
        mapping = mapping_of(one.rules.mappings, one.table.name)
        if mapping is not None and mapping.target_column in one.table.identity and not mapping.is_reversible(one.table):
            return f"column {mapping.target_column} is mapped: texts such as '7' and '07' become the same number"
        if table.identity != identity:
            return f"{members[0].label} has the key {_named(identity)}, and {one.label} has {_named(table.identity)}"
    odd = [name for name in identity if name not in shared]
    return f"the types of key column {', '.join(odd)} cannot be compared" if odd else ""


def _named(identity: Sequence[str]) -> str:
    return f"({', '.join(identity)})" if identity else "none"


def _note(members: Sequence[_Member], tables: Sequence[Table], alone: Mapping[str, Column]) -> str:
    if not alone or len(members) == 1:
        return ""
    without = [
        one.label
        for one, table in zip(members, tables, strict=True)
        if not set(alone) <= {column.name for column in table.columns}
    ]
    it, its = ("it", "its") if len(alone) == 1 else ("them", "their")
    why = f"these tables lack {it}: {listed(without)}" if without else f"{its} types are different"
    return f"{named('column', alone, 'is', 'are')} not compared; {why}"


def _reduced(one: _Member, table: Table) -> Table:
    """Returns the source's table with only the compared columns, in their order, and a column that a mapping needs."""
    mapping = mapping_of(one.rules.mappings, one.table.name)
    own = {column.name: column for column in one.table.columns}
    names = [column.name for column in table.columns if column.name in own]
    if mapping is not None and mapping.target_column in own and mapping.target_column not in names:
        names.append(mapping.target_column)
    keys = tuple(key for key in one.table.keys if key.columns == one.table.identity)
    return replace(one.table, columns=tuple(own[name] for name in names), keys=keys)


def _keyed_by(table: Table, columns: tuple[str, ...]) -> Table:
    return replace(table, keys=(Key("PRIMARY", columns, unique=True, primary=True),))
