"""MariaDB's tables in time, which are recognised and never followed.

A *system-versioned* table keeps the old versions of its rows. Its log has them as rows of their own: an UPDATE is
followed by an INSERT of what was there before, and the real key is the declared one and the end of the row's time. The
counterexample: a target that takes these INSERTs as they come shows rows again that the source has deleted.

A table with a period *of the application's* holds plain rows. Only its clauses are not known: what they do to NULLs
and keys is the server's business.
"""

from __future__ import annotations

from pidts.schema.parse.lexer import NotUnderstoodError
from pidts.schema.parse.token_cursor import TokenCursor

_VERSIONED = (
    "system-versioned tables are not supported: their log tells old versions of rows as new rows; leave the table out "
    "(block-allow-list), or ALTER TABLE ... DROP SYSTEM VERSIONING on the source and copy it with a new task"
)
_PERIOD = "periods of the application's (PERIOD FOR, WITHOUT OVERLAPS) are not followed in the log"


def refuse_periods(cursor: TokenCursor) -> None:
    """Raises where a clause of versioning or of a period begins; ADD and DROP stand before it."""
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
