"""Writes and reads a checkpoint's row, with a digest of its values, so that a row edited by hand is noticed.

An example of what the digest prevents: somebody sets `lsn` of a row to an earlier Lsn. The next batch begins at this
Lsn, and applies the later changes a second time. A table without a key then has the inserted rows twice.

The digest is the first member of the JSON in `copy_progress`. An earlier version of PiDTS has no digests: it reads this
JSON, and writes JSON without a digest, or an empty text if nothing is copied. So a row without a digest is accepted if
its position agrees with its Lsn.

The second member, `log`, is the checkpoint's log file. It is part of the digested text, so an earlier version with
digests accepts the row. That version writes the row without this member, and a row without it is accepted.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import replace
from functools import lru_cache

from pidts.model import Checkpoint, LogFile, Lsn, Position
from pidts.model.records.altered_record import UNREADABLE
from pidts.plan.state import PlanState, copied_at, dealing_of, run_of

_NOTHING = '{"copy": [], "held": [], "run": 0, "dealing": ""}'
"""The text for a worker when no table is being copied and no table waits."""
_UNFIT = "0" * 32
"""Replaces the digest of a row that was altered, until a task saves a new Lsn in the row."""
_DIGESTED = re.compile(r'\{"digest": "([0-9a-f]{32})"(?:, )?')
_LOG = '{"log": '
"""The beginning of a text that names the log file, without the digest."""
_log_text = lru_cache(maxsize=64)(LogFile.dumps)
"""Returns a log file as JSON. The text is the same for all batches of a file."""


def written_progress(row: Checkpoint) -> str:
    """Returns the text for the column `copy_progress`, with the digest of all values of the row."""
    text = row.copy or _NOTHING
    if not text.startswith("{"):
        return text  # a list, as the first versions wrote it
    digested = row.copy
    if row.log_file is not None:
        digested = text = f"{_LOG}{_log_text(row.log_file)}{_joined(text[1:])}"
    return f'{{"digest": "{_digest(row, digested)}"{_joined(text[1:])}'


def read_progress(row: Checkpoint) -> Checkpoint:
    """Returns the checkpoint from a row that `written_progress` wrote; `altered` says why the row is not accepted."""
    if row.altered:
        return replace(row, copy="")
    found = _DIGESTED.match(row.copy)
    if found is None:
        return _read(row, _contradiction(row))
    digested = "{" + row.copy[found.end() :]
    try:
        log_file, text = _log_file(digested)
    except UNREADABLE as error:
        return replace(row, copy="", altered=f"its copy_progress is not readable: {error}")
    digested = "" if digested == _NOTHING else digested
    row = replace(row, copy="" if text == _NOTHING else text, log_file=log_file)
    if _digest(row, digested) != found[1]:
        return _read(row, "its values do not match the digest that is stored with them")
    return row


def _read(row: Checkpoint, altered: str) -> Checkpoint:
    """Returns a row without a matching digest, as an altered row. An unreadable copy progress is left out."""
    try:
        PlanState.from_checkpoint(row.lsn, row.copy)
        copied_at(row.copy)
        run_of(row.copy)
        dealing_of(row.copy)
    except UNREADABLE as error:
        return replace(row, copy="", altered=f"its copy_progress is not readable: {error}")
    return replace(row, altered=altered)


def _log_file(text: str) -> tuple[LogFile | None, str]:
    """Returns the log file that a text names, and the text without it."""
    if not text.startswith(_LOG):
        return None, text
    values, end = json.JSONDecoder().raw_decode(text, len(_LOG))
    return LogFile.load(values), "{" + text[end:].removeprefix(", ")


def _joined(rest: str) -> str:
    """Returns the rest of a JSON object, after a comma if members are left."""
    return rest if rest == "}" else f", {rest}"


def _digest(row: Checkpoint, text: str) -> str:
    """Returns the digest of all values of the row except the epoch, which a run changes when it takes over.

    `text` is the text of the column `copy_progress` without the digest. For an altered row, the function returns a
    digest that matches no values.
    """
    if row.altered:
        return _UNFIT
    values = [row.task, row.source, row.worker, row.batch, str(row.lsn), row.gtid, row.position, text]
    return hashlib.blake2b(json.dumps(values).encode(), digest_size=16).hexdigest()


def _contradiction(row: Checkpoint) -> str:
    """Returns why the position contradicts the Lsn; empty if it does not.

    The position is that of the slowest worker, so the Lsn of a row is at the position or after it.
    """
    if not row.position:
        return ""
    try:
        place = Lsn.at(Position.parse(row.position), row.lsn.change_no)
    except ValueError as error:
        return f"its position is not readable: {error}"
    return f"its position {row.position} is later in the log than its Lsn {row.lsn}" if place > row.lsn else ""
