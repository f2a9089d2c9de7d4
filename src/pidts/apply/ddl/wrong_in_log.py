"""Refuses columns that MariaDB writes to its log with wrong values, unless the target computes them itself.

The values of `VIRTUAL` columns that are computed from the AUTO_INCREMENT column are wrong in MariaDB's
log (`pidts.schema.computed.of_the_counter`).
"""

from __future__ import annotations

from collections.abc import Sequence

from pidts.apply.ddl.change import SchemaChange
from pidts.apply.port import TargetSchema, TargetSession
from pidts.model import Halted, Table, TableName, Where
from pidts.model.advice import SKIP
from pidts.model.errors import listed
from pidts.schema import AlterTable
from pidts.schema.computed import of_the_counter
from pidts.schema.kept_names import kept_names

COMPUTE_THERE = (
    "create the table on the target yourself, with a generated column there: the target then computes the values"
)


def wrong_in_log(schema: TargetSchema, table: Table, target_table: Table, *, is_created: bool = False) -> list[str]:
    """Returns the columns of a source's table that MariaDB writes to its log with wrong values.

    Columns that the target computes itself are left out, since the target gets no values for them. With `is_created`,
    PiDTS creates the target's table, even if a table of this name exists now.
    """
    wrong = of_the_counter(table)
    if not wrong:
        return []
    there = None if is_created else schema.structure(target_table.name)
    if there is None:
        computed = schema.create_statements(target_table).computed
    else:
        computed = frozenset(column.name for column in there.columns if column.generated)
    left_out = {name.lower() for name in computed}
    return sorted(name for name in wrong if name.lower() not in left_out)


def wrong_text(columns: Sequence[str]) -> str:
    """Returns what is wrong with the columns of `wrong_in_log`."""
    return (
        f"the source computes {listed(columns)} from the AUTO_INCREMENT column. MariaDB writes wrong values of such a "
        "column to its log, and the target would get them"
    )


def demand_right_values(session: TargetSession, change: SchemaChange, table: Table, *, is_created: bool) -> None:
    """Halts at the creation of a table with columns that MariaDB writes to its log with wrong values."""
    wrong = wrong_in_log(session.schema, _on_source(change) or table, table, is_created=is_created)
    _demand_none(wrong, table.name, f"{COMPUTE_THERE[0].upper()}{COMPUTE_THERE[1:]}")


def demand_right_values_after(
    session: TargetSession, statement: AlterTable, change: SchemaChange, computed: frozenset[str] | None
) -> None:
    """Halts if the target would get wrong values from MariaDB's log after an ALTER, and did not get them before.

    `computed` are the columns that the target computes itself after the statement; None: those that it computes now.
    """
    before, after = change.before.get(statement.table), _on_source(change)
    if before is None or after is None or not (of_the_counter(before) or of_the_counter(after)):
        return
    there = session.schema.structure(statement.table)
    computed_there = {column.name.lower() for column in there.columns if column.generated} if there else set()
    was = {new: old.lower() for new, old in kept_names(statement, before, after).items()}
    of_counter = {name.lower() for name in of_the_counter(before)}
    computed_after = computed_there if computed is None else {name.lower() for name in computed}
    computes = {one.name for one in after.columns if computed_after & {one.name.lower(), was.get(one.name)}}
    wrong_before = {name for name, old in was.items() if old in of_counter - computed_there}
    no_longer = {
        one.name for one in after.columns if one.generated and was.get(one.name) in of_counter & computed_there
    }
    wrong = sorted((of_the_counter(after) | no_longer) - computes - wrong_before)
    _demand_none(wrong, statement.table, "Alter the target's table yourself, with a generated column there")


def _demand_none(wrong: Sequence[str], table: TableName, remedy: str) -> None:
    if wrong:
        raise Halted(
            "ddl-not-translatable",
            wrong_text(wrong),
            where=Where(table=str(table)),
            todo=f"{remedy}. Then run {SKIP}. Or exclude the table in block-allow-list",
        )


def _on_source(change: SchemaChange) -> Table | None:
    """Returns the structure of the changed table on its source, with the expressions of its columns."""
    return next(filter(None, (*change.structures.values(), *change.after.values())), None)
