"""Explains a row of `pidts_meta` that cannot be read because somebody has changed it by hand."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from pidts.model.advice import MAKE_EQUAL
from pidts.model.errors import Halted, Where

_RESTORE = "Restore the old values of the row, for example from a backup of pidts_meta"
_LOST = f"{_RESTORE}. If the values are lost"
_TODO = {
    "halt": "Delete the row: it is for information only. A run writes the row again if the table still halts",
    "ddl_order": "Delete the row, and give the ddl command again. To see the statement that waits, run: pidts ddl list "
    "TASK",
    "note": f"{_LOST}, check that the task file still has the same routes, column-mappings and zones. Then delete this "
    "row alone, and start the task: the task writes the row again. Do not delete a row whose table_name is 'both have "
    "rows': write {} into its column told",
    "tombstone": f"{_LOST}, delete only this row of pidts_meta.tombstone. Then an older change may bring back the "
    "deleted row of your table: compare the rows afterwards (pidts verify TASK)",
    "locked_form": f"{_LOST}, copy the value of form from pidts_meta.row_lock: the row with this row_key "
    "contains it in its column about",
    "early_removal": f"{_LOST}, write the present time into removed_at and noted_at, in seconds since 1970",
    "cutover": f"{_LOST}: see which steps of the cutover are done, do the others by hand, and delete the row",
    "range_owner": f"{_RESTORE}. The same row is in pidts_meta of the other zones",
}
_OTHERWISE = (
    f"{_LOST}, delete the task's rows from this table of pidts_meta, and {MAKE_EQUAL}. "
    "Between zones, delete no rows: fill the whole zone again (docs/operate/zones.md, 'A zone that returns')"
)

UNREADABLE = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError, zlib.error)
"""The errors that parsing may raise for a text that PiDTS has not written."""


@contextmanager
def reading_record(record: str, *, column: str = "", **key: object) -> Iterator[None]:
    """Turns an error of parsing a row into an error that names the meta table `record`, and the row with this key."""
    try:
        yield
    except UNREADABLE as error:
        named = ", ".join(f"{name} = {value!r}" for name, value in key.items())
        row = f"the row {named}" if named else "a row"
        raise Halted(
            "record-altered",
            f"{row} of pidts_meta.{record} cannot be read: {column and f'{column}: '}{_cause(error)}. The row was "
            "changed by hand, or another program wrote it",
            where=Where(source=str(key.get("source", ""))),
            todo=_TODO.get(record, _OTHERWISE),
        ) from error


def reading_note(task: object, source: object, name: str) -> AbstractContextManager[None]:
    """Does the same as `reading_record`, for a note that concerns no single table."""
    return reading_record("note", column="told", task=task, source=source, table_schema="", table_name=name)


def texts(text: str) -> tuple[str, ...]:
    """Returns the texts of a JSON list. Raises a ValueError for any other JSON."""
    # Without this check, a JSON string would become a list of its characters, and each would be a statement to run.
    found = json.loads(text)
    if not (isinstance(found, list) and all(isinstance(one, str) for one in found)):
        raise ValueError("not a list of texts")
    return tuple(found)


def members(text: str) -> dict[str, Any]:
    """Returns the members of a JSON object. Raises a TypeError for any other JSON."""
    found = json.loads(text)
    if not isinstance(found, dict):
        raise TypeError("not a JSON object")
    return found


def _cause(error: Exception) -> str:
    return f"{error} is missing" if isinstance(error, KeyError) else str(error) or type(error).__name__
