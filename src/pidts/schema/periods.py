"""Recognizes MariaDB's system-versioned tables and tables with periods, which are refused.

A *system-versioned* table keeps the old versions of its rows. The log contains these old versions as further rows:
after an UPDATE, the log has an INSERT of the old row. The real key is the declared key together with the end of the
row's validity. If these INSERTs were applied, the target would get rows again that the source has deleted.

A table with an *application-time* period has plain rows. Only the clauses about the period are not supported: the
server decides how these clauses affect NULLs and keys.
"""

from __future__ import annotations

from pidts.model.advice import RESYNC
from pidts.schema.parse.lexer import NotUnderstoodError
from pidts.schema.parse.token_cursor import TokenCursor

_VERSIONED = (
    "system-versioned tables are not supported: their log shows old versions of rows as new rows. Leave the table out "
    "(block-allow-list) and start the task. To replicate the table, run ALTER TABLE ... DROP SYSTEM VERSIONING on the "
    f"source, then include it again: {RESYNC}"
)
_PERIOD = "tables with an application-time period (PERIOD FOR, WITHOUT OVERLAPS) are not supported"


def refuse_periods(cursor: TokenCursor) -> None:
    """Raises if a clause about versioning or periods comes next.

    In an ALTER TABLE, the caller has consumed ADD or DROP before. The clause may also be an element of a CREATE TABLE,
    an attribute of a column, or a part of a key.
    """
    if any(cursor.at_words(*words) for words in _OF_VERSIONING):
        raise NotUnderstoodError(_VERSIONED)
    if any(cursor.at_words(*words) for words in _OF_PERIODS):
        raise NotUnderstoodError(_PERIOD)


_OF_VERSIONING = (
    ("SYSTEM", "VERSIONING"),
    ("WITH", "SYSTEM"),
    ("WITHOUT", "SYSTEM"),
    ("AS", "ROW"),
    ("PERIOD", "FOR", "SYSTEM_TIME"),
)
_OF_PERIODS = (
    ("PERIOD", "FOR"),
    ("PERIOD", "IF", "EXISTS", "FOR"),
    ("PERIOD", "IF", "NOT", "EXISTS", "FOR"),
    ("WITHOUT", "OVERLAPS"),
)
