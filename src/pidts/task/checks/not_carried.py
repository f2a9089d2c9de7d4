"""Lists the objects that tables and schemas have besides rows: a cutover creates some, and others are left out."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress

from pidts.apply import TargetSession
from pidts.model import ConfigError, Table, TableName
from pidts.model.errors import listed
from pidts.source import Session
from pidts.source.connection import server_info
from pidts.source.finding import Finding
from pidts.source.uncarried_objects import DECLARED, GENERATED, PARTITIONS, foreign_keys, left_behind, programs
from pidts.task.config.task_file import TaskConfig
from pidts.task.tables.constraints import UncarriedForeignKey, fitting_key, merged_targets
from pidts.task.tables.lost_defaults import lost_default_note, lost_defaults

_SHOWN = "`pidts cutover` prints its text"
_JSON = "JSON, which MariaDB stores as text; in a table that PiDTS creates, it is text"


def table_notes(
    parts: Sequence[TaskConfig], part: TaskConfig, session: Session, tables: Mapping[str, Collection[TableName]]
) -> dict[TableName, list[str]]:
    """Returns notes on foreign keys, triggers, checks, special keys and partitions, by table.

    If no application can switch to the target, nobody misses these objects there: then only JSON of MariaDB is noted.
    """
    own = tables[part.source.source_id]
    try:
        merged = merged_targets(parts, tables)
    except ConfigError:  # the routes are in conflict, which another check reports
        return {}
    found: dict[TableName, list[str]] = defaultdict(list)
    schemas = {name.schema for name in own}
    product = "MariaDB" if server_info(session).is_mariadb else "MySQL"
    for key in foreign_keys(session, own.__contains__, schemas) if part.target.allows_cutover else ():
        with suppress(ConfigError):
            there = fitting_key(part, key, own, merged)
            columns = f"foreign key {key.name} ({', '.join(key.columns)}) on {key.parent}"
            how = f"left out, {there.why}" if isinstance(there, UncarriedForeignKey) else "made by `pidts cutover`"
            found[key.table].append(f"{columns}: {how}")
    for one in left_behind(session, own.__contains__, schemas, texts=False):
        if (name := one.table_name) is None:
            continue
        if one.is_of_json:  # the server has made this check, and no user knows it
            if not part.target.is_datacenter:
                check = "; `pidts cutover` makes the check that it is JSON" if part.target.type == "mysql" else ""
                found[name].append(f"column {one.name}: {_JSON}{check}")
            continue
        if not part.target.allows_cutover:
            continue
        what = PARTITIONS if one.kind == PARTITIONS else f"{one.kind} {one.name}"
        text = f" ({one.text})" if one.text else ""
        needs_product = one.is_of_family or one.kind == GENERATED
        may_be_made = (one.may_be_made or one.expression) and (
            part.target.type == "mysql" or not (needs_product or one.kind == DECLARED)
        )
        if may_be_made:
            how = "made by `pidts cutover`, if the target "
            how += f"is {product}, too, and can have it" if needs_product else "can have it"
        elif one.kind == GENERATED and part.target.type != "mysql":
            how = "a plain column on the target, unless PostgreSQL computes the same values"
        else:
            how = "left out"
        found[name].append(f"{what}{text}: {how}; {_SHOWN}")
    return found


def program_note(session: Session, own: Collection[TableName]) -> str:
    """Returns a note on the views, routines and events of the schemas; empty if there are none."""
    found = programs(session, {name.schema for name in own})
    if not found:
        return ""
    text = "views, routines and events are not carried (`pidts cutover` prints their definitions)"
    return f"{text}: {listed(map(str, found))}"


def not_carried_findings(
    parts: Sequence[TaskConfig],
    part: TaskConfig,
    session: Session,
    own: Mapping[TableName, Table],
    target: TargetSession | None,
) -> list[Finding]:
    """Returns a passed finding for each table that has objects besides rows, and one for the schemas.

    `target` is asked for the defaults of its columns; None: it is not asked.

    There are no findings for a datacenter or a warehouse, since no application can switch to such a target.
    """
    if not part.target.allows_cutover:
        return []
    # This check knows only the tables of its own source. A target table may be merged from tables of several sources:
    # the cutover reports this.
    tables = {one.source.source_id: own if one is part else () for one in parts}
    besides = table_notes(parts, part, session, tables)
    if target is not None:
        for name, table in own.items():
            with suppress(ConfigError):  # the routes are in conflict, which another check reports
                besides.setdefault(name, []).extend(map(lost_default_note, lost_defaults(part, target, table)))
    notes = [f"{name}: {'; '.join(of_table)}" for name, of_table in sorted(besides.items()) if of_table]
    programs = program_note(session, own)
    said = [*notes, *([programs] if programs else [])]
    return [Finding("not_carried", ok=True, message=note, is_note=True) for note in said]
