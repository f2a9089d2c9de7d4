"""Finishes a table whose rows are there: makes its indexes, the counters of its columns, its statistics.

An index made of all rows at once is several times faster to make than one that each row is put into, and it is
smaller. The primary key is not left for later: it keeps a row from being loaded twice, and rows of the log are written
by it.
"""

from __future__ import annotations

from collections.abc import Callable

from pidts.model import Rendered, Table
from pidts.target.postgres.create import create_key
from pidts.target.postgres.dialect import identifier, literal, qualified
from pidts.target.postgres.shape import PgTable

Sequences = Callable[[str, str], str | None]
"""Gives the name of the sequence that a column of a table counts by."""


def finish_table(
    table: Table, found: PgTable, sequence: Sequences, *, keys: bool, meta: str = "pidts_meta"
) -> Rendered:
    """Returns the statements that make what is missing, so that they may be asked for again at any time.

    `keys` only where they were left.
    """
    name = qualified(table.name)
    statements: list[str] = []
    for key in table.keys if keys else ():
        if any(each.columns == key.columns and each.unique >= key.unique for each in found.keys):
            continue
        sql, _ = create_key(table, key)
        statements += [each for each in sql if each not in statements]
    for column in table.columns:
        if column.auto_increment and (counter := sequence(name, column.name)) is not None:
            statements.append(_counted(name, identifier(column.name), counter))
    if keys:
        statements.append(f"DELETE FROM {meta}.unfinished WHERE relation = {literal(name)}::regclass")
    return Rendered(tuple(statements), later=(f"ANALYZE {name}",))


def _counted(table: str, column: str, counter: str) -> str:
    """Never back: somebody may have inserted rows of the target's own. Negative values are none of the counter's."""
    return (
        f"SELECT pg_catalog.setval({literal(counter)}, h.value) FROM (SELECT max({column}) AS value FROM {table}) h, "
        f"{counter} s WHERE h.value >= s.last_value"
    )
