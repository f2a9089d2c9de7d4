"""Writes and reads a checkpoint's row, with a digest of its values, so that a row edited by hand is noticed.

Without the digest, this could happen: somebody sets `lsn` of a row to an earlier place. The next batch begins there,
and the changes after this place are applied a second time. A table without a key then has the inserted rows twice.

The digest is the first member of the JSON in `copy_progress`. An earlier version of this program, without digests,
reads that JSON and writes it without the digest, or writes an empty text if nothing is copied. A row without a digest
is accepted if its position agrees with its Lsn.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import replace

from pidts.model import Checkpoint, Lsn, Position
from pidts.model.records.altered_record import UNREADABLE
from pidts.plan.state import PlanState, copied_at, dealing_of, run_of

_NOTHING = '{"copy": [], "held": [], "run": 0, "dealing": ""}'
"""The text for a worker when no table is being copied and no table waits."""
_UNFIT = "0" * 32
"""Replaces the digest of a row that was altered, until a task saves a new place in the row."""
_DIGESTED = re.compile(r'\{"digest": "([0-9a-f]{32})"(?:, )?')


def written_progress(row: Checkpoint) -> str:
    """Returns the text for the column `copy_progress`, with the digest of all values of the row."""
    text = row.copy or _NOTHING
    if not text.startswith("{"):
        return text  # a list, as the first versions wrote it
    rest = text[1:]
    return f'{{"digest": "{_digest(row)}"{"" if rest == "}" else ", "}{rest}'


def read_progress(row: Checkpoint) -> Checkpoint:
    """Returns the checkpoint from a row that `written_progress` wrote; `altered` says why the row is not accepted."""
    if row.altered:
        return replace(row, copy="")
    found = _DIGESTED.match(row.copy)
    if found is None:
        return _read(row, _contradiction(row))
    text = "{" + row.copy[found.end() :]
    row = replace(row, copy="" if text == _NOTHING else text)
    if _digest(row) != found[1]:
        return _read(row, "its values do not match the digest that is stored with them")
    return row


def _read(row: Checkpoint, altered: str) -> Checkpoint:
    """Returns a row without a matching digest. An unreadable copy progress is left out, and the row is altered."""
    try:
        PlanState.from_checkpoint(row.lsn, row.copy)
        copied_at(row.copy)
        run_of(row.copy)
        dealing_of(row.copy)
    except UNREADABLE as error:
        return replace(row, copy="", altered=f"its copy_progress is not readable: {error}")
    return replace(row, altered=altered)


def _digest(row: Checkpoint) -> str:
    """Returns the digest of all values of the row except the epoch, which a run changes when it takes over.

    For an altered row, the function returns a digest that matches no values.
    """
    if row.altered:
        return _UNFIT
    values = [row.task, row.source, row.worker, row.batch, str(row.lsn), row.gtid, row.position, row.copy]
    return hashlib.blake2b(json.dumps(values).encode(), digest_size=16).hexdigest()


def _contradiction(row: Checkpoint) -> str:
    """Returns the reason why position and Lsn disagree; empty if they agree.

    The position is that of the slowest worker: no Lsn may be before it.
    """
    if not row.position:
        return ""
    try:
        place = Lsn.at(Position.parse(row.position), row.lsn.change_no)
    except ValueError as error:
        return f"its position is not readable: {error}"
    return f"its position {row.position} is later in the log than its Lsn {row.lsn}" if place > row.lsn else ""
